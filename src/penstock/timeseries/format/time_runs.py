"""The times of a block's series. Series that were sampled together share one run of times, which is stored once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Bools, Indices, Words
from penstock.timeseries.format.packed_column import packed, ranges, unpacked

__all__ = ["TimeRuns"]

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_FOLD: Final = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True)
class TimeRuns:
    """Runs of rising times: run k lies from `starts[k]` to `starts[k + 1]`, and series i has the run `runs[i]`."""

    runs: Indices
    starts: Indices
    times: Array

    @classmethod
    def of(cls, times: Array, offsets: Indices) -> TimeRuns:
        """The distinct runs of series whose times lie between `offsets`, in the order in which they first stand."""
        firsts, runs = _distinct(times, offsets)
        counts = np.diff(offsets)[firsts]
        starts = np.concatenate([[0], np.cumsum(counts)])
        return cls(runs, starts, times[ranges(offsets[firsts], counts)])

    @cached_property
    def counts(self) -> Indices:
        """The samples of every series."""
        return np.diff(self.starts)[self.runs]

    def of_series(self, places: Indices) -> Array:
        """The times of some series, one after the other."""
        if len(self.starts) == 2:
            return np.tile(self.times, len(places))
        runs = self.runs[places]
        return self.times[ranges(self.starts[runs], self.counts[places])]

    def encode(self) -> list[bytes]:
        """Three columns: the run of each series, the length of each run, and the runs as differences."""
        firsts = self.starts[:-1]
        steps = np.diff(self.times, prepend=np.int32(0)).astype(np.int32)
        steps[firsts] = self.times[firsts]
        return [
            packed(self.runs.astype(np.uint32), search=True),
            packed(np.diff(self.starts).astype(np.uint32)),
            packed(steps),
        ]

    @classmethod
    def decode(cls, columns: list[memoryview], series: int, runs: int, samples: int) -> TimeRuns:
        chosen = unpacked(columns[0], np.uint32, series).astype(np.int64)
        counts = unpacked(columns[1], np.uint32, runs).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(counts)])
        if (series and int(chosen.max()) >= runs) or np.any(counts < 1) or int(counts[chosen].sum()) != samples:
            raise Corrupt("a block of samples does not agree", f"its runs of times are not those of {samples} samples")
        steps = unpacked(columns[2], np.int32, int(starts[-1]))
        total = np.cumsum(steps, dtype=np.int64)
        times = total - np.repeat(total[starts[:-1]] - steps[starts[:-1]], counts)
        return cls(chosen, starts, times.astype(np.int32))


def _distinct(times: Array, offsets: Indices) -> tuple[Indices, Indices]:
    """The series where each run stands first, and the run of every series."""
    counts = np.diff(offsets)
    series = len(counts)
    if series < 2:
        return np.arange(series), np.arange(series)
    if np.all(counts == counts[0]):
        table = times.reshape(series, int(counts[0]))
        if np.all(table == table[0]):
            return np.zeros(1, np.int64), np.zeros(series, np.int64)
    _, firsts, runs = np.unique(_hashes(times, offsets, counts), return_index=True, return_inverse=True)
    same = _is_same(times, offsets, counts, firsts[runs])
    if not same.all():
        # Two runs share a hash: then none is shared.
        return np.arange(series), np.arange(series)
    order = np.argsort(firsts)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return firsts[order], rank[runs]


def _hashes(times: Array, offsets: Indices, counts: Indices) -> Words:
    place = (np.arange(len(times)) - np.repeat(offsets[:-1], counts)).astype(np.uint64)
    words = (times.astype(np.uint64) + _FOLD) * _MIX ^ (place + np.uint64(1)) * _FOLD
    words = (words ^ words >> np.uint64(29)) * _MIX
    found: Words = np.add.reduceat(words, offsets[:-1]) ^ counts.astype(np.uint64) * _FOLD
    return found


def _is_same(times: Array, offsets: Indices, counts: Indices, like: Indices) -> Bools:
    """Whether each series has the times of another one."""
    same: Bools = counts == counts[like]
    if same.all():
        same = np.logical_and.reduceat(times == times[ranges(offsets[like], counts)], offsets[:-1])
    return same
