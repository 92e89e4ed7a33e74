"""The store as a source of the PromQL engine: what an expression reads is fetched before it is evaluated in a thread.

All selections of a query come from one moment. A selection that the engine did not announce is fetched through the
loop while the thread waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from penstock.clock import Clock
from penstock.timeseries.promql import Engine, EngineConfig, Matcher, SeriesColumns

__all__ = ["PrefetchedSource", "QueryTimes", "evaluate"]

R = TypeVar("R")
Fetch = Callable[[Sequence[Matcher], int, int], Awaitable[SeriesColumns]]
# The expression of a query, its start, its end (None for an instant query) and its step, in milliseconds.
QueryTimes: TypeAlias = tuple[str, int, int | None, int]


class PrefetchedSource:
    """Columns that were fetched, by what was asked for."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._columns: dict[tuple[tuple[Matcher, ...], int, int], SeriesColumns] = {}
        self._loop = asyncio.get_running_loop()

    async def fetch(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
        key = (tuple(matchers), start_ms, end_ms)
        if key not in self._columns:
            self._columns[key] = await self._fetch(matchers, start_ms, end_ms)
        return self._columns[key]

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesColumns:
        """Called from the thread that evaluates."""
        found = self._columns.get((tuple(matchers), start_ms, end_ms))
        if found is not None:
            return found
        return asyncio.run_coroutine_threadsafe(self.fetch(matchers, start_ms, end_ms), self._loop).result()


class _QueryClock:
    """The clock of one query: it runs out when the query is cancelled, and the engine stops at its next look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.cancelled = False

    def monotonic(self) -> float:
        return float("inf") if self.cancelled else self._clock.monotonic()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


async def evaluate(
    fetch: Fetch,
    config: EngineConfig,
    clock: Clock,
    work: Callable[[Engine], R],
    times: QueryTimes,
) -> R:
    """Fetch what an expression reads, then do `work` with the engine beside the event loop."""
    source = PrefetchedSource(fetch)
    own = _QueryClock(clock)
    engine = Engine(source, config, clock=own)
    for selection in engine.selections(*times):
        await source.fetch(selection.matchers, selection.start_ms, selection.end_ms)
    try:
        # However few samples there are: a subquery may have millions of steps.
        return await asyncio.to_thread(work, engine)
    except asyncio.CancelledError:
        own.cancelled = True
        raise
