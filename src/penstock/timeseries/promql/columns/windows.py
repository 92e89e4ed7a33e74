"""Range vectors over all steps of a query: one flat column of samples, and for each series and step its window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame
from penstock.timeseries.promql.columns.ragged import blocks
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.promql.source import SeriesColumns, Times

__all__ = ["Windows", "last_before", "windows_of"]

# Combined keys of series and time must fit into 63 bits.
_KEY_MAX = 2**62
# Windows that are computed at once: a dozen arrays of so many numbers stay within a processor's cache.
_CELLS_AT_ONCE = 1 << 15


@dataclasses.dataclass(frozen=True)
class Windows:
    """`low` and `high` (series × steps) bound the samples of each window in the columns."""

    columns: SeriesColumns
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]
    # The bounds in time of each step's window: open, and closed.
    starts_ms: Times
    ends_ms: Times
    unnamed: Presence

    @property
    def labels(self) -> list[Labels]:
        return self.columns.labels

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        return self.high - self.low

    def frame(self, values: Cells, present: Presence, *, keeps_name: bool = False) -> VectorFrame:
        """A vector with one value a window."""
        unnamed = self.unnamed if keeps_name else np.ones(len(self.labels), np.bool_)
        return VectorFrame(self.labels, np.where(present, values, 0.0), present, unnamed)

    def bands(self) -> Iterator[tuple[slice, Windows]]:
        """A few series at a time, and which ones they are."""
        steps = self.low.shape[1]
        height = max(1, _CELLS_AT_ONCE // max(1, steps))
        for first in range(0, len(self.low), height):
            rows = slice(first, first + height)
            yield rows, dataclasses.replace(self, low=self.low[rows], high=self.high[rows])

    def reduce(self, function: Callable[[Cells, Presence, Cells], Cells], count_min: int = 1) -> VectorFrame:
        """Apply a function of (samples, which count, how many) to all windows of at least so many samples."""
        low, counts = self.low.ravel(), self.counts.ravel()
        wanted = np.where(counts >= count_min, counts, 0)
        out = np.zeros(len(low))
        for runs, positions, shown in blocks(low, wanted):
            samples = np.where(shown, self.columns.values[positions], 0.0)
            out[runs] = function(samples, shown, counts[runs].astype(np.float64))
        return self.frame(out.reshape(self.low.shape), self.counts >= count_min)


def last_before(columns: SeriesColumns, times: Times) -> npt.NDArray[np.int64]:
    """For each series and time, the position behind the last sample at or before it (series × times)."""
    series = len(columns.labels)
    if columns.sample_count == 0 or len(times) == 0:
        return np.zeros((series, len(times)), dtype=np.int64)
    shared = columns.shared_times
    if shared is not None:
        return columns.offsets[:-1, None] + np.searchsorted(shared, times, "right")[None, :]
    base = int(min(times.min(), columns.timestamps.min())) - 1
    span = int(max(times.max(), columns.timestamps.max())) - base + 2
    if series * span >= _KEY_MAX:
        return _last_before_slowly(columns, times)
    owner = np.repeat(np.arange(series), np.diff(columns.offsets))
    keys = owner * span + (columns.timestamps - base)
    wanted = np.arange(series)[:, None] * span + (times - base)[None, :]
    return np.searchsorted(keys, wanted.ravel(), "right").reshape(wanted.shape).astype(np.int64)


def _last_before_slowly(columns: SeriesColumns, times: Times) -> npt.NDArray[np.int64]:
    """Series by series, where a combined key would not fit."""
    bounds = zip(columns.offsets[:-1], columns.offsets[1:], strict=True)
    rows = [low + np.searchsorted(columns.timestamps[low:high], times, "right") for low, high in bounds]
    return np.array(rows, dtype=np.int64)


def windows_of(
    columns: SeriesColumns,
    ends_ms: Times,
    range_ms: int,
    unnamed: Presence,
    steps: int,
    *,
    before_ms: int = 0,
    behind_ms: int = 0,
) -> Windows:
    """Windows that are open on the left and closed on the right. One end stands for all steps (`@`).

    Windows may reach further than their bounds: by so much before their start and behind their end.
    """
    starts_ms = ends_ms - range_ms
    low, high = last_before(columns, starts_ms - before_ms), last_before(columns, ends_ms + behind_ms)
    if len(ends_ms) != steps:
        low, high = (np.broadcast_to(edge, (edge.shape[0], steps)) for edge in (low, high))
        starts_ms, ends_ms = np.broadcast_to(starts_ms, steps), np.broadcast_to(ends_ms, steps)
    return Windows(columns, low, high, starts_ms, ends_ms, unnamed)
