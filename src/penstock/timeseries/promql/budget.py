"""What a query has used so far of what it may."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.errors import AtCapacity, DeadlineExceeded
from penstock.timeseries.promql.config import EngineConfig
from penstock.timeseries.promql.statistics import SampleCounts

__all__ = ["QueryBudget"]


class QueryBudget:
    """Refuses before something large is made, not after."""

    def __init__(self, config: EngineConfig, clock: Clock, counts: SampleCounts) -> None:
        self._config = config
        self._counts = counts
        self._clock = clock
        self._ends = clock.monotonic() + config.timeout_seconds

    def check_time(self) -> None:
        if self._clock.monotonic() > self._ends:
            raise DeadlineExceeded(
                "the query took too long",
                f"it was given {self._config.timeout_seconds:g} s",
                "narrow it, or raise EngineConfig.timeout_seconds",
            )

    def check_steps(self, steps: int) -> None:
        _refuse("steps", steps, self._config.steps_max, "use a larger step or a shorter range")

    def check_series(self, series: int) -> None:
        _refuse("series", series, self._config.series_max, "select fewer")

    def check_cells(self, series: int, steps: int) -> None:
        """Of a matrix, or samples that were loaded."""
        self.check_time()
        self.check_series(series)
        _refuse("samples", max(series, 1) * steps, self._config.samples_max, "select fewer series, or a shorter range")
        self._counts.hold(series * steps)


def _refuse(what: str, found: int, most: int, remedy: str) -> None:
    if found > most:
        raise AtCapacity(
            f"the query has too many {what}",
            f"it needs {found}, and may use {most}",
            f"{remedy}, or raise EngineConfig.{what}_max",
        )
