"""The times of a block's series. Series that were sampled together share one run of times, which is stored once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Indices, ranges
from penstock.timeseries.format.distinct_runs import distinct_runs
from penstock.timeseries.format.packed_column import packed, unpacked

__all__ = ["TimeRuns"]


@dataclass(frozen=True)
class TimeRuns:
    """Runs of rising times: run k lies from `starts[k]` to `starts[k + 1]`, and series i has the run `runs[i]`."""

    runs: Indices
    starts: Indices
    times: Array

    @classmethod
    def of(cls, times: Array, offsets: Indices) -> TimeRuns:
        """The distinct runs of series whose times lie between `offsets`, in the order in which they first stand."""
        firsts, runs = distinct_runs(times, offsets)
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
            raise Corrupt("a block of samples is inconsistent", f"its time runs do not match {samples} samples")
        steps = unpacked(columns[2], np.int32, int(starts[-1]))
        total = np.cumsum(steps, dtype=np.int64)
        times = total - np.repeat(total[starts[:-1]] - steps[starts[:-1]], counts)
        return cls(chosen, starts, times.astype(np.int32))
