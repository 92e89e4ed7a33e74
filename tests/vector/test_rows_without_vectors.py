"""A row may have no vector: its words find it, and nothing else takes it for one that has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import SMALL, collection_of, found, opened, with_store
from tests.vector.test_aside import break_value
from tests.vector.upkeep.test_repair import repaired
from tests.vector.upkeep.test_verify import rewrite

from penstock.blocks import Shelf, fragments_prefix
from penstock.blocks.write import layout
from penstock.coordinator import CoordinatorConfig
from penstock.errors import InvalidInput
from penstock.keyvalue import MemoryVolume
from penstock.vector import Collection, VectorConfig, VectorStore, attribute, partial_blocks
from penstock.vector.format.keys import Family, collection_prefix
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.store_format import FORMAT
from penstock.vector.rows import read_rows

Given = Sequence[tuple[str, Sequence[float] | None, str | None]]
_TIGHT = VectorConfig(
    list_rows=8, threads=1, coordinator=CoordinatorConfig(max_pending_bytes=2000, max_buffered_bytes=4000)
)


def table_of(given: Given) -> pa.Table:
    """Rows of an id, a vector and a text; `n` is their place."""
    return pa.table(
        {
            "id": [name for name, _, _ in given],
            "vector": pa.array([vector for _, vector, _ in given], pa.list_(pa.float32(), 2)),
            "text": pa.array([text for _, _, text in given], pa.string()),
            "attributes": pa.array([{"n": place} for place in range(len(given))], pa.struct({"n": pa.int64()})),  # type: ignore[arg-type]
        }
    )


def mixed(count: int) -> Given:
    """Every third row has no vector."""
    return [(f"r{n}", None if n % 3 == 0 else (float(n), 1.0), f"word{n} shared") for n in range(count)]


async def told(collection: Collection, text: str, **options: Any) -> set[str]:
    return set((await collection.search(text=text, k=100, **options))["id"].to_pylist())


async def sound(collection: Collection) -> None:
    assert (await collection.verify()).problems == []


# what is taken ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 2)])
def test_rows_with_a_text_may_have_no_vector(kind: pa.DataType) -> None:
    vectors = pa.array([None, [1.0, 2.0], None, [3.0, 4.0]], kind)
    read = read_rows(pa.table({"id": list("abcd"), "vector": vectors, "text": ["w"] * 4}), 2, DistanceMetric.L2, {})
    assert read.vectors.tolist() == [[1, 2], [3, 4]]
    assert read.placed_mask.tolist() == [False, True, False, True]


def test_a_table_of_texts_alone_may_have_a_column_of_nulls() -> None:
    read = read_rows(pa.table({"id": ["a"], "vector": pa.nulls(1), "text": ["words"]}), 2, DistanceMetric.COSINE, {})
    assert (read.vectors.shape, read.placed_mask.tolist()) == ((0, 2), [False])


@pytest.mark.parametrize("texts", [None, ["w", None]])
@pytest.mark.parametrize("kind", [pa.null(), pa.list_(pa.float32())])
def test_a_row_with_neither_vector_nor_text_is_refused_by_name(texts: Any, kind: pa.DataType) -> None:
    columns = {"id": ["a", "b"], "vector": pa.array([None, None], kind)} | ({"text": texts} if texts else {})
    with pytest.raises(
        InvalidInput, match=f"the vector of '{'b' if texts else 'a'}': it is missing, and there is no text"
    ):
        read_rows(pa.table(columns), 2, DistanceMetric.L2, {})


def test_a_bad_vector_is_named_beside_rows_that_have_none() -> None:
    with pytest.raises(InvalidInput, match="the vector of 'c'"):
        read_rows(table_of([("a", None, "w"), ("b", (1, 1), "w"), ("c", (0, 0), "w")]), 2, DistanceMetric.COSINE, {})


# what is found ----------------------------------------------------------------------------------


def test_words_find_a_row_that_no_vector_search_shows() -> None:
    async def work(_: VectorStore, collection: Collection) -> None:
        await collection.upsert(table_of(mixed(60)), durable=True)
        placed = {f"r{n}" for n in range(60) if n % 3}
        assert set(await found(collection)) == placed
        assert await told(collection, "shared") == {f"r{n}" for n in range(60)}
        assert await told(collection, "word3") == {"r3"}
        hybrid = await collection.search([(3.0, 1.0)], 60, text="word3")
        (row,) = [row for row in hybrid.to_pylist() if row["id"] == "r3"]
        assert (row["similarity"], row["bm25"] > 0) == (None, True)
        await sound(collection)
        stats = await collection.stats()
        assert (stats.rows, stats.texts, stats.rows_without_vector) == (60, 60, 20)

    with_store(work)


@pytest.mark.parametrize("k", [1, 5, 100])
def test_a_filter_leaves_only_rows_with_a_vector_to_a_vector_search(k: int) -> None:
    """Twice: what the filter selects is gathered once and kept."""

    async def work(_: VectorStore, collection: Collection) -> None:
        await collection.upsert(table_of(mixed(60)), durable=True)
        for where, placed in (
            (attribute("n") < 10, [1, 2, 4, 5, 7, 8]),
            (attribute("n").is_in([0, 3, 6]), []),
            (attribute("n") == 7, [7]),
        ):
            for _ in range(2):  # type: ignore[assignment]
                answer = await collection.search([(0.0, 1.0)], k, filter=where)
                assert answer["id"].to_pylist() == [f"r{n}" for n in placed][:k]
                assert partial_blocks(answer) == []
        assert await told(collection, "shared", filter=attribute("n").is_in([0, 3, 6])) == {"r0", "r3", "r6"}

    with_store(work)


def test_get_and_scan_give_null_for_the_vector() -> None:
    async def work(_: VectorStore, collection: Collection) -> None:
        await collection.upsert(table_of([("a", None, "alone"), ("b", (1.0, 2.0), None)]), durable=True)
        rows = (await collection.get(["a", "b"])).to_pylist()
        assert [(row["vector"], row["text"]) for row in rows] == [(None, "alone"), ([1.0, 2.0], None)]
        (page,) = [page async for page in collection.scan(columns=["id", "vector"])]
        assert page["vector"].to_pylist() == [None, [1.0, 2.0]]

    with_store(work)


# what becomes of them ---------------------------------------------------------------------------


def test_a_row_may_lose_its_vector_and_get_one_again() -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        for vector in ((1.0, 0.0), None, None, (2.0, 0.0), None):
            await collection.upsert(table_of([("a", vector, "stone")]), durable=True)
            assert await found(collection) == (["a"] if vector else [])
            assert await told(collection, "stone") == {"a"}
            await sound(collection)
        await store.compact()
        await sound(collection)
        assert (await collection.stats()).rows_without_vector == 1
        await collection.delete(["a"], durable=True)
        assert await told(collection, "stone") == set()
        await store.compact()
        await sound(collection)
        assert (await collection.stats()).rows_without_vector == 0

    with_store(work)


def test_a_collection_may_begin_without_any_vector() -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(table_of([(f"w{n}", None, f"word{n}") for n in range(40)]), durable=True)
        assert (await collection.search([(0.0, 0.0)], 5)).num_rows == 0
        assert await told(collection, "word7") == {"w7"}
        await store.tend()
        await store.compact()
        await sound(collection)
        vectors = [(f"v{n}", (float(n), 0.0), None) for n in range(40)]
        await collection.upsert(table_of(vectors), durable=True)
        assert await found(collection, k=3) == ["v0", "v1", "v2"]
        assert (await collection.search([(0.0, 0.0)], 3))["id"].to_pylist() == ["v0", "v1", "v2"]
        await store.compact()
        await sound(collection)
        assert (await told(collection, "word7"), len(await found(collection))) == ({"w7"}, 40)

    with_store(work)


def test_a_version_without_vectors_is_hidden_until_it_is_current() -> None:
    async def work(_: VectorStore, collection: Collection) -> None:
        await collection.upsert(table_of([("a", (1.0, 1.0), "old")]), document="d", version="1")
        await collection.flip("d", "1")
        await collection.upsert(
            table_of([("a", None, "new"), ("b", None, "new")]), document="d", version="2", durable=True
        )
        assert (await told(collection, "new"), await found(collection)) == (set(), ["a"])
        await sound(collection)
        await collection.flip("d", "2", durable=True)
        assert (await told(collection, "new"), await found(collection)) == ({"a", "b"}, [])
        assert await told(collection, "old") == set()
        await sound(collection)

    with_store(work)


def test_an_upsert_larger_than_the_buffer_keeps_vectors_with_their_rows() -> None:
    async def work(_: VectorStore, collection: Collection) -> None:
        await collection.upsert(table_of(mixed(100)), durable=True)
        rows = (await collection.get([f"r{n}" for n in range(100)])).to_pylist()
        assert [row["vector"] for row in rows] == [
            vector if vector is None else list(vector) for _, vector, _ in mixed(100)
        ]
        assert len(rows) == 100

    with_store(work, config=_TIGHT)


# verify and repair ------------------------------------------------------------------------------


def run(work: Callable[[MemoryVolume], Awaitable[None]]) -> None:
    asyncio.run(work(MemoryVolume()))  # type: ignore[arg-type]


async def filled(volume: MemoryVolume, given: Given) -> None:
    async with await opened(volume, SMALL) as store:
        await (await collection_of(store)).upsert(table_of(given), durable=True)


def break_blocks(volume: MemoryVolume, family: Family, most: int = 1) -> None:
    """Damage the first blocks of a family."""
    entries = list(volume.table("keyvalue").entries(fragments_prefix(collection_prefix(0)), None, reverse=False))
    mine = [(key, value) for key, value in entries if FORMAT.address(key).shelf.family is family]
    assert mine
    for key, value in mine[:most]:
        break_value(volume, key, value)


def _of_row_zero(block: Any) -> Any:
    return replace(block, ids=np.concatenate([[0], block.ids[1:]]))


def _of_later_rows(block: Any) -> Any:
    return replace(block, ids=block.ids + 1)


@pytest.mark.parametrize(
    ("family", "change", "problem"),
    [
        (Family.VECTORS, _of_row_zero, "rows missing from the vectors: [1]"),
        (Family.VECTORS, _of_row_zero, "rows missing from the postings: [0]"),
        (Family.NAMES, _of_later_rows, "rows missing from the names: [0]"),
        (Family.TEXTS, _of_later_rows, "rows with neither a vector nor a text: [0]"),
    ],
)
def test_a_row_is_in_the_vectors_and_in_a_list_or_in_neither_and_has_a_text(
    family: Family, change: Callable[[Any], Any], problem: str
) -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, mixed(6))
        rewrite(volume, Shelf(family), change)
        async with await opened(volume) as store:
            (report,) = await store.verify()
        assert problem in report.problems

    run(work)


@pytest.mark.parametrize(
    "family", [Family.VECTORS, Family.POSTINGS, Family.CENTROIDS, Family.DICTIONARY, Family.TERMS], ids=str
)
def test_a_row_without_a_vector_outlives_the_repair_of_other_blocks(family: Family) -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, mixed(60))
        break_blocks(volume, family)
        (report,) = await repaired(volume)
        assert not any("only their words" in loss or "are gone" in loss for loss in report.losses), report
        async with await opened(volume) as store:
            collection = await collection_of(store)
            await sound(collection)
            assert await told(collection, "shared") == {f"r{n}" for n in range(60)}
            assert len(await found(collection)) == 40

    run(work)


def test_a_row_whose_vector_is_lost_for_good_lives_on_by_its_words_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "BUCKET_BYTES", 160)

    async def work(volume: MemoryVolume) -> None:
        await filled(volume, [*mixed(60), ("mute", (0.5, 1.0), None)])
        break_blocks(volume, Family.VECTORS)
        break_blocks(volume, Family.POSTINGS, most=1000)
        (report,) = await repaired(volume)
        async with await opened(volume) as store:
            collection = await collection_of(store)
            await sound(collection)
            assert await told(collection, "shared") == {f"r{n}" for n in range(60)}
            left = set(await found(collection))
            lost = [f"r{n}" for n in range(60) if n % 3 and f"r{n}" not in left]
            assert lost
            assert "mute" in left
        (loss,) = [loss for loss in report.losses if "only their words find those" in loss]
        count = int(loss.removeprefix("the vectors of up to ").split()[0])
        assert len(lost) <= count < 20

    run(work)


def test_a_row_that_lost_its_only_text_is_gone_and_that_is_told() -> None:
    async def work(volume: MemoryVolume) -> None:
        await filled(volume, mixed(60))
        break_blocks(volume, Family.TEXTS)
        (report,) = await repaired(volume)
        assert any("20 rows whose ids, or vectors and texts, are gone" in loss for loss in report.losses), report
        async with await opened(volume) as store:
            collection = await collection_of(store)
            await sound(collection)
            assert len(await found(collection)) == 40

    run(work)
