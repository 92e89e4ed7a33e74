"""Functions of how fast series change: rate, increase, delta, irate, idelta, changes, resets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame
from penstock.timeseries.promql.columns.windows import Windows
from penstock.timeseries.promql.source import SeriesColumns

__all__ = ["changes", "extrapolated", "falls_of", "last_two", "resets", "with_resets"]

# Samples up to this much further apart than average count as evenly spaced.
_SPACING_TOLERANCE = 1.1
_PAIR = 2
Index = npt.NDArray[np.int64]


def extrapolated(windows: Windows, *, counter: bool, per_second: bool) -> VectorFrame:
    """The growth within each window, extended to its bounds where the samples come near enough to them."""
    falls = falls_of(windows.columns) if counter else None
    values = np.zeros(windows.low.shape)
    present = np.zeros(windows.low.shape, np.bool_)
    for rows, band in windows.bands():
        present[rows] = shown = band.counts >= _PAIR
        np.copyto(values[rows], _extended_growth(band, shown, falls, per_second=per_second), where=shown)
    return VectorFrame(windows.labels, values, present, np.ones(len(windows.labels), np.bool_))


def _extended_growth(windows: Windows, present: Presence, falls: Index | None, *, per_second: bool) -> Cells:
    """Of windows that are not present it is any number. Only counters have falls."""
    first, last = _edges(windows, present)
    opening = _taken(windows, first)
    growth = _taken(windows, last) - opening
    if falls is not None and len(falls):
        growth = with_resets(growth, windows.columns.values, falls, first, last, present)
    # What the times of samples decide is the same for all series that were sampled together.
    rows = slice(None) if windows.columns.shared_times is None else slice(1)
    times = windows.columns.timestamps
    first_ms, last_ms = _gather(times, first[rows]), _gather(times, last[rows])
    to_start = (first_ms - windows.starts_ms[None, :]) / 1000
    to_end = (windows.ends_ms[None, :] - last_ms) / 1000
    sampled = np.where(present[rows], (last_ms - first_ms) / 1000, 1.0)
    spacing = sampled / np.maximum(windows.counts[rows] - 1, 1)
    threshold = spacing * _SPACING_TOLERANCE
    to_start = np.where(to_start >= threshold, spacing / 2, to_start)
    if falls is not None:
        to_start = _not_below_zero(opening, growth, sampled, to_start)
    to_end = np.where(to_end >= threshold, spacing / 2, to_end)
    factor = (sampled + to_start + to_end) / sampled
    if per_second:
        factor = factor / ((windows.ends_ms - windows.starts_ms) / 1000)[None, :]
    return growth * factor


def _not_below_zero(first: Cells, growth: Cells, sampled: Cells, to_start: Cells) -> Cells:
    """A counter began at zero at the earliest."""
    rising = (growth > 0) & (first >= 0)
    to_zero = np.where(rising, sampled * (first / np.where(rising, growth, 1.0)), to_start)
    return np.minimum(to_zero, to_start)


def last_two(windows: Windows, *, counter: bool, per_second: bool) -> VectorFrame:
    """The difference of the last two samples; a counter that fell counts from zero."""
    present = windows.counts >= _PAIR
    _, last = _edges(windows, present)
    before = np.maximum(last - 1, 0)
    newest, older = _taken(windows, last), _taken(windows, before)
    difference = newest - older
    if counter:
        difference = np.where(newest < older, newest, difference)
    if per_second:
        times = windows.columns.timestamps
        seconds = (_gather(times, last) - _gather(times, before)) / 1000
        difference = difference / np.where(present, seconds, 1.0)
    return windows.frame(difference, present)


def changes(windows: Windows) -> VectorFrame:
    """How often the value changed; NaN follows NaN without a change."""
    values = windows.columns.values
    differs = (values[1:] != values[:-1]) & ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
    return _counted(windows, differs)


def resets(windows: Windows) -> VectorFrame:
    """How often the value fell."""
    values = windows.columns.values
    return _counted(windows, values[1:] < values[:-1])


def _counted(windows: Windows, event: Presence) -> VectorFrame:
    """Events between neighbours, from their running number; pairs across series lie in no window."""
    running = np.concatenate([[0], np.cumsum(event), [0]])
    present = windows.counts >= 1
    first, last = _edges(windows, present)
    return windows.frame((running[last] - running[first]).astype(np.float64), present)


def falls_of(columns: SeriesColumns) -> Index:
    """The positions of samples that are less than the one before in their series."""
    fell = columns.values[1:] < columns.values[:-1]
    starts = columns.offsets[1:-1]
    fell[starts[(starts > 0) & (starts <= len(fell))] - 1] = False
    return np.flatnonzero(fell) + 1


def with_resets(growth: Cells, values: Cells, falls: Index, first: Index, last: Index, present: Presence) -> Cells:
    """Growth between two positions with what counters had reached before each fall between them.

    What was reached before the first fall is added alone: it makes up for a large value at the start, and what was
    reached after it must not be rounded away beside that.
    """
    low = np.searchsorted(falls, first, "right")
    high = np.searchsorted(falls, last, "right")
    some = present & (high > low)
    if not some.any():
        return growth
    reached = np.append(values[falls - 1], 0.0)
    growth = growth.copy()
    growth[some] += reached[low[some]]
    several = some & (high > low + 1)
    if several.any():
        bounds = np.stack([low[several] + 1, high[several]], axis=1).ravel()
        growth[several] += np.add.reduceat(reached, bounds)[::2]
    return growth


def _edges(windows: Windows, present: Presence) -> tuple[Index, Index]:
    """Positions of the first and last samples; zero where a window is too small."""
    return np.where(present, windows.low, 0), np.where(present, windows.high - 1, 0)


def _taken(windows: Windows, positions: Index) -> Cells:
    values = windows.columns.values
    return values[positions] if len(values) else np.zeros(positions.shape)


def _gather(times: Index, positions: Index) -> Index:
    return times[positions] if len(times) else np.zeros(positions.shape, np.int64)
