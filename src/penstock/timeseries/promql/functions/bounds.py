"""Ranges with `anchored` or `smoothed` bounds: what stood at the start and end of a range, and the growth between them.

Their windows reach further than the range: a lookback before its start and, for smoothed ones, behind its end. An
anchored bound is the newest sample at or before it, a smoothed one is interpolated between its neighbours.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame
from penstock.timeseries.promql.columns.windows import Windows, last_before
from penstock.timeseries.promql.functions.rates import falls_of, with_resets
from penstock.timeseries.promql.source import SeriesColumns

__all__ = ["anchored", "bounded_growth", "bounded_samples"]

Index = npt.NDArray[np.int64]


def anchored(windows: Windows) -> Windows:
    """Windows that begin with the newest sample at or before their start; empty if no sample follows it."""
    after_start = last_before(windows.columns, windows.starts_ms)
    low = np.maximum(windows.low, after_start - 1)
    return dataclasses.replace(windows, low=np.where(after_start < windows.high, low, windows.high))


@dataclasses.dataclass(frozen=True)
class _Bounds:
    """Values at both bounds of each window, and the samples strictly between them (`first` to `last`, both included)."""

    left: Cells
    right: Cells
    first: Index
    last: Index
    present: Presence


def _bounds(windows: Windows, *, smoothed: bool, counter: bool) -> _Bounds:
    columns = windows.columns
    times = columns.timestamps
    starts, ends = windows.starts_ms[None, :], windows.ends_ms[None, :]
    present = windows.high > windows.low
    final = np.where(present, windows.high - 1, 0)
    low = np.where(present, windows.low, 0)
    first = np.maximum(low, np.minimum(last_before(columns, windows.starts_ms), final) - 1)
    # The first sample at or after the end, for a smoothed range.
    last = np.minimum(np.maximum(last_before(columns, windows.ends_ms - 1), low), final) if smoothed else final
    present = present & (times[last] > starts)
    left, right = columns.values[first], columns.values[last]
    if smoothed:
        present &= times[first] <= ends
        before, behind = present & (times[first] < starts), present & (last > low) & (times[last] > ends)
        left = np.where(before, _between(columns, first, first + 1, starts, counter=counter), left)
        right = np.where(behind, _between(columns, last - 1, last, ends, counter=counter), right)
    return _Bounds(left, right, first + (times[first] <= starts), last - (times[last] >= ends), present)


def _between(columns: SeriesColumns, one: Index, other: Index, at_ms: Index, *, counter: bool) -> Cells:
    """The value on the line between two samples; a counter that fell began at zero."""
    other = np.minimum(other, len(columns.values) - 1)
    low, high = columns.values[one], columns.values[other]
    if counter:
        low = np.where(high < low, 0.0, low)
    begin, end = columns.timestamps[one], columns.timestamps[other]
    return low + (high - low) * (at_ms - begin) / np.where(end > begin, end - begin, 1)


def bounded_growth(windows: Windows, *, smoothed: bool, counter: bool, per_second: bool) -> VectorFrame:
    """How much a series grew from one bound to the other."""
    if not windows.columns.sample_count:
        return windows.frame(np.zeros(windows.low.shape), np.zeros(windows.low.shape, np.bool_))
    bounds = _bounds(windows, smoothed=smoothed, counter=counter)
    growth = bounds.right - bounds.left
    if counter:
        growth = _with_resets(growth, windows.columns, bounds)
    if per_second:
        growth = growth / ((windows.ends_ms - windows.starts_ms) / 1000)[None, :]
    return windows.frame(growth, bounds.present)


def _with_resets(growth: Cells, columns: SeriesColumns, bounds: _Bounds) -> Cells:
    """Growth with what a counter had reached before each fall on its way from the left bound to the right one."""
    values, falls = columns.values, falls_of(columns)
    some = bounds.present & (bounds.last >= bounds.first)
    first, last = np.where(some, bounds.first, 0), np.where(some, bounds.last, 0)
    fell_between = np.where(some, values[first], bounds.right) < bounds.left
    growth = growth + np.where(fell_between, bounds.left, 0.0)
    growth = with_resets(growth, values, falls, first, last, some)
    leaving = some & (bounds.right < values[last])
    return growth + np.where(leaving, values[last], 0.0)


def bounded_samples(windows: Windows, *, smoothed: bool) -> SeriesColumns:
    """The samples of the only step: one at each bound, and those between."""
    columns = windows.columns
    if not columns.sample_count:
        return columns
    bounds = _bounds(windows, smoothed=smoothed, counter=False)
    times: list[Index] = []
    values: list[Cells] = []
    for row in range(len(columns.labels)):
        shown = bounds.present[row, 0]
        inner = slice(bounds.first[row, 0], max(bounds.last[row, 0] + 1, bounds.first[row, 0]))
        edges = np.array([windows.starts_ms[0], windows.ends_ms[0]])
        times.append(np.concatenate([edges[:1], columns.timestamps[inner], edges[1:]]) if shown else edges[:0])
        ends = np.array([bounds.left[row, 0], bounds.right[row, 0]])
        values.append(np.concatenate([ends[:1], columns.values[inner], ends[1:]]) if shown else ends[:0])
    offsets = np.concatenate([[0], np.cumsum([len(own) for own in times])]).astype(np.int64)
    return SeriesColumns(columns.labels, offsets, np.concatenate(times), np.concatenate(values))
