"""Which series of a day an hour has samples of: one Roaring bitmap of ids for each flush that brought some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyroaring

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.timeseries.arrays import Cut

__all__ = ["PresenceBlock"]


@dataclass(frozen=True)
class PresenceBlock:
    """The ids of series, as a bitmap in Roaring's portable format. Not to be changed."""

    ids: pyroaring.BitMap

    @cached_property
    def size_bytes(self) -> int:
        return len(self._packed)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> PresenceBlock:
        return PresenceBlock(pyroaring.BitMap(np.array(self.ids.to_array(), np.uint32)[rows]))

    def encode(self) -> BlockBody:
        return BlockBody((self._packed,), compress=True)

    @cached_property
    def _packed(self) -> bytes:
        # Series that were there before have ids side by side: runs of them take a few bytes.
        ids = self.ids.copy()
        ids.run_optimize()
        body: bytes = ids.serialize()
        return body

    @classmethod
    def decode(cls, body: memoryview) -> PresenceBlock:
        try:
            found = pyroaring.BitMap.deserialize(bytes(body))
        except (ValueError, RuntimeError, IndexError) as error:
            raise Corrupt("the series of an hour cannot be read", str(error)) from error
        return cls(found)

    @classmethod
    def merge(cls, parts: Sequence[PresenceBlock]) -> PresenceBlock:
        return parts[0] if len(parts) == 1 else cls(pyroaring.BitMap.union(*(part.ids for part in parts)))
