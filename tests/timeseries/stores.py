"""Small stores in memory, and batches, for the tests of what a store promises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from penstock.coordinator import CoordinatorConfig
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.timeseries import Matcher, MatchKind, SampleBatch, SeriesReads, TimeSeriesConfig, TimeSeriesStore

HOUR = 3_600_000
# Flushes only when it is asked to, and tidies only when it is asked to.
QUIET = CoordinatorConfig(flush_interval_seconds=900)
SMALL = TimeSeriesConfig(coordinator=QUIET, upkeep_pause_seconds=float("inf"))

Rows = dict[tuple[tuple[str, str], ...], list[tuple[int, float]]]


async def opened(volume: MemoryVolume, config: TimeSeriesConfig = SMALL, **options: Any) -> TimeSeriesStore:
    return await TimeSeriesStore.over(MemoryKeyValue(volume), config, **options)


def with_store(work: Callable[[TimeSeriesStore], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with await opened(MemoryVolume(), **options) as store:
            await work(store)

    asyncio.run(run())


def series(name: str = "up", **labels: str) -> dict[str, str]:
    return {"__name__": name, **labels}


def batch(*rows: tuple[Mapping[str, str], Sequence[int], Sequence[float]]) -> SampleBatch:
    return SampleBatch.of_series(rows)


def one(value: float, time_ms: int = 0, **labels: str) -> SampleBatch:
    """A sample of a series of `up`."""
    return batch((series(**labels), [time_ms], [value]))


def matching(name: str, kind: str, value: str) -> Matcher:
    """A matcher as PromQL writes it."""
    return Matcher(name, MatchKind(kind), value)


async def everything(store: SeriesReads, *matchers: Matcher, **options: Any) -> Rows:
    """All samples by their labels."""
    table = await store.select(matchers, **options)
    return {
        tuple(row["labels"]): list(zip(row["timestamps_ms"], row["values"], strict=True)) for row in table.to_pylist()
    }
