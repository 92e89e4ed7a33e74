"""Small stores in memory, for the tests of what a store promises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.coordinator import CoordinatorConfig
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import ALL_LISTS, Collection, VectorConfig, VectorStore

# Flushes only when it is asked to, and has lists that a few rows fill. One thread: on a busy machine two wait for each
# other far longer than so few rows take.
QUIET = CoordinatorConfig(flush_interval_seconds=900)
SMALL = VectorConfig(list_rows=8, threads=1, coordinator=QUIET)


async def opened(volume: MemoryVolume, config: VectorConfig = SMALL, **options: Any) -> VectorStore:
    return await VectorStore.over(MemoryKeyValue(volume), config, **options)


async def collection_of(store: VectorStore, **options: Any) -> Collection:
    return await store.collection("tenant", "index", "model", **{"dimensions": 2, "metric": "l2"} | options)  # type: ignore[arg-type]


def with_store(work: Callable[[VectorStore, Collection], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with await opened(MemoryVolume(), **options) as store:
            await work(store, await collection_of(store))

    asyncio.run(run())


async def found(collection: Collection, query: Any = (0.0, 0.0), k: int = 100, **options: Any) -> list[str]:
    return (await collection.search([query], k, probes=ALL_LISTS, **options))["id"].to_pylist()
