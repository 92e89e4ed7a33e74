"""What the time-series benchmark writes and asks: three kinds of samples, each the same for everybody."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.timeseries import SampleBatch, SeriesTable

__all__ = ["QUERIES", "SIZES", "SPANS", "Work", "exporters", "histograms", "scraped", "walks"]

METRICS = 10
_DAY_MS = 86_400_000
# Expressions over a selector, and how a table of results names them.
QUERIES = (
    ("raw", "{selector}"),
    ("rate", "rate({selector}[5m])"),
    ("sum by", "sum by (job) (rate({selector}[5m]))"),
    ("quantile", "histogram_quantile(0.9, sum by (le, job) (rate({selector}[5m])))"),
)
# Selectors of `histograms`, by the hundredth of the series that they select.
SIZES = ((100, 'metric_0{{zone="z3"}}'), (10, "metric_0"), (1, '{{__name__=~"metric_.*"}}'))
# Hours and the step of a query, in seconds.
SPANS = ((1, 60), (24, 300))


@dataclass(frozen=True)
class Work:
    """Series by their labels, the times that all of them share, and values by series and time."""

    labels: list[dict[str, str]]
    times: Any
    values: Any

    @property
    def samples(self) -> int:
        return int(self.values.size)

    def batches(self, size: int) -> list[SampleBatch]:
        """Scrapes of all series, so many samples at a time."""
        table = SeriesTable.of(self.labels)
        count, scrapes = len(self.labels), max(1, size // len(self.labels))
        made = []
        for first in range(0, len(self.times), scrapes):
            times = self.times[first : first + scrapes]
            rows = np.tile(np.arange(count, dtype=np.uint32), len(times))
            values = self.values[:, first : first + len(times)].T.ravel()
            made.append(SampleBatch.of(table, rows, np.repeat(times, count), values))
        return made


def walks(series: int, steps: int) -> Work:
    """Half counters that grow by 0 to 99, half gauges that wander in steps of 0.01; a sample every 15 s.

    Nothing packs these below 0.896 bytes a sample: that is the entropy of the steps.
    """
    entropy = np.random.default_rng(7)
    counters = np.cumsum(entropy.integers(0, 100, (series, steps)), axis=1).astype(np.float64)
    gauges = np.round(50 + np.cumsum(entropy.normal(0, 0.5, (series, steps)), axis=1), 2)
    values = np.where((np.arange(series) % 2 == 0)[:, None], counters, gauges)
    return Work(_labels(series), _times(steps, 15_000), values)


def exporters(series: int, steps: int) -> Work:
    """What exporters of machines and services tell: ten kinds of series in equal parts; a sample every 15 s."""
    entropy = np.random.default_rng(7)
    count = series // METRICS
    shape = (count, steps)

    def each(low: float, spread: float) -> Any:
        return entropy.lognormal(low, spread, (count, 1))

    kinds = [
        np.repeat(entropy.integers(0, 10**9, (count, 1)), steps, 1),  # sizes and limits: constant
        np.zeros(shape),  # counters of errors that do not happen
        np.cumsum(entropy.random(shape) < 0.02, axis=1),  # counters of what happens rarely
        np.cumsum(entropy.poisson(each(2, 2), shape), axis=1),  # requests
        np.cumsum(entropy.poisson(each(7, 2), shape), axis=1),  # bytes
        4096 * np.rint(np.abs(each(11, 1) + np.cumsum(entropy.normal(0, 20, shape), axis=1))),  # memory
        np.round(np.cumsum(entropy.random(shape) * 15, axis=1), 2),  # seconds of processors, printed with two places
        np.round(entropy.normal(40, 3, shape), 1),  # temperatures
        entropy.integers(0, 20, shape),  # queues and threads
        np.cumsum(entropy.exponential(0.01, shape) * entropy.poisson(30, shape), axis=1),  # sums of durations
    ]
    values = np.stack([kind.astype(np.float64) for kind in kinds], axis=1).reshape(METRICS * count, steps)
    return Work(_labels(METRICS * count), _times(steps, 15_000), values)


def scraped(folder: Path) -> Work:
    """What an exporter answered, a file a scrape in the order of their names, as if it was asked every 15 s.

    Series that are not in every file are left out.
    """
    answers = [_answer(path.read_text()) for path in sorted(folder.iterdir())]
    known = [series for series in answers[0] if all(series in answer for answer in answers)]
    labels = []
    for series in known:
        name, _, rest = series.partition("{")
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', rest)
        labels.append({"__name__": name, "instance": "127.0.0.1:9100", "job": "node", **dict(pairs)})
    values = np.array([[answer[series] for answer in answers] for series in known])
    return Work(labels, _times(len(answers), 15_000), values)


def _answer(text: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {series: float(value) for series, value in lines}


def histograms(series: int, hours: int) -> Work:
    """Ten histograms of ten buckets, of a tenth of a hundredth of the series each; a sample every 90 s."""
    entropy = np.random.default_rng(7)
    steps = hours * 40
    bounds = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "5", "+Inf"]
    rows = [
        {
            "__name__": f"metric_{metric}",
            "instance": f"host-{host:05d}:9100",
            "job": f"job-{host % 7}",
            "le": bound,
            "path": f"/{metric}",
            "zone": f"z{host % 10}",
        }
        for metric in range(METRICS)
        for host in range(series // 100)
        for bound in bounds
    ]
    grown = entropy.poisson(3, (len(rows) // 10, 10, steps))
    values = np.cumsum(np.cumsum(grown, axis=1), axis=2).reshape(len(rows), steps).astype(np.float64)
    return Work(rows, _times(steps, 90_000), values)


def _labels(series: int) -> list[dict[str, str]]:
    return [
        {
            "__name__": f"metric_{number % METRICS}",
            "job": f"job-{number % 7}",
            "instance": f"host-{number // METRICS:05d}:9100",
            "zone": f"z{number // METRICS % 10}",
        }
        for number in range(series)
    ]


def _times(steps: int, step_ms: int) -> Any:
    # Old enough to lie in the past wherever the clock stands, and young enough for Prometheus to take it.
    end = int(time.time()) // 60 * 60_000 - 60_000
    midnight = end // _DAY_MS * _DAY_MS
    if end - step_ms * steps < midnight and step_ms * steps < _DAY_MS:
        # All of it on one day, whatever the time is: stores that keep an index a day would otherwise keep two.
        end = midnight - 60_000
    return end - step_ms * np.arange(steps)[::-1]
