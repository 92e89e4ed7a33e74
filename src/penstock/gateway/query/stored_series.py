"""The series of a time-series store as the Prometheus API asks for them. Before the first write there are none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.errors import NotFound
from penstock.landing import ShardedSeries
from penstock.timeseries import Engine, Matcher, MemorySource, TimeSeriesReader
from penstock.timeseries.promql import QueryResult

__all__ = ["StoredSeries"]

T = TypeVar("T")


class StoredSeries:
    """`open` makes the reader when it is first needed: before a job has run there is no store."""

    def __init__(self, open: Callable[[], Awaitable[TimeSeriesReader | ShardedSeries]]) -> None:
        self._open, self._opening = open, asyncio.Lock()
        self._reader: TimeSeriesReader | ShardedSeries | None = None

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()

    async def query(self, tenant: str, expression: str, time_ms: int) -> QueryResult:
        try:
            return await (await self._opened()).query(expression, time_ms, tenant=tenant)
        except NotFound:
            return _nothing().query(expression, time_ms)

    async def query_range(self, tenant: str, expression: str, start_ms: int, end_ms: int, step_ms: int) -> QueryResult:
        try:
            return await (await self._opened()).query_range(expression, start_ms, end_ms, step_ms, tenant=tenant)
        except NotFound:
            return _nothing().query_range(expression, start_ms, end_ms, step_ms)

    async def series(
        self, tenant: str, selectors: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int, limit: int
    ) -> Sequence[Mapping[str, str]]:
        """One more than `limit` at most, so that whoever asks can tell that there are more."""
        found = await self._each(
            selectors, lambda reader, matchers: reader.series(matchers, start_ms, end_ms, tenant=tenant)
        )
        known = {tuple(sorted(labels.items())): labels for some in found for labels in some}
        return [known[pairs] for pairs in sorted(known)[: limit + 1]]

    async def label_names(
        self, tenant: str, selectors: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int
    ) -> list[str]:
        found = await self._each(
            selectors or [()], lambda reader, matchers: reader.label_names(matchers, start_ms, end_ms, tenant=tenant)
        )
        return sorted({name for some in found for name in some})

    async def label_values(
        self, tenant: str, name: str, selectors: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int
    ) -> list[str]:
        found = await self._each(
            selectors or [()],
            lambda reader, matchers: reader.label_values(name, matchers, start_ms, end_ms, tenant=tenant),
        )
        return sorted({value for some in found for value in some})

    async def metadata(self, tenant: str, metric: str | None) -> Mapping[str, Sequence[Mapping[str, str]]]:
        found = await self._each([()], lambda reader, _: reader.metadata(metric, tenant=tenant))
        return {
            name: [{"type": one.type, "help": one.help, "unit": one.unit}]
            for some in found
            for name, one in some.items()
        }

    async def cardinality(self, tenant: str, rows: int) -> Mapping[str, Any]:
        """Counted over everything that is kept; as Prometheus words it."""
        found = await self._each([()], lambda reader, matchers: reader.series(matchers, tenant=tenant))
        series = [labels for some in found for labels in some]
        metrics = Counter(labels.get("__name__", "") for labels in series)
        pairs = Counter(pair for labels in series for pair in labels.items())
        values = Counter(name for name, _ in pairs)
        sizes: Counter[str] = Counter()
        for (name, value), count in pairs.items():
            sizes[name] += count * len(value.encode())
        named = Counter({f"{name}={value}": count for (name, value), count in pairs.items()})
        return {
            "headStats": {"numSeries": len(series), "numLabelPairs": len(pairs)},
            "seriesCountByMetricName": _top(metrics, rows),
            "labelValueCountByLabelName": _top(values, rows),
            "memoryInBytesByLabelName": _top(sizes, rows),
            "seriesCountByLabelValuePair": _top(named, rows),
        }

    async def _each(
        self,
        selectors: Sequence[Sequence[Matcher]],
        work: Callable[[TimeSeriesReader | ShardedSeries, Sequence[Matcher]], Awaitable[T]],
    ) -> list[T]:
        try:
            reader = await self._opened()
            return [await work(reader, matchers) for matchers in selectors]
        except NotFound:
            return []

    async def _opened(self) -> TimeSeriesReader | ShardedSeries:
        async with self._opening:
            if self._reader is None:
                self._reader = await self._open()
            return self._reader


def _nothing() -> Engine:
    return Engine(MemorySource([]))


def _top(counts: Counter[str], rows: int) -> list[dict[str, Any]]:
    return [{"name": name, "value": count} for name, count in counts.most_common(rows)]
