"""Totals and rates of what the gateway and its jobs count, over the last minutes.

A counter that went back belongs to a process that was started again: what it has counted since is what counts.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.cli.settings.job_figures import Readings
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.observability import Metric, names

__all__ = ["FigureHistory", "Sources"]

# By process: its figures as they are now.
Sources = Callable[[], Mapping[str, Readings]]

SAMPLE_SECONDS: Final = 2.0
# Five minutes.
_SAMPLES_MAX: Final = 150
# Of a rate: long enough to even out jobs that work in rounds of some seconds.
_RATE_SECONDS: Final = 30.0
_CURVE_POINTS: Final = 40
_NO_READINGS: Final[Readings] = {}
# Of older samples only what has a rate is kept: everything would be some ten thousand figures each.
_RATED: Final = frozenset(
    {
        names.COMPACTION_ROWS.name,
        names.COORDINATOR_WRITES.name,
        names.GATEWAY_REQUESTS.name,
        names.GATEWAY_ROWS.name,
        names.INDEXING_CHUNKS.name,
        names.LANDING_ROWS.name,
        names.OBJECTS_REQUESTS.name,
        names.RELAY_ROWS.name,
        names.SQL_QUERIES.name,
        f"{names.TIMESERIES_QUERY_SECONDS.name}_count",
    }
)


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    by_process: Mapping[str, Readings]


class FigureHistory:
    """Samples of all processes, oldest first."""

    def __init__(self, sources: Sources, clock: Clock = SYSTEM_CLOCK) -> None:
        self._sources, self._clock = sources, clock
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES_MAX)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.sample()
            await self._clock.sleep(SAMPLE_SECONDS)

    def sample(self) -> None:
        if self._samples:
            self._samples.append(_rated(self._samples.pop()))
        self._samples.append(_Sample(self._clock.monotonic(), dict(self._sources())))

    @property
    def processes(self) -> list[str]:
        return list(self._samples[-1].by_process) if self._samples else []

    def total(self, metric: Metric, process: str | None = None, **labels: str) -> float:
        """The sum over all processes, or one, and over all series with these labels."""
        return sum(_matching(self._samples[-1], metric.name, process, labels).values()) if self._samples else 0.0

    def by_label(self, metric: Metric, label: str, process: str | None = None, **labels: str) -> dict[str, float]:
        """Sums by the value of a label, in the order of the values."""
        found: dict[str, float] = {}
        if self._samples:
            for (_, (_, pairs)), value in _matching(self._samples[-1], metric.name, process, labels).items():
                key = dict(pairs).get(label, "")
                found[key] = found.get(key, 0.0) + value
        return dict(sorted(found.items()))

    def rate(self, metric: Metric, process: str | None = None, **labels: str) -> float:
        """Per second, over the last half minute; zero before there are two samples."""
        assert metric.name in _RATED, f"{metric.name} is not kept long enough to have a rate"
        if len(self._samples) < 2:
            return 0.0
        last = self._samples[-1]
        first = next(one for one in self._samples if one is last or last.at - one.at <= _RATE_SECONDS)
        return self._increase(first, last, metric.name, process, labels) / max(last.at - first.at, 1e-9)

    def curve(self, metric: Metric, **labels: str) -> list[float]:
        """Rates between samples, oldest first."""
        samples = list(self._samples)[-_CURVE_POINTS - 1 :]
        return [
            self._increase(before, after, metric.name, None, labels) / max(after.at - before.at, 1e-9)
            for before, after in itertools.pairwise(samples)
        ]

    @staticmethod
    def _increase(first: _Sample, last: _Sample, name: str, process: str | None, labels: Mapping[str, str]) -> float:
        before = _matching(first, name, process, labels)
        increase = 0.0
        for series, value in _matching(last, name, process, labels).items():
            earlier = before.get(series, 0.0)
            increase += value - earlier if value >= earlier else value
        return increase


def _rated(sample: _Sample) -> _Sample:
    kept = {
        process: {series: value for series, value in readings.items() if series[0] in _RATED}
        for process, readings in sample.by_process.items()
    }
    return _Sample(sample.at, kept)


def _matching(
    sample: _Sample, name: str, process: str | None, labels: Mapping[str, str]
) -> dict[tuple[str, tuple[str, tuple[tuple[str, str], ...]]], float]:
    wanted = set(labels.items())
    chosen = sample.by_process if process is None else {process: sample.by_process.get(process, _NO_READINGS)}
    return {
        (source, series): value
        for source, readings in chosen.items()
        for series, value in readings.items()
        if series[0] == name and wanted <= set(series[1])
    }
