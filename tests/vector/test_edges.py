"""The edges of what callers may ask: odd ids, odd texts, odd sizes, and orders of operations in one write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.coordinator import CoordinatorConfig
from penstock.errors import InvalidInput
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import ALL_LISTS, Collection, VectorConfig, VectorStore, attribute
from penstock.vector.rows import ID_BYTES_MAX

Make = Callable[..., pa.Table]
_CONFIG = VectorConfig(list_rows=8, coordinator=CoordinatorConfig(flush_interval_seconds=900))


def with_store(work: Callable[[VectorStore, Collection], Awaitable[None]], metric: str = "l2") -> None:
    async def run() -> None:
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), _CONFIG) as store:
            await work(store, await store.collection("t", "i", "m", dimensions=2, metric=metric))

    asyncio.run(run())


async def ids_of(collection: Collection, **options: Any) -> list[str]:
    return (await collection.search([[0.0, 0.0]], 100, probes=ALL_LISTS, **options))["id"].to_pylist()


def test_ids_of_any_script_and_of_the_greatest_length_are_kept_as_they_are(rows: Make) -> None:
    names = ["größe", "水/道#1", "🙂", "a b\n\t", "\x00", "x" * ID_BYTES_MAX, "é", "e\u0301"]

    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(names, np.arange(2 * len(names)).reshape(-1, 2)), durable=True)
        assert await ids_of(collection) == names
        assert (await collection.get(reversed(names)))["id"].to_pylist() == names[::-1]
        await collection.delete(["é"], durable=True)
        assert await ids_of(collection) == [name for name in names if name != "é"]

    with_store(work)


def test_an_id_one_byte_too_long_refuses_the_whole_call_and_names_it(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        for call in (
            collection.upsert(rows(["fine", "y" * (ID_BYTES_MAX + 1)], np.eye(2))),
            collection.delete(["y" * (ID_BYTES_MAX + 1)]),
            collection.get(["y" * (ID_BYTES_MAX + 1)]),
        ):
            with pytest.raises(InvalidInput, match=f"yyy.*at most {ID_BYTES_MAX} bytes"):
                await call
        await store.flush()
        assert await ids_of(collection) == []

    with_store(work)


@pytest.mark.parametrize("text", ["", "   ", "?!…", "\n"])
def test_a_text_without_words_finds_nothing_and_a_vector_beside_it_decides_alone(rows: Make, text: str) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b"], [[1, 0], [2, 0]], ["some words", ""]), durable=True)
        assert (await collection.search(text=text)).num_rows == 0
        assert await ids_of(collection, text=text) == ["a", "b"]

    with_store(work)


@pytest.mark.parametrize("k", [0, -1, 10_001, 1 << 62])
def test_more_rows_than_a_search_may_return_are_refused(rows: Make, k: int) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        with pytest.raises(InvalidInput, match=f"k = {k}"):
            await collection.search([[0.0, 0.0]], k)

    with_store(work)


def test_more_rows_than_one_answer_may_hold_are_refused(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        with pytest.raises(InvalidInput, match="1000 queries of k = 10000"):
            await collection.search(np.ones((1000, 2)), 10_000)
        assert (await collection.search(np.ones((400, 2)), 10_000)).num_rows == 0

    with_store(work)


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_the_most_rows_a_search_may_return_from_a_few(rows: Make, metric: str) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows([f"r{n}" for n in range(30)], np.arange(1, 61).reshape(30, 2)), durable=True)
        for options in ({}, {"probes": ALL_LISTS}, {"probes": 1}, {"text": "nothing"}):
            answer = await collection.search([[1.0, 1.0]], 10_000, **options)
            assert sorted(answer["id"].to_pylist()) == sorted(f"r{n}" for n in range(30))

    with_store(work, metric)


def test_a_zero_vector_is_refused_under_cosine_and_fine_otherwise(rows: Make) -> None:
    async def refused(store: VectorStore, collection: Collection) -> None:
        with pytest.raises(InvalidInput, match=r"'zero'.*all zero"):
            await collection.upsert(rows(["fine", "zero"], [[1, 0], [0, 0]]))
        with pytest.raises(InvalidInput, match=r"query vector 0.*all zero"):
            await collection.search([[0.0, 0.0]])

    async def taken(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["far", "zero"], [[-1, 0], [0, 0]]), durable=True)
        assert (await collection.search([[1.0, 0.0]], 2))["id"].to_pylist() == ["zero", "far"]

    with_store(refused, "cosine")
    with_store(taken, "dot")
    with_store(taken, "l2")


def test_a_row_without_the_attribute_matches_no_comparison_and_every_negation(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        stars = pa.array([1, None, 3], pa.int64())
        await collection.upsert(rows(["one", "null", "three"], np.eye(3)[:, :2], stars=stars))
        await collection.upsert(rows(["bare"], [[5, 5]]), durable=True)
        found = [
            sorted(await ids_of(collection, filter=where))
            for where in (
                attribute("stars") >= 1,
                attribute("stars") != 1,
                ~(attribute("stars") >= 1),
                attribute("stars").is_in([1, 3]),
                (attribute("stars") == 1) | ~(attribute("stars") <= 3),
            )
        ]
        assert found == [
            ["one", "three"],
            ["bare", "null", "three"],
            ["bare", "null"],
            ["one", "three"],
            ["bare", "null", "one"],
        ]

    with_store(work)


def test_an_attribute_written_with_another_type_later_is_refused_and_the_rest_of_the_row_too(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a"], [[1, 0]], stars=[1]), durable=True)
        with pytest.raises(InvalidInput, match=r"'stars' is string.*it is integer"):
            await collection.upsert(rows(["a"], [[9, 9]], stars=["many"]))
        await collection.upsert(rows(["b"], [[2, 0]], stars=pa.array([None], pa.string())), durable=True)
        assert (await collection.get(["a", "b"], ("vector", "attributes"))).to_pylist() == [
            {"vector": [1, 0], "attributes": {"stars": 1}},
            {"vector": [2, 0], "attributes": {"stars": None}},
        ]

    with_store(work)


def test_a_row_deleted_and_written_again_in_one_write_is_there_once_as_last_written(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b"], [[1, 0], [2, 0]], ["old", "old"]), durable=True)
        changes = store.changes().delete(collection, ["a", "b"]).upsert(collection, rows(["a"], [[3, 0]], ["new"]))
        await store.write(changes, durable=True)
        assert (await collection.get(["a", "b"], ("id", "vector", "text"))).to_pylist() == [
            {"id": "a", "vector": [3, 0], "text": "new"}
        ]
        assert (await collection.search(text="old")).num_rows == 0
        again = store.changes().upsert(collection, rows(["a"], [[4, 0]])).delete(collection, ["a"])
        await store.write(again, durable=True)
        assert await ids_of(collection) == []
        assert (await collection.verify()).problems == []

    with_store(work)


def test_an_upsert_of_no_rows_changes_nothing_and_its_position_counts(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        empty = rows(["x"], [[1, 1]]).slice(0, 0)
        await collection.upsert(empty, source="queue", position=3, durable=True)
        assert store.position("queue") == 3
        assert await ids_of(collection) == []
        assert (await collection.stats()).rows == 0

    with_store(work)


def test_two_collections_of_one_write_keep_their_own_dimensions_metric_and_ids(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        wide = await store.collection("t", "i", "wide", dimensions=3, metric="cosine")
        changes = store.changes("queue", 1)
        changes.upsert(collection, rows(["a"], [[1, 0]], stars=[1])).upsert(wide, rows(["a"], [[0, 0, 2]], stars=["x"]))
        await store.write(changes, durable=True)
        assert (await collection.get(["a"], ("vector",)))["vector"].to_pylist() == [[1, 0]]
        assert (await wide.get(["a"], ("vector", "attributes"))).to_pylist() == [
            {"vector": [0, 0, 2], "attributes": {"stars": "x"}}
        ]
        await collection.delete(["a"], durable=True)
        assert (await wide.search([[0.0, 0.0, 1.0]]))["score"].to_pylist() == [1.0]
        assert [report.problems for report in await store.verify()] == [[], []]

    with_store(work)


@pytest.mark.parametrize("ids", ["row-1", [1, 2], ["\ud800"], [b"\xff"]], ids=["bare", "number", "surrogate", "bytes"])
def test_ids_that_are_no_list_of_texts_are_refused_and_nothing_is_deleted(rows: Make, ids: Any) -> None:
    """A bare text above all, which Python would take for a list of its letters."""

    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["r", "row-1"], np.eye(2)), durable=True)
        for call in (collection.delete(ids), collection.get(ids)):
            with pytest.raises(InvalidInput, match="ids = "):
                await call
        await store.flush()
        assert await ids_of(collection) == ["r", "row-1"]

    with_store(work)


@pytest.mark.parametrize("text", ["\ud800", [3], [None]])
def test_a_search_text_that_is_none_is_refused(rows: Make, text: Any) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["r"], [[1, 1]], ["word"]), durable=True)
        with pytest.raises(InvalidInput, match="text"):
            await collection.search(text=text)

    with_store(work)
