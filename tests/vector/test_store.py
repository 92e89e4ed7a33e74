"""The store's promises to its callers: one moment per answer, nothing half-done, nothing lost that was vouched for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import QUIET, collection_of, found, opened, with_store

from penstock.coordinator import CoordinatorConfig
from penstock.errors import AtCapacity, InvalidInput, NotFound
from penstock.keyvalue import MemoryVolume
from penstock.vector import (
    ALL_LISTS,
    Collection,
    Fusion,
    VectorConfig,
    VectorStore,
    attribute,
    partial_blocks,
)

Make = Callable[..., pa.Table]


class TestWriting:
    def test_a_row_is_found_by_id_vector_text_and_attribute_after_the_flush(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            table = rows(["a", "b"], [[1, 0], [5, 5]], ["red stone", "blue lamp"], stars=[3, 4])
            handle = await collection.upsert(table)
            assert await found(collection) == []
            await store.flush()
            await handle.durable()
            assert await found(collection) == ["a", "b"]
            assert await found(collection, filter=attribute("stars") >= 4) == ["b"]
            assert (await collection.search(text="lamp"))["id"].to_pylist() == ["b"]
            assert (await collection.get(["b", "nobody", "a"])).to_pylist() == [
                {"id": "b", "vector": [5, 5], "text": "blue lamp", "attributes": {"stars": 4}},
                {"id": "a", "vector": [1, 0], "text": "red stone", "attributes": {"stars": 3}},
            ]

        with_store(work)

    def test_the_last_write_of_an_id_wins_inside_a_flush_and_across(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a", "b"], [[1, 0], [2, 0]]))
            await collection.upsert(rows(["a"], [[3, 0]]), durable=True)
            assert (await collection.get(["a"]))["vector"].to_pylist() == [[3, 0]]
            await collection.upsert(rows(["a"], [[4, 0]]), durable=True)
            assert (await collection.get(["a"]))["vector"].to_pylist() == [[4, 0]]
            assert sorted(await found(collection)) == ["a", "b"]

        with_store(work)

    def test_deleted_rows_are_gone_and_unknown_ids_are_no_error(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a", "b"], [[1, 0], [2, 0]]), durable=True)
            await collection.delete(["a", "nobody", "a"], durable=True)
            assert await found(collection) == ["b"]
            assert (await collection.get(["a"])).num_rows == 0
            assert (await collection.stats()).rows == 1

        with_store(work)

    def test_rows_of_many_versions_in_one_table_are_hidden_and_shown_each_with_its_own(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            table = rows(["a", "b", "c"], [[1, 0], [2, 0], [3, 0]])
            changes = store.changes().upsert_versions(
                collection, table, [("one", "1", 2), ("none", "1", 0), ("two", "7", 1)]
            )
            await store.write(changes.flip(collection, "one", "1"), durable=True)
            assert sorted(await found(collection)) == ["a", "b"]
            await collection.flip("two", "7", durable=True)
            await collection.remove_document("one", durable=True)
            assert await found(collection) == ["c"]

        with_store(work)

    @pytest.mark.parametrize("counts", [(1, 1), (2, 2), (4, -1)])
    def test_versions_that_do_not_share_out_the_rows_of_their_table_are_refused(
        self, rows: Make, counts: tuple[int, int]
    ) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            table = rows(["a", "b", "c"], [[1, 0], [2, 0], [3, 0]])
            with pytest.raises(InvalidInput):
                store.changes().upsert_versions(collection, table, [("one", "1", counts[0]), ("two", "1", counts[1])])

        with_store(work)

    def test_a_row_written_and_deleted_in_one_flush_never_was(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a", "b"], [[1, 0], [2, 0]]))
            await collection.delete(["a"])
            await store.flush()
            assert await found(collection) == ["b"]
            assert (await collection.verify()).problems == []

        with_store(work)

    def test_rows_without_text_or_attributes_stand_beside_rows_with(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            moment = datetime(2024, 5, 6, tzinfo=UTC)
            await collection.upsert(rows(["a"], [[1, 0]]))
            await collection.upsert(rows(["b"], [[2, 0]], ["text"], at=[moment], ok=[True], price=[1.5], name=["x"]))
            await store.flush()
            assert (await collection.get(["a", "b"], ("text", "attributes"))).to_pylist() == [
                {"text": None, "attributes": {"at": None, "name": None, "ok": None, "price": None}},
                {"text": "text", "attributes": {"at": moment, "name": "x", "ok": True, "price": 1.5}},
            ]

        with_store(work)

    def test_changes_to_several_collections_become_visible_together(self, rows: Make) -> None:
        """One snapshot serves all collections: no reader sees one changed and the other not."""

        async def work(store: VectorStore, collection: Collection) -> None:
            other = await store.collection("tenant", "other", "model", dimensions=2, metric="l2")
            changes = store.changes("queue", 1)
            changes.upsert(collection, rows(["a"], [[1, 0]])).upsert(other, rows(["b"], [[1, 0]]))
            await store.write(changes, durable=True)
            assert await found(collection) == ["a"]
            assert await found(other) == ["b"]
            assert await store.collections() == [other.name, collection.name][::-1]
            assert [stats.rows for stats in await store.stats()] == [1, 1]

        with_store(work)

    def test_a_full_buffer_gives_the_write_back(self, rows: Make) -> None:
        async def run() -> None:
            volume = MemoryVolume()
            tight = CoordinatorConfig(max_pending_bytes=2000, max_buffered_bytes=2000)
            async with await opened(volume, VectorConfig(coordinator=tight)) as store:
                collection = await collection_of(store)
                volume.hold()
                await collection.upsert(rows(["a"], [[1, 0]]))
                with pytest.raises(AtCapacity) as refused:
                    for number in range(10):
                        await collection.upsert(rows([f"r{number}"], [[1, 0]]), timeout=0.01)
                assert refused.value.rejected.changes[0].operations
                volume.release()

        asyncio.run(run())


class TestBadInput:
    """Refused by name, and nothing is half-done."""

    @pytest.mark.parametrize(
        ("vector", "why"),
        [([1.0, 2.0, 3.0], "3 dimensions"), ([float("nan"), 1.0], "NaN"), ([float("inf"), 1.0], "infinity")],
    )
    def test_a_bad_vector_refuses_the_whole_call(self, rows: Make, vector: list[float], why: str) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            table = pa.table({"id": ["good", "bad"], "vector": pa.array([[1.0, 2.0], vector], pa.list_(pa.float64()))})
            with pytest.raises(InvalidInput, match=f"'bad'.*{why}"):
                await collection.upsert(table)
            await store.flush()
            assert await found(collection) == []

        with_store(work)

    def test_an_id_twice_refuses_the_whole_call(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            with pytest.raises(InvalidInput, match="'a' occurs twice"):
                await collection.upsert(rows(["a", "a"], [[1, 0], [2, 0]]))
            await store.flush()
            assert await found(collection) == []

        with_store(work)

    def test_a_filter_of_unknown_type_or_attribute_is_refused(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a"], [[1, 0]], stars=[3]), durable=True)
            for where in (attribute("stars") == b"3", attribute("colour") == "red", attribute("stars") == "3"):
                with pytest.raises(InvalidInput):
                    await collection.search([[1, 0]], filter=where)

        with_store(work)

    def test_an_attribute_cannot_change_its_type_not_even_before_the_flush(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a"], [[1, 0]], stars=[3]))
            with pytest.raises(InvalidInput, match="in this collection it is integer"):
                await collection.upsert(rows(["b"], [[1, 0]], stars=["three"]))
            await store.flush()
            with pytest.raises(InvalidInput, match="in this collection it is integer"):
                await collection.upsert(rows(["b"], [[1, 0]], stars=["three"]))
            assert await found(collection) == ["a"]

        with_store(work)

    def test_a_collection_keeps_its_dimensions_and_metric(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            for options in ({"dimensions": 3}, {"metric": "cosine"}):
                with pytest.raises(InvalidInput, match="it has"):
                    await collection_of(store, **options)
            with pytest.raises(InvalidInput, match="metrics are"):
                await collection_of(store, metric="manhattan")
            with pytest.raises(InvalidInput, match="dimensions = 0"):
                await store.collection("tenant", "new", "model", dimensions=0)
            with pytest.raises(NotFound):
                await store.collection("tenant", "new", "model")

        with_store(work)

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"k": 0}, "k = 0"),
            ({"k": 10_001}, "k = 10001"),
            ({"probes": 0}, "probes = 0"),
            ({"recall_target": 1.5}, "recall_target"),
            ({"recall_target": "0.9"}, "recall_target"),
            ({"recall_target": True}, "recall_target"),
            ({"fusion": "rank"}, "fusion"),
            ({"group": 5}, "group"),
            ({"probes": 3, "recall_target": 0.9}, "both given"),
            ({"vectors": None}, "needs a query"),
            ({"text": ["a", "b"]}, "1 vectors and 2 texts"),
            ({"columns": ["colour"]}, "column 'colour'"),
            ({"vectors": [[1.0, float("nan")]]}, "NaN"),
        ],
    )
    def test_a_search_that_cannot_be_made_is_refused(self, rows: Make, options: dict[str, Any], why: str) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a"], [[1, 0]]), durable=True)
            with pytest.raises(InvalidInput, match=why):
                await collection.search(**{"vectors": [[1.0, 0.0]]} | options)

        with_store(work)

    def test_a_source_needs_a_position_and_a_version_its_document(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            with pytest.raises(InvalidInput, match="give both"):
                await collection.upsert(rows(["a"], [[1, 0]]), source="queue")
            with pytest.raises(InvalidInput, match="position of 'queue' = -1"):
                await collection.upsert(rows(["a"], [[1, 0]]), source="queue", position=-1)
            with pytest.raises(InvalidInput, match="need both"):
                await collection.upsert(rows(["a"], [[1, 0]]), version="v1")

        with_store(work)


class TestSearching:
    def test_an_empty_collection_answers_with_an_empty_table(self) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            for answer in (
                await collection.search([[1, 0]]),
                await collection.search(text="x"),
                await collection.search([[1, 0]], text="x", filter=attribute("nothing") == 1),
            ):
                assert answer.num_rows == 0
                assert answer.column_names == ["query", "id", "score", "similarity", "bm25"]
            assert (await collection.get(["a"])).num_rows == 0
            assert (await collection.verify()).problems == []

        with_store(work)

    def test_many_queries_are_answered_in_one_table(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a", "b"], [[1, 0], [5, 5]]), durable=True)
            answer = await collection.search([[1, 0], [5, 5], [4, 4]], 1)
            assert answer["query"].to_pylist() == [0, 1, 2]
            assert answer["id"].to_pylist() == ["a", "b", "b"]
            assert np.allclose(answer["similarity"].to_pylist(), [0, 0, -(2**0.5)])

        with_store(work)

    def test_vector_and_text_are_joined_by_rank_or_by_weight(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            names = ["near", "told", "both", "far", "farther"]
            vectors = [[0, 1], [9, 9], [0, 2], [5, 5], [6, 6]]
            table = rows(names, vectors, ["x", "stone stone", "a stone here", "x", "x"])
            await collection.upsert(table, durable=True)
            answer = await collection.search([[0, 0]], 5, text="stone")
            assert answer["id"].to_pylist()[0] == "both"
            assert answer["bm25"].to_pylist()[answer["id"].to_pylist().index("near")] is None
            by_text = await collection.search([[0, 0]], 3, text="stone", fusion=Fusion.weighted(0.0))
            assert by_text["id"].to_pylist()[0] == "told"

        with_store(work)

    def test_columns_come_with_the_answer_when_asked_for(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a"], [[1, 0]], ["hello"], stars=[3]), durable=True)
            (answer,) = (await collection.search([[1, 0]], columns=("text", "attributes", "vector"))).to_pylist()
            assert (answer["text"], answer["attributes"], answer["vector"]) == ("hello", {"stars": 3}, [1, 0])

        with_store(work)

    def test_fewer_rows_than_asked_for_are_no_error(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a"], [[1, 0]]), durable=True)
            assert (await collection.search([[1, 0]], 50)).num_rows == 1
            assert (await collection.search([[1, 0]], 50, rerank=False)).num_rows == 1

        with_store(work)

    def test_a_recall_target_is_met_with_a_part_of_the_lists(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            random = np.random.default_rng(5)
            middles = random.standard_normal((60, 2)) * 30
            vectors = (middles[random.integers(0, 60, 3000)] + random.standard_normal((3000, 2))).astype(np.float32)
            await collection.upsert(rows([f"r{n}" for n in range(3000)], vectors), durable=True)
            queries = vectors[::30] + 0.01
            exact = (await collection.search(queries, 10, probes=ALL_LISTS))["id"].to_numpy().reshape(-1, 10)
            near = (await collection.search(queries, 10, recall_target=0.9))["id"].to_numpy().reshape(-1, 10)
            recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact, near, strict=True)])
            assert recall >= 0.9
            calibration = next(iter(store.searcher._calibrations.values()))
            assert calibration.probes(0.9) < calibration.lists / 2

        with_store(work)

    def test_a_cache_far_smaller_than_the_data_changes_no_answer(self, rows: Make) -> None:
        """And no write: what is not flushed lies in the coordinator, never in a cache that may evict it."""

        async def run() -> None:
            random = np.random.default_rng(1)
            vectors = random.standard_normal((600, 2)).astype(np.float32)
            tables = [rows([f"r{n}" for n in range(s, s + 100)], vectors[s : s + 100]) for s in range(0, 600, 100)]
            answers = []
            for cache_bytes in (1, 3000, 1 << 20):
                config = VectorConfig(list_rows=8, cache_bytes=cache_bytes, coordinator=QUIET)
                async with await opened(MemoryVolume(), config) as store:
                    collection = await collection_of(store)
                    for table in tables:
                        await collection.upsert(table)
                        await store.flush()
                    assert store._coordinator.current.snapshot.blocks.cache.size_bytes <= cache_bytes
                    answers.append((await collection.search(vectors[:20], 5, probes=ALL_LISTS)).to_pylist())
            assert answers[0] == answers[1] == answers[2]

        asyncio.run(run())


class TestOneMoment:
    def test_a_search_during_a_flush_and_a_split_sees_before_or_after(self, rows: Make) -> None:
        """Searches run beside flushes that replace every row and reshape lists: each answer is of one flush."""

        async def work(store: VectorStore, collection: Collection) -> None:
            ids = [f"r{n}" for n in range(60)]

            async def generation(number: int) -> None:
                vectors = np.random.default_rng(number).standard_normal((60, 2)) + 100 * number
                await collection.upsert(rows(ids, vectors, generation=[number] * 60))
                await store.flush(durable=False)

            await generation(0)
            seen: set[int] = set()

            async def look() -> None:
                while len(seen) < 6:
                    answer = await collection.search([[0.0, 0.0]], 60, probes=ALL_LISTS, columns=("attributes",))
                    generations = {row["generation"] for row in answer["attributes"].to_pylist()}
                    assert len(generations) == 1
                    assert sorted(answer["id"].to_pylist()) == sorted(ids)
                    seen.update(generations)
                    await asyncio.sleep(0)

            async def replace() -> None:
                number = 0
                while len(seen) < 6:
                    number += 1
                    await generation(number)

            await asyncio.wait_for(asyncio.gather(look(), look(), replace()), 60)
            await store.compact()
            assert (await collection.verify()).problems == []

        with_store(work)

    def test_a_search_that_waits_for_a_block_keeps_its_moment_while_the_store_moves_on(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            ids = [f"r{n}" for n in range(40)]
            await collection.upsert(rows(ids, np.random.default_rng(1).standard_normal((40, 2))), durable=True)
            snapshot = store._coordinator.current.snapshot
            held, resume = asyncio.Event(), asyncio.Event()
            get_many = snapshot.reader.get_many

            async def slow_get_many(keys: Any) -> Any:
                # The first call is the search's; the flush below reads the same snapshot.
                if not held.is_set():
                    held.set()
                    await resume.wait()
                return await get_many(keys)

            snapshot.reader.get_many = slow_get_many  # type: ignore[method-assign]
            search = asyncio.create_task(collection.search([[0.0, 0.0]], 100, probes=ALL_LISTS))
            await held.wait()
            await collection.delete(ids, durable=True)
            await store.compact()
            resume.set()
            answer = await search
            assert sorted(answer["id"].to_pylist()) == sorted(ids)
            assert partial_blocks(answer) == []
            assert await found(collection) == []

        with_store(work, config=VectorConfig(list_rows=8, cache_bytes=1, coordinator=QUIET))

    def test_snapshots_that_nobody_reads_are_closed(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            for number in range(10):
                await collection.upsert(rows([f"r{number}"], [[1, number]]), durable=True)
            assert len(store._handler._open) <= 3

        with_store(work)
