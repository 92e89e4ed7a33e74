"""Blocks of series by their id within an hour: fingerprints (the dictionary), and labels (the forward index)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Column, Cut, Ids, Indices, buffer_of
from penstock.timeseries.fingerprints import FINGERPRINT_BYTES, Fingerprints
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.series_table import labels_of_payload

__all__ = ["FingerprintBlock", "LabelBlock"]

_COUNT: Final = struct.Struct("<Q")
_DECODED_FACTOR: Final = 6


@dataclass(frozen=True)
class FingerprintBlock:
    """Fingerprints of series: u64 rows, u32 ids, then 16 bytes a series; packed with zstd, for the ids."""

    ids: Ids
    fingerprints: Fingerprints

    @property
    def size_bytes(self) -> int:
        return (4 + FINGERPRINT_BYTES) * len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> FingerprintBlock:
        return FingerprintBlock(self.ids[rows], self.fingerprints.take(rows))

    def encode(self) -> BlockBody:
        parts = (_COUNT.pack(len(self)), self.ids.astype("<u4", copy=False), self.fingerprints.pairs())
        return BlockBody(parts, compress=True)

    @classmethod
    def decode(cls, body: memoryview) -> FingerprintBlock:
        rows = _rows(body, 4 + FINGERPRINT_BYTES)
        ids = np.frombuffer(body, "<u4", rows, _COUNT.size)
        words = np.frombuffer(body, "<u8", 2 * rows, _COUNT.size + 4 * rows).reshape(rows, 2)
        return cls(ids, Fingerprints(np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])))

    @classmethod
    def merge(cls, parts: Sequence[FingerprintBlock]) -> FingerprintBlock:
        if len(parts) == 1:
            return parts[0]
        ids = np.concatenate([part.ids for part in parts])
        return cls(ids, Fingerprints.concatenate([part.fingerprints for part in parts]))


@dataclass(frozen=True)
class LabelBlock:
    """Labels of series: u64 rows, u32 ids, u32 ends of payloads, then the payloads; packed with zstd."""

    ids: Ids
    payloads: Column

    @cached_property
    def size_bytes(self) -> int:
        """Memory held, with the labels that are kept once they were asked for: six times their bytes, about."""
        return _DECODED_FACTOR * int(self.ids.nbytes + self.payloads.nbytes)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> LabelBlock:
        return LabelBlock(self.ids[rows], self.payloads.take(np.arange(len(self))[rows]))

    def labels_at(self, places: Indices) -> list[Labels]:
        """The labels of some rows. Read once each: blocks are kept, and asked again."""
        known = self._labels
        missing = [place for place in places.tolist() if place not in known]
        if missing:
            for place, payload in zip(missing, self.payloads.take(missing).to_pylist(), strict=True):
                known[place] = labels_of_payload(payload)
        return [known[place] for place in places.tolist()]

    @cached_property
    def _labels(self) -> dict[int, Labels]:
        return {}

    def encode(self) -> BlockBody:
        starts = _offsets(self.payloads)
        data = np.frombuffer(self.payloads.buffers()[2] or b"", np.uint8)[starts[0] : starts[-1]]
        ends = (starts[1:] - starts[0]).astype("<u4")
        parts = (_COUNT.pack(len(self)), self.ids.astype("<u4", copy=False), ends, data)
        return BlockBody(parts, compress=True)

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        rows = _rows(body, 8, exact=False)
        ids = np.frombuffer(body, "<u4", rows, _COUNT.size)
        ends = np.frombuffer(body, "<u4", rows, _COUNT.size + 4 * rows).astype(np.int32)
        data = body[_COUNT.size + 8 * rows :]
        if (int(ends[-1]) if rows else 0) != len(data) or np.any(ends[1:] < ends[:-1]):
            raise Corrupt("a block of labels does not agree", f"it has {len(data)} bytes of labels")
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        buffers = [None, buffer_of(offsets), buffer_of(data)]
        return cls(ids, pa.BinaryArray.from_buffers(pa.binary(), rows, buffers))

    @classmethod
    def merge(cls, parts: Sequence[LabelBlock]) -> LabelBlock:
        if len(parts) == 1:
            return parts[0]
        ids = np.concatenate([part.ids for part in parts])
        return cls(ids, pa.concat_arrays([part.payloads for part in parts]))


def _offsets(payloads: Any) -> Array:
    return np.frombuffer(payloads.buffers()[1], np.int32, len(payloads) + 1, 4 * payloads.offset)


def _rows(body: memoryview, row_bytes: int, *, exact: bool = True) -> int:
    if len(body) < _COUNT.size:
        raise Corrupt("a block of series is cut short", f"it has {len(body)} bytes")
    (rows,) = _COUNT.unpack_from(body)
    needed = _COUNT.size + rows * row_bytes
    if len(body) < needed or (exact and len(body) != needed):
        raise Corrupt("a block of series is cut short", f"it has {len(body)} bytes for {rows} series")
    return int(rows)
