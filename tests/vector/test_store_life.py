"""A store over its life: exactly once, through failures, versions of documents, and upkeep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import QUIET, collection_of, found, opened, with_store

from penstock.blocks import STORE, BlockReader, RecordKind
from penstock.coordinator import CoordinatorConfig
from penstock.errors import Closed, Fenced, OutcomeUnknown, Unavailable, Unsupported
from penstock.keyvalue import MemoryKeyValue, MemoryVolume, WriteBatch
from penstock.observability import names
from penstock.testing import RecordingObserver
from penstock.vector import (
    Collection,
    CollectionName,
    VectorConfig,
    VectorStore,
)
from penstock.vector.format.state import CollectionState, Head, StoreRecord, SweepKind
from penstock.vector.format.store_format import FORMAT, FORMAT_VERSION

Make = Callable[..., pa.Table]


class TestExactlyOnce:
    def test_a_position_is_stored_with_its_data_and_handed_back_at_open(self, rows: Make) -> None:
        async def run() -> None:
            volume = MemoryVolume()
            async with await opened(volume) as store:
                collection = await collection_of(store)
                assert store.position("queue") is None
                await collection.upsert(rows(["a"], [[1, 0]]), source="queue", position=41)
                await collection.upsert(rows(["b"], [[2, 0]]), source="other", position=7, durable=True)
                assert (store.position("queue"), store.position("other")) == (41, 7)
            async with await opened(volume) as store:
                assert (store.position("queue"), store.position("other")) == (41, 7)

        asyncio.run(run())

    def test_input_at_or_before_the_position_is_skipped(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a"], [[1, 0]]), source="queue", position=5, durable=True)
            for position in (3, 5):
                table = rows(["a", "b"], [[9, 9], [9, 9]])
                await collection.upsert(table, source="queue", position=position, durable=True)
            await collection.upsert(rows(["c"], [[3, 0]]), source="queue", position=6, durable=True)
            assert await found(collection) == ["a", "c"]
            assert (await collection.get(["a"]))["vector"].to_pylist() == [[1, 0]]

        with_store(work)

    def test_the_same_position_twice_inside_one_flush_is_taken_once(self, rows: Make) -> None:
        async def run() -> None:
            observer = RecordingObserver()
            async with await opened(MemoryVolume(), observer=observer) as store:
                collection = await collection_of(store)
                await collection.upsert(rows(["a"], [[1, 0]]), source="queue", position=1)
                await collection.upsert(rows(["a"], [[2, 0]]), source="queue", position=1)
                await store.flush()
                assert (await collection.get(["a"]))["vector"].to_pylist() == [[1, 0]]
                assert observer.counted(names.VECTOR_CHANGES_SKIPPED) == 1

        asyncio.run(run())

    def test_an_empty_change_moves_the_position_alone(self) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await store.write(store.changes("queue", 3), durable=True)
            assert store.position("queue") == 3

        with_store(work)


class TestFailure:
    def test_a_second_writer_fences_the_first_with_a_clear_error(self, rows: Make) -> None:
        async def run() -> None:
            volume = MemoryVolume()
            first = await opened(volume)
            collection = await collection_of(first)
            await collection.upsert(rows(["a"], [[1, 0]]), durable=True)
            async with await opened(volume) as second:
                assert await found(await collection_of(second)) == ["a"]
                with pytest.raises(Fenced, match="newer writer"):
                    await collection.upsert(rows(["b"], [[2, 0]]), durable=True)
                with pytest.raises(Fenced):
                    await collection.upsert(rows(["c"], [[2, 0]]))
                assert await found(await collection_of(second)) == ["a"]
            with pytest.raises(Fenced):
                await first.close()

        asyncio.run(run())

    def test_a_store_of_a_newer_format_is_refused_untouched(self) -> None:
        async def run() -> None:
            volume = MemoryVolume()
            newer = FORMAT.encode_record(RecordKind.STORE, StoreRecord(FORMAT_VERSION + 1, 0))
            volume.land("keyvalue", [(STORE, newer)])
            with pytest.raises(Unsupported, match=f"format {FORMAT_VERSION + 1}"):
                await opened(volume)
            assert volume.table("keyvalue").get(STORE) == newer

        asyncio.run(run())

    @pytest.mark.parametrize("landed", [False, True])
    def test_a_flush_that_cannot_become_durable_at_first_is_neither_lost_nor_doubled(
        self, rows: Make, landed: bool
    ) -> None:
        """The store fails before or after the write landed; the repeat writes nothing twice."""

        async def run() -> None:
            volume = MemoryVolume()
            quick = CoordinatorConfig(flush_interval_seconds=900, retry_pause_seconds=0.001)
            store = await opened(volume, VectorConfig(list_rows=8, coordinator=quick))
            collection = await collection_of(store)
            await collection.upsert(rows(["a"], [[1, 0]]), document="d", version="v1", durable=True)
            await collection.upsert(rows(["b"], [[2, 0]]), document="d", version="v2", durable=True)
            volume.fail(Unavailable("the store went away"), landed=landed)
            first = await collection.flip("d", "v1")
            await store.flush(durable=False)
            second = await collection.flip("d", "v2")
            await store.flush(durable=False)
            third = await collection.upsert(rows(["c"], [[3, 0]]))
            flushing = asyncio.create_task(store.flush())
            await asyncio.sleep(0.02)
            assert not flushing.done()
            volume.heal()
            await flushing
            for handle in (first, second, third):
                await handle.durable()
            assert await found(collection) == ["b", "c"]
            await store.close()
            async with await opened(volume) as again:
                collection = await collection_of(again)
                assert await found(collection) == ["b", "c"]
                assert (await collection.verify()).problems == []

        asyncio.run(run())

    def test_a_crash_keeps_what_was_durable_and_a_beginning_of_the_rest(self, rows: Make) -> None:
        async def run() -> None:
            volume = MemoryVolume()
            keyvalue = MemoryKeyValue(volume)
            hasty = CoordinatorConfig(flush_interval_seconds=900, retry_deadline_seconds=0.01)
            store = await VectorStore.over(keyvalue, VectorConfig(coordinator=hasty))
            collection = await collection_of(store)
            await collection.upsert(rows(["a"], [[1, 0]]), durable=True)
            volume.hold()
            handle = await collection.upsert(rows(["b"], [[2, 0]]))
            await store.flush(durable=False)
            assert await found(collection) == ["a", "b"]
            keyvalue.crash()
            with pytest.raises(OutcomeUnknown):
                await handle.durable()
            volume.release()
            async with await opened(volume) as again:
                assert await found(await collection_of(again)) == ["a"]

        asyncio.run(run())

    def test_every_batch_leaves_a_sound_store(self, rows: Make) -> None:
        """A row is never visible before its dictionary entry, nor a list before its centroid: after each single
        batch of a life of writes, flips and compactions, a store that holds only the batches so far is sound."""

        class Recorder(MemoryKeyValue):
            batches: list[list[tuple[bytes, bytes | None]]]

            async def write(self, batch: WriteBatch) -> Any:
                self.batches.append(list(batch.operations()))
                return await super().write(batch)

        async def live(recorder: Recorder) -> None:
            random = np.random.default_rng(2)
            async with await VectorStore.over(recorder, VectorConfig(list_rows=4, upkeep_bytes=500)) as store:
                collection = await collection_of(store)
                for number in range(6):
                    ids = [f"r{n}" for n in random.choice(60, 20, replace=False)]
                    await collection.upsert(rows(ids, random.standard_normal((20, 2)), ["some words"] * 20))
                    version: dict[str, Any] = {"document": "d", "version": f"v{number}"}
                    await collection.upsert(
                        rows([f"d{n}" for n in range(3)], random.standard_normal((3, 2))), **version
                    )
                    await collection.flip("d", f"v{number}")
                    await collection.delete([f"r{n}" for n in random.choice(60, 8, replace=False)], durable=True)
                await store.compact()

        async def run() -> None:
            recorder = Recorder()
            recorder.batches = []
            await live(recorder)
            assert len(recorder.batches) > 20
            volume = MemoryVolume()
            for batch in recorder.batches:
                volume.land("keyvalue", batch)
                async with await opened(volume) as store:
                    for report in await store.verify():
                        assert report.problems == []

        asyncio.run(run())

    def test_a_closed_store_refuses_everything(self, rows: Make) -> None:
        async def run() -> None:
            store = await opened(MemoryVolume())
            collection = await collection_of(store)
            await store.close()
            await store.close()
            with pytest.raises(Closed):
                await collection.upsert(rows(["a"], [[1, 0]]))
            with pytest.raises(Closed):
                await collection.search([[1, 0]])

        asyncio.run(run())

    def test_closing_flushes_what_was_accepted(self, rows: Make) -> None:
        async def run() -> None:
            volume = MemoryVolume()
            store = await opened(volume)
            await (await collection_of(store)).upsert(rows(["a"], [[1, 0]]))
            await store.close()
            async with await opened(volume) as again:
                assert await found(await collection_of(again)) == ["a"]

        asyncio.run(run())


class TestVersions:
    def test_a_version_is_hidden_until_it_is_current_and_the_old_one_leaves_at_that_moment(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            one: dict[str, Any] = {"document": "doc", "version": "v1"}
            two: dict[str, Any] = {"document": "doc", "version": "v2"}
            await collection.upsert(
                rows(["c0", "c1", "c2"], [[0, 1], [0, 2], [0, 3]], ["x", "x", "x"]), **one, durable=True
            )
            assert await found(collection) == []
            assert (await collection.search(text="x")).num_rows == 0
            await collection.flip("doc", "v1", durable=True)
            assert await found(collection) == ["c0", "c1", "c2"]
            await collection.upsert(rows(["c0", "c1"], [[0, 5], [0, 6]], ["y", "y"]), **two, durable=True)
            assert await found(collection) == ["c0", "c1", "c2"]
            assert (await collection.get(["c0"]))["vector"].to_pylist() == [[0, 1]]
            assert (await collection.stats()).hidden_rows == 2
            await collection.flip("doc", "v2", durable=True)
            assert await found(collection) == ["c0", "c1"]
            assert (await collection.get(["c0"]))["vector"].to_pylist() == [[0, 5]]
            assert (await collection.search(text="x")).num_rows == 0
            assert await collection.current_version("doc") == "v2"
            assert (await collection.verify()).problems == []

        with_store(work)

    def test_writing_and_flipping_in_one_flush_is_the_same(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            for number in (1, 2):
                changes = store.changes("queue", number)
                table = rows(["c0", f"c{number}"], [[0, number], [number, 0]])
                changes.begin_version(collection, "doc", f"v{number}")
                changes.upsert(collection, table, document="doc", version=f"v{number}")
                changes.flip(collection, "doc", f"v{number}")
                await store.write(changes)
            await store.flush()
            assert sorted(await found(collection)) == ["c0", "c2"]
            assert (await collection.verify()).problems == []

        with_store(work)

    def test_flipping_again_and_replaying_rows_of_the_current_version_change_nothing(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            version: dict[str, Any] = {"document": "doc", "version": "v1"}
            for _ in range(3):
                await collection.upsert(rows(["c0", "c1"], [[0, 1], [0, 2]]), **version, durable=True)
                await collection.flip("doc", "v1", durable=True)
                assert await found(collection) == ["c0", "c1"]
            assert (await collection.stats()).hidden_rows == 0

        with_store(work)

    def test_a_failed_attempt_is_dropped_when_the_version_begins_again(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            version: dict[str, Any] = {"document": "doc", "version": "v1"}
            await collection.upsert(rows(["c0", "c1", "stale"], np.ones((3, 2))), **version, durable=True)
            await collection.begin_version("doc", "v1")
            await collection.upsert(rows(["c0", "c1"], np.ones((2, 2))), **version)
            await collection.flip("doc", "v1", durable=True)
            assert sorted(await found(collection)) == ["c0", "c1"]

        with_store(work)

    def test_a_version_without_rows_empties_the_document(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["c0"], [[1, 0]]), document="doc", version="v1")
            await collection.flip("doc", "v1")
            await collection.flip("doc", "v2", durable=True)
            assert await found(collection) == []
            assert await collection.current_version("doc") == "v2"

        with_store(work)

    def test_removing_a_document_takes_all_its_versions_and_no_other_document(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            for document in ("doc", "other"):
                await collection.upsert(rows([f"{document}-0"], [[1, 0]]), document=document, version="v1")
                await collection.flip(document, "v1")
            await collection.upsert(rows(["doc-1"], [[1, 0]]), document="doc", version="v2", durable=True)
            await collection.remove_document("doc", durable=True)
            await collection.flip("doc", "v2", durable=True)
            assert await found(collection) == ["other-0"]

        with_store(work)

    def test_discarding_a_version_leaves_the_current_one_alone(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["c0"], [[1, 0]]), document="doc", version="v1")
            await collection.flip("doc", "v1", durable=True)
            await collection.upsert(rows(["c0"], [[2, 0]]), document="doc", version="v2", durable=True)
            for version in ("v1", "v2"):
                await collection.discard_version("doc", version, durable=True)
            assert await found(collection) == ["c0"]
            assert (await collection.stats()).hidden_rows == 0

        with_store(work)


class TestUpkeep:
    def test_lists_split_as_rows_arrive_and_dissolve_as_they_leave(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            vectors = np.random.default_rng(3).standard_normal((500, 2))
            for start in range(0, 500, 50):
                ids = [f"r{n}" for n in range(start, start + 50)]
                await collection.upsert(rows(ids, vectors[start : start + 50]), durable=True)
            full = await collection.stats()
            assert full.lists > 15
            assert full.list_rows_max <= 64
            await collection.delete([f"r{n}" for n in range(480)], durable=True)
            await store.compact()
            assert (await collection.stats()).lists < 6
            assert sorted(await found(collection)) == sorted(f"r{n}" for n in range(480, 500))
            assert (await collection.verify()).problems == []

        with_store(work, config=VectorConfig(list_rows=32, coordinator=QUIET))

    def test_dead_rows_are_swept_out_when_the_store_is_tended(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            ids = [f"r{n}" for n in range(200)]
            for generation in range(8):
                vectors = np.random.default_rng(generation).standard_normal((200, 2))
                await collection.upsert(rows(ids, vectors, [f"generation {generation}"] * 200), durable=True)
            await store.tend()
            stats = await collection.stats()
            assert stats.rows == 200
            assert stats.dead_rows <= 0.25 * 200
            assert (await collection.verify()).problems == []

        with_store(work)

    def test_compaction_takes_steps_and_leaves_one_fragment_a_bucket(self, rows: Make) -> None:
        async def run() -> None:
            config = VectorConfig(list_rows=8, upkeep_bytes=4000, coordinator=QUIET)
            async with await opened(MemoryVolume(), config) as store:
                collection = await collection_of(store)
                random = np.random.default_rng(4)
                for start in range(0, 300, 10):
                    ids = [f"r{n}" for n in range(start, start + 10)]
                    table = rows(ids, random.standard_normal((10, 2)), ["a word"] * 10, stars=[1] * 10)
                    await collection.upsert(table, durable=True)
                before = await collection.stats()
                commits = store._coordinator.watermarks.durable
                await store.compact(CollectionName("tenant", "index", "model"))
                assert store._coordinator.watermarks.durable > commits + 3
                after = await collection.stats()
                assert after.blocks < before.blocks
                assert len(await found(collection, k=1000)) == 300
                assert (await collection.verify()).problems == []

        asyncio.run(run())

    def test_a_collection_that_has_doubled_gets_its_lists_shaped_anew_when_the_store_is_tended(
        self, rows: Make
    ) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            random = np.random.default_rng(9)
            early = random.standard_normal((300, 2))
            await collection.upsert(rows([f"e{n}" for n in range(300)], early), durable=True)
            await collection.upsert(rows(["one more"], [[0, 0]]), durable=True)
            assert (await head_of(store, collection)).shaped == 300
            late = random.standard_normal((400, 2)) * 3 + 5
            await collection.upsert(rows([f"l{n}" for n in range(400)], late), durable=True)
            assert (await head_of(store, collection)).shaped == 300
            await store.tend()
            head = await head_of(store, collection)
            assert (head.shaped, head.sweep) == (701, None)
            assert (await collection.verify()).problems == []

        with_store(work, config=VectorConfig(list_rows=32, coordinator=QUIET))

    def test_a_collection_of_which_a_tenth_was_replaced_gets_its_lists_shaped_anew(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            random = np.random.default_rng(9)
            names = [f"r{n}" for n in range(300)]
            await collection.upsert(rows(names, random.standard_normal((300, 2))), durable=True)
            await store.tend()
            await collection.upsert(rows(names[:29], random.standard_normal((29, 2)) + 5), durable=True)
            shaped = await centres_of(store, collection)
            await store.tend()
            assert (await head_of(store, collection)).replaced == 29
            assert await centres_of(store, collection) == shaped
            await collection.upsert(rows(names[29:30], random.standard_normal((1, 2)) + 5), durable=True)
            await store.tend()
            assert not (await head_of(store, collection)).replaced
            assert await centres_of(store, collection) != shaped
            assert (await collection.verify()).problems == []

        with_store(work, config=VectorConfig(list_rows=32, coordinator=QUIET))

    def test_a_version_that_becomes_current_replaces_the_one_before(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            for version in ("v1", "v2"):
                names = [f"{version} {n}" for n in range(3)]
                await collection.upsert(rows(names, np.ones((3, 2))), document="d", version=version, durable=True)
                assert not (await head_of(store, collection)).replaced
                await collection.flip("d", version, durable=True)
            assert (await head_of(store, collection)).replaced == 3

        with_store(work)

    def test_rows_that_are_new_or_go_away_replace_nothing(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            await collection.upsert(rows(["a", "b", "c"], np.eye(3)[:, :2] + 1), durable=True)
            await collection.delete(["a", "b"], durable=True)
            assert not (await head_of(store, collection)).replaced

        with_store(work)

    def test_compaction_is_whole_even_if_lists_are_just_being_shaped(self, rows: Make) -> None:
        async def work(store: VectorStore, collection: Collection) -> None:
            random = np.random.default_rng(9)
            for number in range(10):
                ids = [f"r{n}" for n in range(100 * number, 100 * number + 100)]
                await collection.upsert(rows(ids, random.standard_normal((100, 2))), durable=True)
            await collection.delete([f"r{n}" for n in range(30)], durable=True)
            sweep = (await head_of(store, collection)).sweep
            assert sweep is not None
            assert sweep.kind is SweepKind.LISTS
            await store.compact()
            head = await head_of(store, collection)
            assert (head.sweep, head.dead) == (None, 0)
            assert len(await found(collection, k=1000)) == 970

        with_store(work, config=VectorConfig(list_rows=8, upkeep_bytes=300, coordinator=QUIET))


async def centres_of(store: VectorStore, collection: Collection) -> list[list[float]]:
    async def look(_: BlockReader, state: CollectionState) -> list[list[float]]:
        centres: list[list[float]] = state.centroids.vectors.tolist()
        return centres

    return await store.read(collection.spec, look)


async def head_of(store: VectorStore, collection: Collection) -> Head:
    async def look(_: BlockReader, state: CollectionState) -> Head:
        return state.head

    return await store.read(collection.spec, look)


@pytest.mark.slow
def test_hundreds_of_collections_in_one_flush_are_all_written_and_tended(rows: Make) -> None:
    """More than stay open at once, of which one needs upkeep at once."""

    async def work() -> None:
        config = VectorConfig(list_rows=2, threads=1, collections_open=16, coordinator=QUIET)
        volume = MemoryVolume()
        async with await opened(volume, config) as store:
            names = [f"m{n}" for n in range(300)]
            many = [await store.collection("t", "i", name, dimensions=2, metric="l2") for name in names]
            for collection in many:
                await collection.upsert(rows(["a"], [[1, 1]]))
            await many[7].upsert(rows([f"r{n}" for n in range(60)], np.random.default_rng(1).standard_normal((60, 2))))
            await store.flush()
            await many[7].delete([f"r{n}" for n in range(59)])
            for collection in many:
                await collection.upsert(rows(["b"], [[2, 2]]))
            await store.flush()
            for collection in many[::50]:
                assert sorted(await found(collection)) == ["a", "b"]
            assert sorted(await found(many[7])) == ["a", "b", "r59"]
        async with await opened(volume, config) as store:
            assert len(await store.collections()) == 300
            assert (await (await store.collection("t", "i", "m7")).verify()).sound

    asyncio.run(work())
