"""Payloads: the labels of a series as the bytes that are hashed and stored, read back one by one or many at once."""

from __future__ import annotations

import struct
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Column, Cut, Indices, buffer_of, codes_of, ranges
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
    """The labels of many payloads, in their order. Equal pairs are one object, which makes sets quick to compare."""
    if len(payloads) < _MANY:
        return [*map(labels_of_payload, payloads.to_pylist())]
    offsets = np.frombuffer(payloads.buffers()[1], np.int32, len(payloads) + 1, 4 * payloads.offset).astype(np.int64)
    data = np.frombuffer(payloads.buffers()[2], np.uint8)
    texts = _bounds(data, offsets)
    found: list[Labels] = [()] * len(payloads)
    for count in np.unique(texts.counts).tolist():
        # Series of as many labels: one column for each name and each value.
        rows = np.flatnonzero(texts.counts == count)
        columns = [texts.pairs(data, rows, place) for place in range(0, count, 2)]
        made = zip(*columns, strict=True) if columns else repeat((), len(rows))
        for row, labels in zip(rows.tolist(), made, strict=True):
            found[row] = labels
    return found


class _Texts:
    """Where the names and values of each payload lie: the k-th of row i has its bounds in `starts[k]` and `sizes[k]`."""

    def __init__(self, starts: list[Indices], sizes: list[Indices], counts: Indices) -> None:
        self.starts = starts
        self.sizes = sizes
        self.counts = counts

    def pairs(self, data: Array, rows: Indices, place: int) -> list[tuple[str, str]]:
        """The label of each row whose name is its text at a place, and its value the one behind it."""
        names, name_codes = self._column(data, rows, place)
        values, codes = self._column(data, rows, place + 1)
        if len(names) == 1:
            pool = [(names[0], value) for value in values]
        else:
            both, codes = np.unique(name_codes * len(values) + codes, return_inverse=True)
            pool = [(names[one // len(values)], values[one % len(values)]) for one in both.tolist()]
        return [pool[code] for code in codes.tolist()]

    def _column(self, data: Array, rows: Indices, place: int) -> tuple[list[str], Indices]:
        """The distinct texts of some rows at a place, and for each row which one it has."""
        starts, sizes = self.starts[place][rows], self.sizes[place][rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        if np.all(sizes == sizes[0]):
            texts = data[starts[:, None] + np.arange(int(sizes[0]))]
            if np.all(texts == texts[0]):
                return [texts[0].tobytes().decode()], np.zeros(len(rows), np.int64)
        else:
            texts = data[ranges(starts, sizes)]
        buffers = [None, buffer_of(offsets), buffer_of(np.ascontiguousarray(texts))]
        encoded: Column = pa.Array.from_buffers(pa.string(), len(rows), buffers).dictionary_encode()
        return encoded.dictionary.to_pylist(), codes_of(encoded)


def _bounds(data: Array, offsets: Indices) -> _Texts:
    at, ends = offsets[:-1].copy(), offsets[1:]
    counts = np.zeros(len(at), np.int64)
    starts: list[Indices] = []
    sizes: list[Indices] = []
    # A length at every byte: payloads are not aligned.
    lengths: Array = np.ndarray((max(0, len(data) - _LENGTH_BYTES + 1),), "<u4", data, strides=(1,))
    while np.any(unread := at < ends):
        rows: Cut = slice(None) if unread.all() else np.flatnonzero(unread)
        if np.any(at[rows] + _LENGTH_BYTES > ends[rows]):
            raise Corrupt("the labels of a series are cut short", "a length is not whole")
        starts.append(np.zeros(len(at), np.int64))
        sizes.append(np.zeros(len(at), np.int64))
        starts[-1][rows], sizes[-1][rows] = at[rows] + _LENGTH_BYTES, lengths[at[rows]]
        counts[rows] += 1
        at[rows] += _LENGTH_BYTES + sizes[-1][rows]
    if np.any(at != ends) or np.any(counts % 2):
        raise Corrupt("the labels of a series are cut short", "a name or a value is not whole")
    return _Texts(starts, sizes, counts)
