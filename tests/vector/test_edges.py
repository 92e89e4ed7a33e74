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


@pytest.mark.parametrize("position", [1.5, "1", True, None, -1, 1 << 63])
def test_a_position_that_is_none_is_refused_and_the_store_goes_on(rows: Make, position: Any) -> None:
    """Taken, it would fail in the flush, and with it everything that others have written."""

    async def work(store: VectorStore, collection: Collection) -> None:
        with pytest.raises(InvalidInput, match="position"):
            await collection.upsert(rows(["bad"], [[1, 1]]), source="queue", position=position)
        await collection.upsert(rows(["good"], [[1, 1]]), source="queue", position=np.int64(7), durable=True)  # type: ignore[arg-type]
        assert (store.position("queue"), await ids_of(collection)) == (7, ["good"])

    with_store(work)


@pytest.mark.parametrize("options", [{"k": 2.0}, {"k": "2"}, {"k": None}, {"probes": 1.5}, {"probes": 0}])
def test_a_number_of_rows_or_lists_that_is_none_is_refused(rows: Make, options: dict[str, Any]) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["r"], [[1, 1]]), durable=True)
        with pytest.raises(InvalidInput, match=next(iter(options))):
            await collection.search([[0.0, 0.0]], **options)

    with_store(work)


@pytest.mark.parametrize("dimensions", [2.0, "2", True, 0])
def test_dimensions_are_a_whole_number(dimensions: Any) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        with pytest.raises(InvalidInput, match="dimensions"):
            await store.collection("t", "i", "other", dimensions=dimensions)

    with_store(work)


@pytest.mark.parametrize("name", [1, b"t", None, ""])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        with pytest.raises(InvalidInput, match="tenant"):
            await store.collection(name, "i", "m", dimensions=2)

    with_store(work)


def test_queries_may_be_arrow_arrays_and_are_checked_as_rows_are(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b"], [[1, 0], [0, 1]]), durable=True)
        asked = pa.array([[0.0, 2.0], [2.0, 0.0]], pa.list_(pa.float64(), 2))
        for queries in (asked, pa.chunked_array([asked])):
            assert (await collection.search(queries, 1))["id"].to_pylist() == ["b", "a"]
        with pytest.raises(InvalidInput, match=r"'query 1'.*3 dimensions"):
            await collection.search(pa.array([[0.0, 2.0], [1.0, 2.0, 3.0]]))

    with_store(work)


def test_no_query_at_all_has_an_empty_answer(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a"], [[1, 0]], ["word"]), durable=True)
        none = np.empty((0, 2))
        for answer in (
            await collection.search(none),
            await collection.search(text=[]),
            await collection.search(none, text=[]),
        ):
            assert answer.num_rows == 0
            assert answer.column_names == ["query", "id", "score", "similarity", "bm25"]

    with_store(work)


def test_an_id_asked_for_twice_is_answered_twice_and_deleted_once(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b"], [[1, 0], [2, 0]]), durable=True)
        assert (await collection.get(["b", "a", "b"]))["id"].to_pylist() == ["b", "a", "b"]
        await collection.delete(["a", "a"], durable=True)
        assert (await collection.stats()).rows == 1

    with_store(work)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_texts_ids_and_attributes_may_be_strings_of_any_layout(rows: Make, kind: pa.DataType) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        def strings(values: list[str | None]) -> pa.Array:
            plain = pa.array(values)
            return plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)

        table = rows(["a", "b"], [[1, 0], [2, 0]], lang=strings(["en", None]))
        table = table.set_column(0, "id", strings(["a", "b"])).append_column("text", strings([None, "two words"]))
        await collection.upsert(table, durable=True)
        assert (await collection.get(["a", "b"], ("id", "text", "attributes"))).to_pylist() == [
            {"id": "a", "text": None, "attributes": {"lang": "en"}},
            {"id": "b", "text": "two words", "attributes": {"lang": None}},
        ]
        assert (await collection.search(text="words"))["id"].to_pylist() == ["b"]
        assert await ids_of(collection, filter=attribute("lang") == "en") == ["a"]

    with_store(work)


def test_attributes_that_are_all_missing_say_nothing(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a"], [[1, 0]]).append_column("attributes", pa.nulls(1)), durable=True)
        assert (await collection.stats()).attributes == {}

    with_store(work)


def test_a_moment_that_could_never_be_read_is_refused(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        for microseconds in (1 << 62, -(1 << 62)):
            moments = pa.array([0, microseconds], pa.timestamp("us"))
            with pytest.raises(InvalidInput, match=r"'seen'.*years are 1 to 9999"):
                await collection.upsert(rows(["a", "b"], np.eye(2), seen=moments))
        ends = pa.array(["0001-01-01", "9999-12-31"]).cast(pa.timestamp("us"))
        await collection.upsert(rows(["a", "b"], np.eye(2), seen=ends), durable=True)
        found = (await collection.get(["a", "b"], ("attributes",)))["attributes"].to_pylist()
        assert [row["seen"].year for row in found] == [1, 9999]

    with_store(work)


@pytest.mark.parametrize(
    ("where", "why"),
    [(attribute("share") == (1 << 60) + 1, "'share'"), (attribute("lang") == "\ud800", "'lang'.*surrogate")],
)
def test_a_filter_value_that_its_attribute_cannot_hold_is_refused(rows: Make, where: Any, why: str) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a"], [[1, 0]], share=[0.5], lang=["en"]), durable=True)
        with pytest.raises(InvalidInput, match=why):
            await collection.search([[0.0, 0.0]], filter=where)

    with_store(work)


@pytest.mark.parametrize("table", [None, [{"id": "a"}], {"id": ["a"]}])
def test_rows_that_are_no_arrow_table_are_refused(table: Any) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        with pytest.raises(InvalidInput, match="Arrow table"):
            await collection.upsert(table)

    with_store(work)


def test_a_removal_without_a_filter_is_refused_and_removes_nothing(rows: Make) -> None:
    """Elsewhere None stands for all rows; a program whose filter is missing must not lose them."""

    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a", "b"], [[0.0, 0.0], [1.0, 0.0]], year=[1, 2]))
        await store.flush()
        missing: Any
        for missing in (None, True, "year = 1", {}):
            with pytest.raises(InvalidInput, match="nothing was deleted"):
                await collection.delete_where(missing)
        assert await collection.count() == 2
        assert await collection.delete_where(attribute("year") >= 2) == 1

    with_store(work)


def test_columns_limits_and_names_that_are_none_are_refused_by_what_they_are(rows: Make) -> None:
    async def work(store: VectorStore, collection: Collection) -> None:
        await collection.upsert(rows(["a"], [[0.0, 0.0]], year=[1]))
        await store.flush()
        calls: list[Callable[[Any], Awaitable[object]]] = [
            lambda odd: collection.search([[0.0, 0.0]], columns=odd),
            lambda odd: collection.get(["a"], odd),
            lambda odd: anext(collection.scan(columns=odd)),
            lambda odd: anext(collection.scan(page_rows=odd)),
            lambda odd: collection.facet(odd),
            lambda odd: collection.facet("year", limit=odd),
            collection.current_version,
            store.drop,
        ]
        for call in calls:
            for odd in (None, 1.5, b"text", ["text", None], object()):
                with pytest.raises(InvalidInput):
                    await call(odd)
        for one_alone in ("text", ""):
            with pytest.raises(InvalidInput, match="a list of names"):
                await collection.get(["a"], one_alone)
        with pytest.raises(InvalidInput, match="a tenant, an index and a model"):
            await store.compact("tenant/index/model")  # type: ignore[arg-type]

    with_store(work)
