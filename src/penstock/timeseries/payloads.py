"""Payloads: the labels of a series as the bytes that are hashed and stored, read back one by one or many at once."""

from __future__ import annotations

import struct
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Column, Indices, buffer_of, codes_of
from penstock.timeseries.promql.labels import Labels

__all__ = ["labels_of_payload", "labels_of_payloads"]

_LENGTH: Final = struct.Struct("<I")
_LENGTH_BYTES: Final = 4
# Fewer are read faster one by one.
_MANY: Final = 64


def labels_of_payload(payload: bytes) -> Labels:
    """The labels that a payload was made of."""
    parts: list[str] = []
    at = 0
    while at < len(payload):
        (size,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH_BYTES
        parts.append(payload[at : at + size].decode())
        at += size
    return tuple(zip(parts[::2], parts[1::2], strict=True))


def labels_of_payloads(payloads: Column) -> list[Labels]:
    """The labels of many payloads, in their order. Equal texts are one object."""
    if len(payloads) < _MANY:
        return [*map(labels_of_payload, payloads.to_pylist())]
    offsets = np.frombuffer(payloads.buffers()[1], np.int32, len(payloads) + 1, 4 * payloads.offset).astype(np.int64)
    data = np.frombuffer(payloads.buffers()[2], np.uint8)
    texts = _bounds(data, offsets)
    found: list[Labels] = [()] * len(payloads)
    for count in np.unique(texts.counts).tolist():
        # Series of as many labels: one column for each name and each value.
        rows = np.flatnonzero(texts.counts == count)
        columns = [texts.column(data, rows, place) for place in range(count)]
        pairs = [zip(names, values, strict=True) for names, values in zip(columns[::2], columns[1::2], strict=True)]
        made = zip(*pairs, strict=True) if pairs else repeat((), len(rows))
        for row, labels in zip(rows.tolist(), made, strict=True):
            found[row] = labels
    return found


class _Texts:
    """Where the names and values of each payload lie: the k-th of row i has its bounds in `starts[k]` and `sizes[k]`."""

    def __init__(self, starts: list[Indices], sizes: list[Indices], counts: Indices) -> None:
        self.starts = starts
        self.sizes = sizes
        self.counts = counts

    def column(self, data: Array, rows: Indices, place: int) -> list[str]:
        starts, sizes = self.starts[place][rows], self.sizes[place][rows]
        ends = np.cumsum(sizes)
        positions = np.arange(int(ends[-1])) + np.repeat(starts - (ends - sizes), sizes)
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        buffers = [None, buffer_of(offsets), buffer_of(np.ascontiguousarray(data[positions]))]
        encoded = pa.Array.from_buffers(pa.string(), len(rows), buffers).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        return [texts[code] for code in codes_of(encoded).tolist()]


def _bounds(data: Array, offsets: Indices) -> _Texts:
    rows, at, ends = np.arange(len(offsets) - 1), offsets[:-1].copy(), offsets[1:]
    counts = np.zeros(len(rows), np.int64)
    starts: list[Indices] = []
    sizes: list[Indices] = []
    steps = np.arange(_LENGTH_BYTES)
    while len(rows := rows[at[rows] < ends[rows]]):
        if np.any(at[rows] + _LENGTH_BYTES > ends[rows]):
            raise Corrupt("the labels of a series are cut short", "a length is not whole")
        lengths = np.ascontiguousarray(data[at[rows][:, None] + steps]).view("<u4")[:, 0].astype(np.int64)
        starts.append(np.zeros(len(at), np.int64))
        sizes.append(np.zeros(len(at), np.int64))
        starts[-1][rows], sizes[-1][rows] = at[rows] + _LENGTH_BYTES, lengths
        counts[rows] += 1
        at[rows] += _LENGTH_BYTES + lengths
    if np.any(at != ends) or np.any(counts % 2):
        raise Corrupt("the labels of a series are cut short", "a name or a value is not whole")
    return _Texts(starts, sizes, counts)
