"""The steps of a query or subquery."""

from __future__ import annotations

import dataclasses
import functools
import operator

import numpy as np

from penstock.errors import InvalidInput
from penstock.timeseries.promql.source import Times

__all__ = ["Grid", "subquery_grid", "whole_ms"]


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


def whole_ms(what: str, value: int) -> int:
    """A time or a step as Python's integer: others round, or overflow, in the middle of a query."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise InvalidInput(
            f"the {what} {value!r:.40} is not a whole number", "it is a number of milliseconds"
        ) from error


def subquery_grid(first_end_ms: int, last_end_ms: int, range_ms: int, step_ms: int) -> Grid:
    """Steps that any window ending between these times can hold: multiples of the step, whoever asks."""
    open_start = first_end_ms - range_ms
    return Grid((open_start // step_ms + 1) * step_ms, last_end_ms, step_ms)
