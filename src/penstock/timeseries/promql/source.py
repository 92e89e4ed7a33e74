"""The port through which the engine reads samples, and a source in memory.

A source answers with columns: the samples of all series one after the other, and where each series begins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput
from penstock.timeseries.promql.labels import Labels, labels_from, text, value_of
from penstock.timeseries.promql.matchers import Matcher

__all__ = ["STALE_BITS", "STALE_NAN", "MemorySource", "SeriesColumns", "SeriesSource", "is_stale"]

Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

# The NaN that says a series ended here; its bits are kept wherever samples go.
STALE_BITS = 0x7FF0000000000002
STALE_NAN = float(np.uint64(STALE_BITS).view(np.float64))


def is_stale(values: Values) -> npt.NDArray[np.bool_]:
    """Which values are staleness markers; ordinary NaNs are not."""
    found: npt.NDArray[np.bool_] = values.view(np.uint64) == np.uint64(STALE_BITS)
    return found


@dataclasses.dataclass(frozen=True)
class SeriesColumns:
    """Samples of many series: those of series i lie from `offsets[i]` to `offsets[i + 1]`, by rising time."""

    labels: list[Labels]
    offsets: Times
    timestamps: Times
    values: Values

    @property
    def sample_count(self) -> int:
        return len(self.timestamps)

    @cached_property
    def shared_times(self) -> Times | None:
        """The times of every series, if all of them were sampled together: what is found for one holds for all."""
        if not self.sample_count:
            return None
        per_series, rest = divmod(self.sample_count, len(self.labels))
        first = self.timestamps[:per_series]
        if rest or (self.offsets[1:] - self.offsets[:-1] != per_series).any():
            return None
        return first if (self.timestamps.reshape(-1, per_series) == first).all() else None


class SeriesSource(Protocol):
    """What the engine asks of a store of samples."""

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
        """Series that satisfy all matchers, with their samples from start to end, both included."""
        ...


class MemorySource:
    """Samples in memory, as (labels, timestamps in ms, values) of each series."""

    def __init__(self, series: Iterable[tuple[Mapping[str, str], Any, Any]]) -> None:
        rows: dict[Labels, tuple[Times, Values]] = {}
        for labels, timestamps, values in series:
            key = labels_from(labels)
            if key in rows:
                raise InvalidInput(f"the series {text(key)} is given twice", "a series is named by its labels")
            rows[key] = _sorted_samples(key, timestamps, values)
        self._rows = dict(sorted(rows.items()))

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
        tests = [(matcher.name, matcher.predicate()) for matcher in matchers]
        chosen: list[Labels] = []
        times: list[Times] = []
        values: list[Values] = []
        for labels, (own_times, own_values) in self._rows.items():
            if not all(test(value_of(labels, name)) for name, test in tests):
                continue
            low, high = own_times.searchsorted(start_ms, "left"), own_times.searchsorted(end_ms, "right")
            if low < high:
                chosen.append(labels)
                times.append(own_times[low:high])
                values.append(own_values[low:high])
        lengths = [len(one) for one in times]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return SeriesColumns(
            chosen,
            offsets,
            np.concatenate(times) if times else np.empty(0, np.int64),
            np.concatenate(values) if values else np.empty(0, np.float64),
        )


def _sorted_samples(labels: Labels, timestamps: Any, values: Any) -> tuple[Times, Values]:
    """By rising time; of several samples at one time the last one given counts."""
    times = np.asarray(timestamps, dtype=np.int64)
    numbers = np.asarray(values, dtype=np.float64)
    if times.shape != numbers.shape or times.ndim != 1:
        raise InvalidInput(
            f"the series {text(labels)} has {times.size} timestamps and {numbers.size} values", "each sample has both"
        )
    order = np.argsort(times, kind="stable")
    times, numbers = times[order], numbers[order]
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.empty(0, np.bool_)
    return times[last], numbers[last]
