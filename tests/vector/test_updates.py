"""Attributes of rows that are there: changed without touching vectors, texts and words; counted, and removed by filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import collection_of, found, opened, with_store

from penstock.errors import InvalidInput
from penstock.keyvalue import MemoryVolume
from penstock.vector import Collection, VectorStore, attribute, facet_of
from penstock.vector.format.keys import COLLECTION_DATA, Family
from penstock.vector.read import facets

Rows = Callable[..., pa.Table]


def update_of(ids: list[str], **attributes: Any) -> pa.Table:
    values = [value if isinstance(value, pa.Array) else pa.array(value) for value in attributes.values()]
    return pa.table({"id": ids, "attributes": pa.StructArray.from_arrays(values, names=list(attributes))})


async def attributes_of(collection: Collection) -> dict[str, dict[str, Any]]:
    pages = [page async for page in collection.scan(columns=["id", "attributes"])]
    return {row["id"]: row["attributes"] for page in pages for row in page.to_pylist()}


def test_an_update_changes_what_it_names_and_nothing_else(rows: Rows) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        table = rows(["a", "b"], [[1, 0], [0, 1]], ["river stone", "lamp"], team=["x", "y"], year=[1, 2])
        await collection.upsert(table, durable=True)
        await collection.update(update_of(["a", "absent"], team=["z", "z"]), durable=True)
        assert await attributes_of(collection) == {"a": {"team": "z", "year": 1}, "b": {"team": "y", "year": 2}}
        assert await found(collection, filter=attribute("team") == "z") == ["a"]
        assert (await collection.search(text="stone"))["id"].to_pylist() == ["a"]
        assert (await collection.verify()).problems == []

    with_store(work)


def test_null_takes_a_value_away_and_new_attributes_begin_in_old_rows(rows: Rows) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b", "c"], np.eye(3, 2) + 1, team=["x", "y", "z"]), durable=True)
        await collection.upsert(rows(["d"], [[5, 5]], late=["only here"]), durable=True)
        await collection.update(update_of(["a", "c"], team=pa.array([None, None], pa.string()), late=["1", "3"]))
        await store.flush()
        assert await found(collection, filter=attribute("team").is_not_null()) == ["b"]
        assert set(await found(collection, filter=attribute("late").is_not_null())) == {"a", "c", "d"}
        assert (await collection.verify()).problems == []

    with_store(work)


def test_a_store_reads_updates_back_after_it_was_closed(rows: Rows) -> None:
    import asyncio

    async def run() -> None:
        volume = MemoryVolume()
        async with await opened(volume) as store:
            collection = await collection_of(store)
            await collection.upsert(rows(["a"], [[1, 0]], team=["x"]), document="d", version="1")
            changes = store.changes("queue", 7).flip(collection, "d", "1")
            changes.update_document(collection, "d", {"team": "y", "size": 3, "gone": None})
            await store.write(changes, durable=True)
        async with await opened(volume) as store:
            assert await attributes_of(await collection_of(store)) == {"a": {"team": "y", "size": 3}}
            assert store.position("queue") == 7

    asyncio.run(run())


def test_an_update_moves_no_vector_text_or_word(rows: Rows) -> None:
    import asyncio

    async def run() -> None:
        volume = MemoryVolume()

        def heavy() -> dict[bytes, bytes]:
            entries = volume.table("keyvalue").entries(COLLECTION_DATA, None, reverse=False)
            kept = (Family.VECTORS, Family.TEXTS, Family.TERMS, Family.POSTINGS, Family.NAMES)
            return {key: value for key, value in entries if key[5] == 2 and Family(key[6]) in kept}

        async with await opened(volume) as store:
            collection = await collection_of(store)
            ids = [f"r{n}" for n in range(50)]
            table = rows(ids, np.random.default_rng(1).normal(size=(50, 2)), ["some words"] * 50, n=list(range(50)))
            await collection.upsert(table, durable=True)
            before = heavy()
            await collection.update(update_of(ids, n=[7] * 50), durable=True)
            assert heavy() == before
            assert await collection.count(attribute("n") == 7) == 50

    asyncio.run(run())


def test_an_update_of_another_type_is_refused_and_changes_nothing(rows: Rows) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a"], [[1, 0]], n=[1]), durable=True)
        with pytest.raises(InvalidInput, match="'n' is string"):
            await collection.update(update_of(["a"], n=["one"]))
        with pytest.raises(InvalidInput, match="id and attributes"):
            await collection.update(pa.table({"id": ["a"]}))
        with pytest.raises(InvalidInput, match="'deep'"):
            store.changes().update_document(collection, "d", {"deep": {"a": 1}})  # type: ignore[dict-item]
        assert await attributes_of(collection) == {"a": {"n": 1}}

    with_store(work)


def test_rows_that_were_written_again_are_spared_by_a_removal_by_filter(rows: Rows) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b"], [[1, 0], [0, 1]], n=[1, 1]), durable=True)
        # Not visible yet when the filter is compared, and before the removal in the order of writes.
        await collection.upsert(rows(["a"], [[1, 0]], n=[2]))
        assert await collection.delete_where(attribute("n") == 1) == 2
        await store.flush()
        assert await attributes_of(collection) == {"a": {"n": 2}}

    with_store(work)


def test_a_filter_for_null_needs_an_attribute_that_there_is(rows: Rows) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a"], [[1, 0]], n=[1]), durable=True)
        for refused in (collection.count(attribute("m").is_null()), collection.facet("m")):
            with pytest.raises(InvalidInput, match="'m'"):
                await refused

    with_store(work)


def test_a_facet_of_more_values_than_are_told_apart_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facets, "DISTINCT_MAX", 100)
    common = pa.array(["common"] * 50 + [f"v{n}" for n in range(1_000)])
    counted = facet_of(common, 3)
    assert counted.values[0] == ("common", 50)
    assert not counted.exact
    assert sum(count for _, count in counted.values) + counted.other == 1_050
    exact = facet_of(pa.array(["b", "a", None, "a"]), 1)
    assert (exact.values, exact.other, exact.missing, exact.exact) == ((("a", 2),), 1, 1, True)
    assert facet_of(pa.array([], pa.string()), 5).values == ()
    with pytest.raises(InvalidInput, match="1 to 1,000"):
        facet_of(common, 0)
