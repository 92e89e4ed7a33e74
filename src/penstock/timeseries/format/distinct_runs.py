"""Which series have the same numbers: the times of a scrape, or the steps of counters that count the same."""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.timeseries.arrays import Array, Bools, Indices, Words, ranges

__all__ = ["distinct_runs"]

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_FOLD: Final = np.uint64(0xD6E8FEB86659FD93)


def distinct_runs(numbers: Array, offsets: Indices) -> tuple[Indices, Indices]:
    """The series where each run stands first, and the run of every series."""
    counts = np.diff(offsets)
    series = len(counts)
    if series < 2:
        return np.arange(series), np.arange(series)
    if np.all(counts == counts[0]):
        table = numbers.reshape(series, int(counts[0]))
        if np.all(table == table[0]):
            return np.zeros(1, np.int64), np.zeros(series, np.int64)
    _, firsts, runs = np.unique(_hashes(numbers, offsets, counts), return_index=True, return_inverse=True)
    same = _is_same(numbers, offsets, counts, firsts[runs])
    if not same.all():
        # Two runs share a hash: then none is shared.
        return np.arange(series), np.arange(series)
    order = np.argsort(firsts)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return firsts[order], rank[runs]


def _hashes(numbers: Array, offsets: Indices, counts: Indices) -> Words:
    place = (np.arange(len(numbers)) - np.repeat(offsets[:-1], counts)).astype(np.uint64)
    words = (numbers.astype(np.uint64) + _FOLD) * _MIX ^ (place + np.uint64(1)) * _FOLD
    words = (words ^ words >> np.uint64(29)) * _MIX
    found: Words = np.add.reduceat(words, offsets[:-1]) ^ counts.astype(np.uint64) * _FOLD
    return found


def _is_same(numbers: Array, offsets: Indices, counts: Indices, like: Indices) -> Bools:
    """Whether each series has the numbers of another one."""
    same: Bools = counts == counts[like]
    if same.all():
        same = np.logical_and.reduceat(numbers == numbers[ranges(offsets[like], counts)], offsets[:-1])
    return same
