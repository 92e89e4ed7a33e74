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
_MANY: Final = 128


def labels_of_payload(payload: bytes) -> Labels:
    """The labels that a payload was made of."""
    parts: list[str] = []
    at = 0
    try:
        while at < len(payload):
            (size,) = _LENGTH.unpack_from(payload, at)
            at += _LENGTH_BYTES
            parts.append(payload[at : at + size].decode())
            at += size
    except struct.error as error:
        raise _cut_short("a length is not whole") from error
    if at != len(payload) or len(parts) % 2:
        raise _cut_short("a name or a value is not whole")
    return tuple(zip(parts[::2], parts[1::2], strict=True))


def labels_of_payloads(payloads: Column) -> list[Labels]:
    """The labels of many payloads, in their order. Equal pairs are one object, which makes sets quick to compare."""
    if len(payloads) < _MANY:
        return [*map(labels_of_payload, payloads.to_pylist())]
    offsets = np.frombuffer(payloads.buffers()[1], np.int32, len(payloads) + 1, 4 * payloads.offset).astype(np.int64)
    data = np.frombuffer(payloads.buffers()[2], np.uint8)
    counts, bounds = _pair_bounds(data, offsets)
    found: list[Labels] = [()] * len(payloads)
    for count in np.unique(counts).tolist():
        # Series of as many labels: one column for each of them.
        rows = np.flatnonzero(counts == count)
        columns = [_pairs(data, starts[rows], ends[rows]) for starts, ends in bounds[:count]]
        made = zip(*columns, strict=True) if columns else repeat((), len(rows))
        if len(rows) == len(payloads):
            return list(made)
        for row, labels in zip(rows.tolist(), made, strict=True):
            found[row] = labels
    return found


def _pair_bounds(data: Array, offsets: Indices) -> tuple[Indices, list[tuple[Indices, Indices]]]:
    """How many labels each payload has; and of the first label, the second and so on where it begins and ends in each."""
    at, ends = offsets[:-1], offsets[1:]
    counts = np.zeros(len(at), np.int64)
    bounds: list[tuple[Indices, Indices]] = []
    # A length at every byte: payloads are not aligned.
    lengths: Array = np.ndarray((max(0, len(data) - _LENGTH_BYTES + 1),), "<u4", data, strides=(1,))
    while np.any(unread := at < ends):
        rows: Cut = slice(None) if unread.all() else np.flatnonzero(unread)
        # The end of the name, then that of its value.
        behind = _behind(lengths, _behind(lengths, at[rows], ends[rows]), ends[rows])
        begun, at = at, at.copy()
        at[rows] = behind
        counts[rows] += 1
        bounds.append((begun, at))
    return counts, bounds


def _behind(lengths: Array, at: Indices, ends: Indices) -> Indices:
    """Where the texts end whose lengths stand here."""
    if np.any(at + _LENGTH_BYTES > ends):
        raise _cut_short("a length is not whole")
    behind: Indices = at + _LENGTH_BYTES + lengths[at]
    if np.any(behind > ends):
        raise _cut_short("a name or a value is not whole")
    return behind


def _pairs(data: Array, starts: Indices, ends: Indices) -> list[tuple[str, str]]:
    """The labels that lie between these bounds, each of them read once."""
    sizes = ends - starts
    if np.all(sizes == sizes[0]):
        texts = data[starts[:, None] + np.arange(int(sizes[0]))]
        if np.all(texts == texts[0]):
            return [_pair(texts[0].tobytes())] * len(starts)
    else:
        texts = data[ranges(starts, sizes)]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    buffers = [None, buffer_of(offsets), buffer_of(np.ascontiguousarray(texts))]
    encoded: Column = pa.Array.from_buffers(pa.binary(), len(starts), buffers).dictionary_encode()
    pool = [*map(_pair, encoded.dictionary.to_pylist())]
    return [*map(pool.__getitem__, codes_of(encoded).tolist())]


def _pair(text: bytes) -> tuple[str, str]:
    """The label that a text of two lengths, a name and a value is."""
    value = _LENGTH_BYTES + _LENGTH.unpack_from(text)[0]
    return text[_LENGTH_BYTES:value].decode(), text[value + _LENGTH_BYTES :].decode()


def _cut_short(why: str) -> Corrupt:
    return Corrupt("the labels of a series are cut short", why)
