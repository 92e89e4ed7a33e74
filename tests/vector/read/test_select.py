"""Filters kept compared: once for each state and filter, never for another one, and within the cache's bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import QUIET

from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import ALL_LISTS, VectorConfig, VectorStore, attribute
from penstock.vector.filter import Filter, filter_key
from penstock.vector.read import select as select_module

Make = Callable[..., pa.Table]

CONFIG = VectorConfig(list_rows=16, threads=1, upkeep_pause_seconds=float("inf"), coordinator=QUIET)
VECTORS = np.random.default_rng(3).standard_normal((400, 4)).astype(np.float32)
RARE = attribute("n") < 20


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Comparisons that were really made."""
    made: list[Any] = []
    match = select_module.match_values  # type: ignore[attr-defined]
    monkeypatch.setattr(select_module, "match_values", lambda *asked: (made.append(asked), match(*asked))[1])
    return made


def with_rows(rows: Make, work: Callable[[VectorStore, Any], Any], config: VectorConfig = CONFIG) -> None:
    async def run() -> None:
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), config) as store:
            collection = await store.collection("t", "i", "m", dimensions=4, metric="cosine")
            await collection.upsert(rows([f"r{n}" for n in range(400)], VECTORS, n=list(range(400))))
            await store.flush()
            await work(store, collection)

    asyncio.run(run())


async def found(collection: Any, where: Filter, k: int = 100) -> set[str]:
    return set((await collection.search(VECTORS[0], k, filter=where))["id"].to_pylist())


def test_a_filter_is_compared_once_for_equal_searches_and_again_for_another_one(rows: Make, compared: Any) -> None:
    async def work(_: VectorStore, collection: Any) -> None:
        expected = {f"r{n}" for n in range(20)}
        assert await found(collection, RARE) == expected
        once = len(compared)
        assert once
        assert await found(collection, attribute("n") < 20) == expected
        assert len(compared) == once
        assert await found(collection, attribute("n") <= 20) == expected | {"r20"}
        assert len(compared) == 2 * once

    with_rows(rows, work)


def test_a_kept_filter_never_outlives_the_moment_it_was_compared_in(rows: Make) -> None:
    async def work(store: VectorStore, collection: Any) -> None:
        assert "r3" in await found(collection, RARE)
        await collection.upsert(rows(["r3", "r399"], VECTORS[[3, 399]], n=[300, 3]))
        await collection.delete(["r4"])
        await store.flush()
        assert await found(collection, RARE) == {f"r{n}" for n in range(20)} - {"r3", "r4"} | {"r399"}
        await store.compact()
        assert await found(collection, RARE) == {f"r{n}" for n in range(20)} - {"r3", "r4"} | {"r399"}

    with_rows(rows, work)


def test_what_is_kept_of_filters_counts_as_any_block_does(rows: Make) -> None:
    async def work(store: VectorStore, collection: Any) -> None:
        cache = store._snapshot().blocks.cache
        for bound in range(1, 200):
            assert len(await found(collection, attribute("n") < bound, k=400)) == bound
            assert cache.size_bytes <= 12_000
        assert cache.evictions > 0
        blocks = [entry.block for entry in cache._blocks.values() if entry.block is not None]
        assert sum(block.size_bytes for block in blocks) == cache.size_bytes

    with_rows(rows, work, VectorConfig(list_rows=16, threads=1, cache_bytes=12_000, coordinator=QUIET))


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_one_query_and_many_find_the_same_under_a_filter(rows: Make, metric: str) -> None:
    async def run() -> None:
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), CONFIG) as store:
            collection = await store.collection("t", "i", metric, dimensions=4, metric=metric)
            await collection.upsert(rows([f"r{n}" for n in range(400)], VECTORS, n=list(range(400))))
            await store.flush()
            for where in (RARE, attribute("n") >= 20, attribute("n") < 0):
                together = await collection.search(VECTORS[:200], 7, filter=where, probes=ALL_LISTS)
                alone = [await collection.search(query, 7, filter=where, probes=ALL_LISTS) for query in VECTORS[:200]]
                assert [name for part in alone for name in part["id"].to_pylist()] == together["id"].to_pylist()
                scores = np.concatenate([part["score"].to_numpy() for part in alone])
                assert np.allclose(scores, together["score"].to_numpy(), atol=1e-5)

    asyncio.run(run())


def test_filters_that_python_takes_for_equal_are_told_apart() -> None:
    x = attribute("x")
    different = [x == 1, x == 1.0, x == True, x == 0.0, x == -0.0, x < 1, x <= 1, x > 1, x.is_in([1, 2]), ~(x == 1)]  # noqa: E712
    different += [(x == 1) & (x == 2), (x == 1) | (x == 2), attribute("y") == 1, x == "1", x == float("nan")]
    assert len({filter_key(where) for where in different}) == len(different)
    assert filter_key(x == float("nan")) == filter_key(x == float("nan"))
    assert filter_key((x < 3) & ~(x == 1)) == filter_key((x < 3) & ~(x == 1))
