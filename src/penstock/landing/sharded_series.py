"""The time series of all shards as one reader: each tenant's questions go to the shards that it has or has had."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Final, Self

from penstock.buffer import RoutingWatch
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound
from penstock.objects import ObjectStore
from penstock.timeseries import (
    DEFAULT_TENANT,
    Matcher,
    MergedReads,
    MetricMetadata,
    SeriesColumns,
    SeriesReads,
    TimeSeriesConfig,
    TimeSeriesReader,
)
from penstock.timeseries.promql import MatrixResult, QueryResult

__all__ = ["ShardedSeries"]

_METRICS: Final = "metrics"
# All times that a sample can have.
_ALL_MS: Final = 1 << 53


class ShardedSeries:
    """`open_shard` makes the reader of a shard when it is first asked; `NotFound` while it has nothing yet.

    `store` holds the routing below `base`; it is closed with the readers. Belongs to one event loop.
    """

    def __init__(
        self,
        store: ObjectStore,
        open_shard: Callable[[int], Awaitable[TimeSeriesReader]],
        config: TimeSeriesConfig | None = None,
        *,
        base: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store, self._open_shard, self._config, self._clock = store, open_shard, config, clock
        self._watch = RoutingWatch(store, base, clock=clock)
        self._readers: dict[int, TimeSeriesReader] = {}
        self._opening = asyncio.Lock()

    async def reader(self, tenant: str = DEFAULT_TENANT) -> SeriesReads | MergedReads:
        """Over the shards of a tenant; `NotFound` while none of them has anything."""
        shards = (await self._watch.current()).shards_of(tenant, _METRICS)
        found, missing = [], None
        for shard in shards:
            try:
                found.append(await self._opened(shard))
            except NotFound as error:
                missing = missing or error
        if missing is not None and not found:
            raise missing
        return found[0] if len(found) == 1 else MergedReads(found, self._config, clock=self._clock)

    async def _opened(self, shard: int) -> TimeSeriesReader:
        async with self._opening:
            if shard not in self._readers:
                self._readers[shard] = await self._open_shard(shard)
            return self._readers[shard]

    async def close(self) -> None:
        try:
            for reader in self._readers.values():
                await reader.close()
        finally:
            await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Questions ------------------------------------------------------------------------------------

    async def select_columns(
        self, matchers: Iterable[Matcher], start_ms: int = -_ALL_MS, end_ms: int = _ALL_MS, *, tenant: str
    ) -> SeriesColumns:
        return await (await self.reader(tenant)).select_columns(matchers, start_ms, end_ms, tenant=tenant)

    async def series(
        self, matchers: Iterable[Matcher] = (), start_ms: int = -_ALL_MS, end_ms: int = _ALL_MS, *, tenant: str
    ) -> list[dict[str, str]]:
        return await (await self.reader(tenant)).series(matchers, start_ms, end_ms, tenant=tenant)

    async def label_names(
        self, matchers: Iterable[Matcher] = (), start_ms: int = -_ALL_MS, end_ms: int = _ALL_MS, *, tenant: str
    ) -> list[str]:
        return await (await self.reader(tenant)).label_names(matchers, start_ms, end_ms, tenant=tenant)

    async def label_values(
        self,
        name: str,
        matchers: Iterable[Matcher] = (),
        start_ms: int = -_ALL_MS,
        end_ms: int = _ALL_MS,
        *,
        tenant: str,
    ) -> list[str]:
        return await (await self.reader(tenant)).label_values(name, matchers, start_ms, end_ms, tenant=tenant)

    async def metadata(self, metric: str | None = None, *, tenant: str) -> dict[str, MetricMetadata]:
        return await (await self.reader(tenant)).metadata(metric, tenant=tenant)

    async def query(self, expression: str, time_ms: int, *, tenant: str) -> QueryResult:
        return await (await self.reader(tenant)).query(expression, time_ms, tenant=tenant)

    async def query_range(
        self, expression: str, start_ms: int, end_ms: int, step_ms: int, *, tenant: str
    ) -> MatrixResult:
        return await (await self.reader(tenant)).query_range(expression, start_ms, end_ms, step_ms, tenant=tenant)
