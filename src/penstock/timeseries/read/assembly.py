"""Samples of many hours and blocks put together as columns by series. Pure.

Parts come in the order in which they were written where they overlap: of one series and time the last one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.timeseries.arrays import Array, Bools, Cut, Floats, Ids, Indices, Times, ranges
from penstock.timeseries.format.ordering import is_risen, sorted_samples
from penstock.timeseries.format.sample_block import SampleBlock

__all__ = ["SampleColumns", "SamplePart", "assemble", "cut_block"]


@dataclass(frozen=True, slots=True)
class SamplePart:
    """Samples of some series: `series[i]` has `counts[i]` of them; no series stands here twice."""

    series: Indices
    counts: Indices
    # What is added to `times` to make them milliseconds since 1970.
    base_ms: int
    times: Array
    values: Floats


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """Samples by series, as the engine takes them."""

    offsets: Indices
    times: Times
    values: Floats


def cut_block(block: SampleBlock, ids: Ids, low_ms: int, high_ms: int, base_ms: int) -> tuple[Indices, SamplePart]:
    """The samples of some series from low to high, both included; and which of `ids` the part's series are."""
    places = np.searchsorted(block.ids, ids)
    inside = places < len(block.ids)
    inside[inside] = block.ids[places[inside]] == ids[inside]
    mine, places = np.flatnonzero(inside), places[inside]
    counts = block.counts[places]
    times, values = block.samples_of(places)
    if len(times) and (low_ms > base_ms or high_ms - base_ms < int(times.max())):
        kept: Bools = (times >= low_ms - base_ms) & (times <= high_ms - base_ms)
        before = np.concatenate([[0], np.cumsum(kept)])
        ends = np.cumsum(counts)
        counts = before[ends] - before[ends - counts]
        times, values = times[kept], values[kept]
        there = counts > 0
        mine, counts = mine[there], counts[there]
    return mine, SamplePart(mine, counts, base_ms, times, values)


def assemble(count: int, parts: Sequence[SamplePart], *, overlapping: bool = False) -> SampleColumns:
    """Columns of `count` series, made of parts that follow each other in time, or else overlap."""
    counts = np.zeros(count, np.int64)
    for part in parts:
        counts[part.series] += part.counts
    offsets = np.concatenate([[0], np.cumsum(counts)])
    times = np.empty(int(offsets[-1]), np.int64)
    values = np.empty(int(offsets[-1]), np.float64)
    filled = np.zeros(count, np.int64)
    even = int(counts[0]) if count and np.all(counts == counts[0]) else 0
    for part in parts:
        if not len(part.times):
            continue
        before = filled[part.series]
        filled[part.series] += part.counts
        if even and np.all(before == before[0]) and np.all(part.counts == part.counts[0]):
            _put_rectangle(part, int(before[0]), times.reshape(-1, even), values.reshape(-1, even))
            continue
        starts = offsets[part.series] + before
        rows: Cut
        if np.all(starts[1:] == starts[:-1] + part.counts[:-1]):
            rows = slice(int(starts[0]), int(starts[0]) + len(part.times))
        else:
            rows = ranges(starts, part.counts)
        times[rows] = part.times
        times[rows] += part.base_ms
        values[rows] = part.values
    if overlapping:
        return _settled(offsets, times, values)
    return SampleColumns(offsets, times, values)


def _put_rectangle(part: SamplePart, first: int, times: Times, values: Floats) -> None:
    """Put a part whose series have equally many samples into columns of as many, a series a row, from `first` on."""
    series = part.series
    rows: Cut = series
    if np.all(series[1:] == series[:-1] + 1):
        rows = slice(int(series[0]), int(series[0]) + len(series))
    columns = slice(first, first + int(part.counts[0]))
    times[rows, columns] = part.times.reshape(len(series), -1) + np.int64(part.base_ms)
    values[rows, columns] = part.values.reshape(len(series), -1)


def _settled(offsets: Indices, times: Times, values: Floats) -> SampleColumns:
    series = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    if is_risen(series, times):
        return SampleColumns(offsets, times, values)
    order = sorted_samples(series, times)
    assert order is not None
    counts = np.bincount(series[order], minlength=len(offsets) - 1)
    return SampleColumns(np.concatenate([[0], np.cumsum(counts)]), times[order], values[order])
