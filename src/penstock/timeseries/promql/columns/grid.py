"""The steps of a query or subquery."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from penstock.timeseries.promql.source import Times

__all__ = ["Grid", "subquery_grid"]


@dataclasses.dataclass(frozen=True)
class Grid:
    """Times from start to end, a step apart; start and end are those of one step if there is only one."""

    start_ms: int
    end_ms: int
    step_ms: int

    @property
    def steps(self) -> int:
        return max(0, (self.end_ms - self.start_ms) // self.step_ms + 1)

    @functools.cached_property
    def times_ms(self) -> Times:
        return self.start_ms + np.arange(self.steps, dtype=np.int64) * self.step_ms


def subquery_grid(first_end_ms: int, last_end_ms: int, range_ms: int, step_ms: int) -> Grid:
    """Steps that any window ending between these times can hold: multiples of the step, whoever asks."""
    open_start = first_end_ms - range_ms
    return Grid((open_start // step_ms + 1) * step_ms, last_end_ms, step_ms)
