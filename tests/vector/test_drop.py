"""Dropping a collection: all of it goes in one write, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import SMALL, collection_of, found, opened, with_store

from penstock.blocks.format.keys import head_key
from penstock.errors import InvalidInput, NotFound, OutcomeUnknown
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.vector import CollectionName, VectorConfig, VectorReader, VectorStore
from penstock.vector.format.keys import collection_key, collection_prefix

Make = Callable[..., pa.Table]
NAME = CollectionName("tenant", "index", "model")


def keys(volume: MemoryVolume) -> list[bytes]:
    return [key for key, _ in volume.table("keyvalue").entries(b"", None, reverse=False)]


def belonging(volume: MemoryVolume, number: int = 0) -> list[bytes]:
    mine = (collection_key(NAME), collection_prefix(number))
    return [key for key in keys(volume) if key.startswith(mine)]


async def filled(store: VectorStore, rows: Make) -> None:
    """Rows, texts, attributes, dead rows and hidden ones, in the collection to be dropped and in another."""
    for model in ("model", "other"):
        collection = await store.collection("tenant", "index", model, dimensions=2, metric="l2")
        vectors = np.random.default_rng(1).standard_normal((60, 2))
        ids = [f"r{n}" for n in range(60)]
        await collection.upsert(rows(ids, vectors, ["some words"] * 60, n=list(range(60))), source=model, position=7)
        await collection.delete(ids[:9])
        await collection.upsert(rows(["new"], [[1, 1]]), document="d", version="v")
        await store.flush()


def test_no_key_of_a_dropped_collection_is_left_and_the_others_stay(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        store = await opened(volume)
        await filled(store, rows)
        assert len(belonging(volume)) > 20
        kept = [key for key in keys(volume) if key not in belonging(volume)]
        assert await store.drop(NAME)
        assert keys(volume) == kept
        assert [str(name) for name in await store.collections()] == ["tenant/index/other"]
        await store.tend()
        await store.close()
        store = await opened(volume)
        with pytest.raises(NotFound):
            await store.collection(*("tenant", "index", "model"))
        assert (await (await store.collection("tenant", "index", "other")).stats()).rows == 51
        assert [report.problems for report in await store.verify()] == [[]]
        assert store.position("model") == 7
        assert not await store.drop(NAME)
        await store.close()

    asyncio.run(work())


def test_one_that_was_dropped_is_made_anew_with_other_dimensions_and_types(rows: Make) -> None:
    async def work(store: VectorStore, collection: object) -> None:
        await filled(store, rows)
        old = await collection_of(store)
        await store.drop(NAME)
        assert await found(old) == []
        wide = await store.collection("tenant", "index", "model", dimensions=3, metric="dot")
        await wide.upsert(rows(["a"], [[1, 0, 0]], n=["text now"]), durable=True)
        assert (await wide.get(["a"], ("attributes",))).to_pylist() == [{"attributes": {"n": "text now"}}]
        with pytest.raises(InvalidInput, match=r"2 dimensions and metric l2.*was dropped.*open the collection again"):
            await old.upsert(rows(["b"], [[1, 0]]))
        assert (await wide.stats()).rows == 1

    with_store(work)


def test_rows_that_were_made_before_it_was_dropped_and_made_anew_are_not_taken(rows: Make) -> None:
    """They have other dimensions: taken, they would fail everybody's flush."""

    async def work(store: VectorStore, collection: object) -> None:
        await filled(store, rows)
        stale = store.changes().upsert(await collection_of(store), rows(["b"], [[1, 0]]))
        await store.drop(NAME)
        await store.collection("tenant", "index", "model", dimensions=3)
        with pytest.raises(InvalidInput, match="was dropped"):
            await store.write(stale)

    with_store(work)


def test_writes_of_the_same_flush_count_if_they_come_after_it(rows: Make) -> None:
    async def work(store: VectorStore, collection: object) -> None:
        kept = await collection_of(store)
        await kept.upsert(rows(["old"], [[1, 0]], n=[1]), durable=True)
        await kept.upsert(rows(["before"], [[2, 0]], n=[2]))
        dropping = asyncio.create_task(store.drop(NAME))
        await asyncio.sleep(0)
        await kept.upsert(rows(["after"], [[3, 0]]))
        assert await dropping
        await store.flush()
        assert await found(kept) == ["after"]
        assert (await kept.stats()).attributes == {}
        assert [report.problems for report in await store.verify()] == [[]]

    with_store(work)


@pytest.mark.parametrize("landed", [False, True])
def test_a_crash_leaves_all_of_it_or_nothing(rows: Make, landed: bool) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        store = await opened(volume)
        await filled(store, rows)
        before = belonging(volume)
        volume.fail(OutcomeUnknown("the store died"), landed=landed)
        dropping = asyncio.create_task(store.drop(NAME))
        for _ in range(20):
            await asyncio.sleep(0)
        dropping.cancel()
        await asyncio.wait([dropping])
        volume.heal()
        again = await opened(volume)
        assert belonging(volume) == ([] if landed else before)
        assert await again.drop(NAME) is not landed
        assert belonging(volume) == []
        assert [report.problems for report in await again.verify()] == [[]]
        await again.close()

    asyncio.run(work())


def test_a_follower_is_told_that_the_collection_is_gone(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        store = await opened(volume)
        await filled(store, rows)
        async with VectorReader(MemoryFollower(volume), VectorConfig(staleness_seconds=0, cache_bytes=1)) as reader:
            collection = await reader.collection("tenant", "index", "model")
            assert (await collection.search([[0.0, 0.0]])).num_rows == 10
            await store.drop(NAME)
            with pytest.raises(NotFound, match="tenant/index/model"):
                await collection.search([[0.0, 0.0]])
        await store.close()

    asyncio.run(work())


def test_one_whose_head_is_damaged_can_be_dropped(rows: Make) -> None:
    async def work() -> None:
        volume = MemoryVolume()
        store = await opened(volume)
        await filled(store, rows)
        await store.close()
        volume.land("keyvalue", [(head_key(collection_prefix(0)), b"damaged")])
        store = await VectorStore.over(MemoryKeyValue(volume), SMALL)
        assert await store.drop(NAME)
        assert belonging(volume) == []
        await store.close()

    asyncio.run(work())


def test_a_handle_from_before_is_told_that_the_collection_is_another_now(rows: Make) -> None:
    """By the writer and by a follower, whatever it asks; nothing is searched with a vector of other dimensions."""

    async def work() -> None:
        volume = MemoryVolume()
        store = await opened(volume)
        await filled(store, rows)
        stale = await collection_of(store)
        async with VectorReader(
            MemoryFollower(volume, poll_interval_ms=0.001), VectorConfig(staleness_seconds=0.0)
        ) as reader:
            followed = await reader.collection(*("tenant", "index", "model"))
            await store.drop(NAME)
            assert await found(stale) == []
            fresh = await store.collection("tenant", "index", "model", dimensions=3, metric="cosine")
            await fresh.upsert(rows(["a"], [[1, 1, 1]]), durable=True)
            for handle in (stale, followed):
                for ask in (handle.search([[0.0, 1.0]]), handle.get(["a"]), handle.scan().__anext__(), handle.stats()):
                    with pytest.raises(InvalidInput, match="was dropped, and now has 3 dimensions and metric cosine"):
                        await ask
        await store.close()

    asyncio.run(work())
