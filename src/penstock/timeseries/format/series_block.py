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
from penstock.timeseries.arrays import Array, Column, Cut, Ids, Indices, buffer_of, taken
from penstock.timeseries.fingerprints import FINGERPRINT_BYTES, Fingerprints
from penstock.timeseries.payloads import labels_of_payloads
from penstock.timeseries.promql.labels import Labels

__all__ = ["FingerprintBlock", "LabelBlock"]

_COUNT: Final = struct.Struct("<Q")
# Beside the number of rows: ids are differences. They were numbers in the first layout, which zstd packs badly.
_DIFFERENCES: Final = 1 << 63
_DECODED_FACTOR: Final = 6


@dataclass(frozen=True)
class FingerprintBlock:
    """Fingerprints of series: u64 rows, u32 steps of ids, then 16 bytes a series; packed with zstd, for the ids."""

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
        parts = (*_encoded_ids(self.ids), self.fingerprints.pairs())
        return BlockBody(parts, compress=True)

    @classmethod
    def decode(cls, body: memoryview) -> FingerprintBlock:
        ids = _decoded_ids(body, 4 + FINGERPRINT_BYTES)
        rows = len(ids)
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
    """Labels of series: u64 rows, u32 steps of ids, u32 ends of payloads, then the payloads; packed with zstd."""

    ids: Ids
    payloads: Column

    @cached_property
    def size_bytes(self) -> int:
        """Memory held, with the labels that are kept once they were asked for: six times their bytes, about."""
        return _DECODED_FACTOR * int(self.ids.nbytes + self.payloads.nbytes)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> LabelBlock:
        return LabelBlock(self.ids[rows], taken(self.payloads, np.arange(len(self))[rows]))

    def labels_at(self, places: Indices) -> list[Labels]:
        """The labels of some rows. Read once each: blocks are kept, and asked again."""
        known = self._labels
        missing = [place for place in places.tolist() if place not in known]
        if missing:
            payloads = taken(self.payloads, np.array(missing))
            known.update(zip(missing, labels_of_payloads(payloads), strict=True))
        return [known[place] for place in places.tolist()]

    @cached_property
    def _labels(self) -> dict[int, Labels]:
        return {}

    def encode(self) -> BlockBody:
        starts = _offsets(self.payloads)
        data = np.frombuffer(self.payloads.buffers()[2] or b"", np.uint8)[starts[0] : starts[-1]]
        ends = (starts[1:] - starts[0]).astype("<u4")
        parts = (*_encoded_ids(self.ids), ends, data)
        return BlockBody(parts, compress=True)

    @classmethod
    def decode(cls, body: memoryview) -> Self:
        ids = _decoded_ids(body, 8, exact=False)
        rows = len(ids)
        ends = np.frombuffer(body, "<u4", rows, _COUNT.size + 4 * rows).astype(np.int32)
        data = body[_COUNT.size + 8 * rows :]
        if (int(ends[-1]) if rows else 0) != len(data) or np.any(ends[1:] < ends[:-1]):
            raise Corrupt("a block of labels is inconsistent", f"it has {len(data)} bytes of labels")
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


def _encoded_ids(ids: Ids) -> tuple[bytes, Array]:
    return _COUNT.pack(len(ids) | _DIFFERENCES), np.diff(ids, prepend=np.uint32(0)).astype("<u4", copy=False)


def _decoded_ids(body: memoryview, row_bytes: int, *, exact: bool = True) -> Ids:
    """The ids that a block begins with, which must have so many bytes a row in all."""
    if len(body) < _COUNT.size:
        raise Corrupt("a block of series is cut short", f"it has {len(body)} bytes")
    (rows,) = _COUNT.unpack_from(body)
    stepped, rows = rows & _DIFFERENCES, rows & ~_DIFFERENCES
    needed = _COUNT.size + rows * row_bytes
    if len(body) < needed or (exact and len(body) != needed):
        raise Corrupt("a block of series is cut short", f"it has {len(body)} bytes for {rows} series")
    ids: Ids = np.frombuffer(body, "<u4", rows, _COUNT.size)
    return np.cumsum(ids, dtype=np.uint32) if stepped else ids
