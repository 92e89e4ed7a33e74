"""Listings: every row once, of one moment, page by page and without a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.blocks import fragments_prefix
from penstock.coordinator import CoordinatorConfig
from penstock.errors import Closed, Corrupt, InvalidInput, Unavailable
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume, WriteBatch
from penstock.testing import ManualClock
from penstock.vector import Collection, VectorConfig, VectorReader, VectorStore, attribute
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import Family, collection_prefix
from penstock.vector.format.store_format import FORMAT
from penstock.vector.read.scan_pages import id_pages

Make = Callable[..., pa.Table]
_CONFIG = VectorConfig(list_rows=8, coordinator=CoordinatorConfig(flush_interval_seconds=900))


def with_store(
    work: Callable[[VectorStore, Collection], Awaitable[None]], volume: MemoryVolume | None = None, **settings: Any
) -> None:
    async def run() -> None:
        config = VectorConfig(list_rows=8, coordinator=_CONFIG.coordinator, **settings)
        async with await VectorStore.over(MemoryKeyValue(volume or MemoryVolume()), config) as store:
            await work(store, await store.collection("t", "i", "m", dimensions=2, metric="l2"))

    asyncio.run(run())


async def names_of(pages: AsyncIterator[pa.Table]) -> list[str]:
    return [name async for page in pages for name in page["id"].to_pylist()]


@given(st.sets(st.integers(0, 300)), st.integers(1, 40), st.integers(1, 100))
def test_pages_hold_every_member_once_in_order_and_all_but_the_last_are_full(
    members: set[int], page_rows: int, window: int
) -> None:
    pages = list(id_pages(IdSet.of(np.array(sorted(members), np.int64), 301), page_rows, window))
    assert [row for page in pages for row in page.tolist()] == sorted(members)
    assert all(len(page) == page_rows for page in pages[:-1])
    assert all(len(page) for page in pages)


def test_more_rows_than_a_search_may_return_are_listed_each_once(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        names = [f"r{n:05}" for n in range(12_345)]
        vectors = np.random.default_rng(1).standard_normal((len(names), 2))
        await collection.upsert(rows(names, vectors), durable=True)
        pages = [page async for page in collection.scan(columns=("id",), page_rows=5000)]
        assert [page.num_rows for page in pages] == [5000, 5000, 2345]
        assert pa.concat_tables(pages)["id"].to_pylist() == names

    with_store(work)


def test_only_visible_rows_are_listed_in_the_order_in_which_they_were_last_written(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b", "c", "d"], np.ones((4, 2))), durable=True)
        await collection.upsert(rows(["hidden"], [[1, 1]]), document="doc", version="v1")
        await collection.upsert(rows(["a"], [[2, 2]]))
        await collection.delete(["c"])
        assert await names_of(collection.scan(page_rows=2)) == ["a", "b", "c", "d"]
        await store.flush()
        assert await names_of(collection.scan(page_rows=2)) == ["b", "d", "a"]
        await collection.flip("doc", "v1", durable=True)
        assert await names_of(collection.scan(page_rows=2)) == ["b", "d", "hidden", "a"]

    with_store(work)


def test_a_filter_and_columns_narrow_a_listing(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b", "c"], np.eye(3)[:, :2], ["one", None, "three"], stars=[1, None, 3]))
        await collection.upsert(rows(["d"], [[4, 4]]), durable=True)
        pages = [page async for page in collection.scan(attribute("stars") >= 1, ("id", "text", "attributes"))]
        assert [row for page in pages for row in page.to_pylist()] == [
            {"id": "a", "text": "one", "attributes": {"stars": 1}},
            {"id": "c", "text": "three", "attributes": {"stars": 3}},
        ]
        assert [page async for page in collection.scan(attribute("stars") > 3)] == []

    with_store(work)


def test_an_empty_collection_has_no_pages() -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        assert [page async for page in collection.scan()] == []
        assert [page async for page in collection.scan(attribute("never") == 1)] == []

    with_store(work)


@pytest.mark.parametrize(
    ("options", "why"),
    [({"page_rows": 0}, "page_rows"), ({"page_rows": 1 << 40}, "page_rows"), ({"columns": ("colour",)}, "colour")],
)
def test_a_listing_that_cannot_be_made_is_refused_before_it_begins(options: dict[str, Any], why: str) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        with pytest.raises(InvalidInput, match=why):
            collection.scan(**options)

    with_store(work)


def test_a_listing_keeps_its_moment_while_the_store_moves_on(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        names = [f"r{n}" for n in range(30)]
        await collection.upsert(rows(names, np.ones((30, 2)), generation=[0] * 30), durable=True)
        seen = []
        async for page in collection.scan(page_rows=7):
            seen += page.to_pylist()
            await collection.upsert(rows(names, np.ones((30, 2)), generation=[len(seen)] * 30), durable=True)
            await store.compact()
        assert [row["id"] for row in seen] == names
        assert {row["attributes"]["generation"] for row in seen} == {0}
        assert len(await names_of(collection.scan())) == 30
        await store.flush()

    with_store(work, cache_bytes=1)


def test_a_listing_holds_its_own_snapshot_and_no_other(rows: Make) -> None:
    """Snapshots of flushes that pass during a long listing are closed; its own is, when it is given up."""

    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b"], np.eye(2)), durable=True)
        async with aclosing(collection.scan(page_rows=1)) as listing:
            await anext(listing)
            for number in range(20):
                await collection.upsert(rows([f"r{number}"], [[1, number]]), durable=True)
            assert len(store._handler._open) <= 4
            assert (await anext(listing))["id"].to_pylist() == ["b"]
        await collection.upsert(rows(["z"], [[1, 1]]), durable=True)
        await collection.upsert(rows(["z"], [[1, 1]]), durable=True)
        assert len(store._handler._open) <= 3

    with_store(work)


def test_a_damaged_block_ends_a_listing_with_its_name(rows: Make) -> None:
    volume = MemoryVolume()

    async def fill(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b"], np.eye(2), stars=[1, 2]), durable=True)

    async def damage() -> None:
        keyvalue = MemoryKeyValue(volume)
        batch = WriteBatch()
        async for entries in keyvalue.scan_prefix(fragments_prefix(collection_prefix(0))):
            for key, value in entries:
                if FORMAT.address(key).shelf.family is Family.COLUMN:
                    batch.put(key, value[:-1])
        await (await keyvalue.write(batch)).durable()
        await keyvalue.close()

    async def work(store: VectorStore, collection: Collection) -> None:
        for listing in (collection.scan(), collection.scan(attribute("stars") >= 1, ("id",))):
            with pytest.raises(Corrupt, match="column 1"):
                await names_of(listing)
        assert await names_of(collection.scan(columns=("id",))) == ["a", "b"]

    with_store(fill, volume)
    asyncio.run(damage())
    with_store(work, volume)


def test_a_store_that_is_closed_ends_a_listing(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b"], np.eye(2)), durable=True)
        listing = collection.scan(page_rows=1)
        await anext(listing)
        await store.close()
        with pytest.raises(Closed):
            await anext(listing)

    with_store(work, cache_bytes=1)


@pytest.mark.parametrize("moved_before", ["first page", "second page"])
def test_a_followers_listing_is_of_one_moment_or_says_that_it_cannot_be(rows: Make, moved_before: str) -> None:
    async def run() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store = await VectorStore.over(MemoryKeyValue(volume), _CONFIG)
        collection = await store.collection("t", "i", "m", dimensions=2, metric="l2")
        names = [f"r{n}" for n in range(4)]

        async def replace(generation: int) -> None:
            table = rows(names, np.ones((4, 2)), generation=[generation] * 4)
            await collection.upsert(table, durable=True)
            await store.compact()
            clock.advance(10)

        await replace(0)
        config = VectorConfig(cache_bytes=1, staleness_seconds=3600)
        async with VectorReader(MemoryFollower(volume, poll_interval_ms=1, clock=clock), config, clock=clock) as reader:
            listing = (await reader.collection("t", "i", "m")).scan(page_rows=2)
            if moved_before == "first page":
                await replace(1)
                seen = [row async for page in listing for row in page.to_pylist()]
                assert [row["id"] for row in seen] == names
                assert {row["attributes"]["generation"] for row in seen} == {1}
            else:
                await anext(listing)
                await replace(1)
                with pytest.raises(Unavailable, match="replaced"):
                    await anext(listing)
        await store.close()

    asyncio.run(run())
