"""What every part of an evaluation shares."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy.typing as npt

from penstock.timeseries.promql.annotations import Notes
from penstock.timeseries.promql.budget import QueryBudget
from penstock.timeseries.promql.columns.grid import Grid
from penstock.timeseries.promql.config import EngineConfig
from penstock.timeseries.promql.source import SeriesSource
from penstock.timeseries.promql.statistics import SampleCounts
from penstock.timeseries.promql.syntax.duration_parser import resolve, to_ms
from penstock.timeseries.promql.syntax.tree import At, Duration, Modifiers

__all__ = ["EvaluationContext"]


@dataclasses.dataclass(frozen=True)
class EvaluationContext:
    """`query` are the steps that were asked for, `grid` those evaluated here: in a subquery they differ.

    `step_ms` is what `step()` means in a duration: the step of a range query, also of a single step; 0 at one time.
    """

    source: SeriesSource
    config: EngineConfig
    budget: QueryBudget
    notes: Notes
    query: Grid
    grid: Grid
    step_ms: int
    # None in a subquery, whose values count and not what they are made from.
    counts: SampleCounts | None

    def within(self, grid: Grid) -> EvaluationContext:
        return dataclasses.replace(self, grid=grid)

    def uncounted(self) -> EvaluationContext:
        return dataclasses.replace(self, counts=None)

    def count(self, cells: npt.NDArray[Any]) -> None:
        """Samples that are looked at, by series and step."""
        if self.counts is not None:
            self.counts.add(cells)

    def milliseconds(self, duration: Duration) -> int:
        range_ms = self.query.end_ms - self.query.start_ms
        return to_ms(resolve(duration, step_ms=self.step_ms, range_ms=range_ms))

    def at_ms(self, modifiers: Modifiers) -> int | None:
        """The fixed time of a selector, if it has one."""
        if modifiers.at is At.START:
            return self.query.start_ms
        return self.query.end_ms if modifiers.at is At.END else modifiers.at
