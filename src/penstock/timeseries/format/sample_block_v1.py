"""The first layout of sample blocks, which is read and no longer written: values whole or as they are, times of every series."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Bools, Floats, Ids, Indices

__all__ = ["decode_v1"]

# hour, samples, series, bytes of each column: ids, counts, times, kinds of series, whole numbers, other values
_HEADER: Final = struct.Struct("<qIIIIIIII")


def decode_v1(body: memoryview) -> tuple[int, Ids, Indices, Array, Floats]:
    """Hour, ids, offsets, times and values of a block."""
    if len(body) < _HEADER.size:
        raise Corrupt("a block of samples is cut short", f"it has {len(body)} bytes")
    hour, samples, series, *sizes = _HEADER.unpack_from(body)
    if _HEADER.size + sum(sizes) != len(body):
        raise Corrupt("a block of samples is cut short", f"it has {len(body)} bytes and declares {sum(sizes)}")
    ends = (_HEADER.size + np.cumsum(sizes)).tolist()
    parts = [body[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    ids, counts, times, integers, floats = (_unpacked(part) for part in (*parts[:3], *parts[4:]))
    if len(parts[3]) != -(-series // 8):
        raise Corrupt("a block of samples is inconsistent", f"{len(parts[3])} bytes of kinds for {series} series")
    whole = np.unpackbits(np.frombuffer(parts[3], np.uint8), count=series).astype(np.bool_)
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    if not (
        len(ids) == len(counts) == series
        and len(times) == samples == offsets[-1] == len(integers) + len(floats)
        and len(integers) == counts[whole].sum()
        and (counts > 0).all()
    ):
        raise Corrupt("a block of samples is inconsistent", f"{series} series of {samples} samples were declared")
    values = _values(whole, counts, integers, floats)
    return hour, np.cumsum(ids, dtype=np.uint32), offsets, _summed(times, offsets[:-1]).astype(np.int32), values


def _values(whole: Bools, counts: Array, integers: Array, floats: Array) -> Floats:
    """The values of all series in their order."""
    if not len(integers):
        return floats.astype(np.float64, copy=False)
    starts = np.cumsum(counts[whole], dtype=np.int64) - counts[whole]
    numbers = _summed(integers, starts).astype(np.float64)
    if not len(floats):
        return numbers
    values = np.empty(len(numbers) + len(floats))
    chosen = np.repeat(whole, counts)
    values[chosen], values[~chosen] = numbers, floats
    return values


def _summed(differences: Array, firsts: Indices) -> Array:
    """The numbers that these are the differences of."""
    if not len(differences):
        return differences.astype(np.int64)
    starts = np.cumsum(differences[firsts], dtype=np.int64)
    steps = differences.astype(np.int64)
    steps[firsts] = 0
    total = np.cumsum(steps)
    counts = np.diff(np.append(firsts, len(differences)))
    summed: Array = total + np.repeat(starts - total[firsts], counts)
    return summed


def _unpacked(body: memoryview) -> Array:
    from pcodec import standalone

    try:
        found = standalone.simple_decompress(bytes(body))
    except (RuntimeError, TypeError) as error:
        raise Corrupt("a column of samples cannot be decompressed", str(error)) from error
    return np.empty(0, np.int64) if found is None else found
