"""The series of one tenant in several stores, asked as if they were one: a series may have some samples in each.

Each store answers from a moment of its own. Where two have a sample of one series at one time, the later store of the
list counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.metric_metadata import MetricMetadata
from penstock.timeseries.operations import DEFAULT_TENANT
from penstock.timeseries.prefetched import QueryTimes, evaluate
from penstock.timeseries.promql import Engine, Matcher, SeriesColumns
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.promql.source import Times, Values
from penstock.timeseries.queries import PromqlReads
from penstock.timeseries.reads import SeriesReads
from penstock.timeseries.samples import TIMESTAMP_MS_MAX

__all__ = ["MergedReads", "merged_columns"]

T = TypeVar("T")


class MergedReads(PromqlReads):
    """Over readers that somebody else opens and closes, from the oldest to the newest."""

    def __init__(
        self, readers: Sequence[SeriesReads], config: TimeSeriesConfig | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._readers, self._config, self._clock = tuple(readers), config or TimeSeriesConfig(), clock

    async def select_columns(
        self,
        matchers: Iterable[Matcher],
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> SeriesColumns:
        asked = tuple(matchers)
        return merged_columns(
            await self._each(lambda reader: reader.select_columns(asked, start_ms, end_ms, tenant=tenant))
        )

    async def series(
        self,
        matchers: Iterable[Matcher] = (),
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> list[dict[str, str]]:
        asked = tuple(matchers)
        found = await self._each(lambda reader: reader.series(asked, start_ms, end_ms, tenant=tenant))
        known = {tuple(sorted(labels.items())): labels for some in found for labels in some}
        return [known[key] for key in sorted(known)]

    async def label_names(
        self,
        matchers: Iterable[Matcher] = (),
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> list[str]:
        asked = tuple(matchers)
        found = await self._each(lambda reader: reader.label_names(asked, start_ms, end_ms, tenant=tenant))
        return sorted({name for some in found for name in some})

    async def label_values(
        self,
        name: str,
        matchers: Iterable[Matcher] = (),
        start_ms: int = -TIMESTAMP_MS_MAX,
        end_ms: int = TIMESTAMP_MS_MAX,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> list[str]:
        asked = tuple(matchers)
        found = await self._each(lambda reader: reader.label_values(name, asked, start_ms, end_ms, tenant=tenant))
        return sorted({value for some in found for value in some})

    async def metadata(self, metric: str | None = None, *, tenant: str = DEFAULT_TENANT) -> dict[str, MetricMetadata]:
        found: dict[str, MetricMetadata] = {}
        for some in await self._each(lambda reader: reader.metadata(metric, tenant=tenant)):
            found |= some
        return {name: found[name] for name in sorted(found)}

    async def _evaluate(self, tenant: str, work: Callable[[Engine], T], times: QueryTimes) -> T:
        async def fetch(matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
            return await self.select_columns(matchers, start_ms, end_ms, tenant=tenant)

        return await evaluate(fetch, self._config.engine, self._clock, work, times)

    async def _each(self, work: Callable[[SeriesReads], Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*map(work, self._readers)))


def merged_columns(parts: Sequence[SeriesColumns]) -> SeriesColumns:
    """Series of all parts by their labels, samples by rising time."""
    parts = [part for part in parts if part.labels]
    if len(parts) == 1:
        return parts[0]
    pieces: dict[Labels, list[tuple[Times, Values]]] = {}
    for part in parts:
        for row, labels in enumerate(part.labels):
            cut = slice(int(part.offsets[row]), int(part.offsets[row + 1]))
            pieces.setdefault(labels, []).append((part.timestamps[cut], part.values[cut]))
    found = {labels: _joined(pieces[labels]) for labels in sorted(pieces)}
    lengths = [len(times) for times, _ in found.values()]
    return SeriesColumns(
        list(found),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([np.empty(0, np.int64), *(times for times, _ in found.values())]),
        np.concatenate([np.empty(0, np.float64), *(values for _, values in found.values())]),
    )


def _joined(pieces: Sequence[tuple[Times, Values]]) -> tuple[Times, Values]:
    if len(pieces) == 1:
        return pieces[0]
    times, values = (np.concatenate([piece[column] for piece in pieces]) for column in (0, 1))
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    is_last = np.append(times[1:] != times[:-1], True)
    return times[is_last], values[is_last]
