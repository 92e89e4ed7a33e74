"""What a query read: samples at each of its steps, as Prometheus counts them, and the most that it held in one matrix.

A sample counts at every step that looks at it: once for an instant selector, and for a range with all of its window.
Samples below a subquery do not count; the values of the subquery do, as samples of its windows.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.timeseries.promql.columns.grid import Grid

__all__ = ["QueryStats", "SampleCounts"]


@dataclasses.dataclass(frozen=True)
class QueryStats:
    """Counts of a query that has ended, and the time that its evaluation took, without the time to load samples."""

    grid: Grid
    samples_per_step: npt.NDArray[np.int64]
    peak_samples: int
    evaluation_seconds: float

    def json_samples(self, *, per_step: bool) -> dict[str, Any]:
        """The `samples` of Prometheus' statistics."""
        found: dict[str, Any] = {}
        if per_step:
            times = self.grid.times_ms.tolist()
            counts = self.samples_per_step.tolist()
            found["totalQueryableSamplesPerStep"] = [
                [time / 1000, count] for time, count in zip(times, counts, strict=True)
            ]
        found["totalQueryableSamples"] = int(self.samples_per_step.sum())
        found["peakSamples"] = self.peak_samples
        return found


class SampleCounts:
    """Counts of a query while it is evaluated."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        # Made when the first sample counts: the steps have been checked against their limit by then.
        self._per_step: npt.NDArray[np.int64] | None = None
        self._peak = 0

    def add(self, cells: npt.NDArray[Any]) -> None:
        """Samples by series and step; what has one step is the same at all of them."""
        if self._per_step is None:
            self._per_step = np.zeros(self._grid.steps, np.int64)
        self._per_step += cells.sum(axis=0, dtype=np.int64)

    def hold(self, samples: int) -> None:
        self._peak = max(self._peak, samples)

    def collected(self, seconds: float) -> QueryStats:
        counts = np.zeros(self._grid.steps, np.int64) if self._per_step is None else self._per_step
        return QueryStats(self._grid, counts, self._peak, seconds)
