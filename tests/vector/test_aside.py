"""One damaged value stops nobody else: the collection is set aside, or the source, and everything else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pyarrow as pa
import pytest
from tests.vector.stores import QUIET, found, opened
from tests.vector.test_damage import every_value, lived_in

from penstock.blocks import STORE, RecordKind
from penstock.blocks.format.keys import head_key, position_key
from penstock.errors import Corrupt
from penstock.keyvalue import MemoryFollower, MemoryVolume
from penstock.observability import names
from penstock.testing import RecordingObserver
from penstock.vector import CollectionName, VectorConfig, VectorReader, VectorStore
from penstock.vector.format.keys import collection_key, collection_prefix
from penstock.vector.format.state import StoreRecord
from penstock.vector.format.store_format import FORMAT

Make = Callable[..., pa.Table]
NAME = CollectionName("t", "i", "m")
_CONFIG = VectorConfig(list_rows=8, threads=1, coordinator=QUIET)


def run(work: Callable[[MemoryVolume], Awaitable[None]]) -> None:
    async def main() -> None:
        await work(MemoryVolume())

    asyncio.run(main())


def records(volume: MemoryVolume) -> dict[str, tuple[bytes, bytes]]:
    """Every value that a collection can lose, one of each kind, with what cannot be opened without it."""
    table = volume.table("keyvalue")
    values = {"record": collection_key(NAME), "head": head_key(collection_prefix(0))}
    return every_value(volume) | {name: (key, table.get(key) or b"") for name, key in values.items()}


def break_value(volume: MemoryVolume, key: bytes, value: bytes) -> None:
    volume.land("keyvalue", [(key, value[:-1] + bytes([value[-1] ^ 1]))])


async def write_to_both(store: VectorStore, rows: Make) -> list[str]:
    """A write to the damaged collection and one to the other, in one flush; returns what the first is told."""
    told = []
    try:
        collection = await store.collection("t", "i", "m")
        handle = await collection.upsert(rows(["r1", "new"], [[5, 5], [6, 6]]))
    except Corrupt as error:
        told.append(str(error))
        handle = None
    other = await store.collection("t", "i", "untouched")
    kept = await other.upsert(rows(["new"], [[0, 0]]))
    try:
        await store.flush()
    except Corrupt as error:
        told.append(str(error))
    await kept.durable()
    if handle is not None:
        try:
            await handle.durable()
        except Corrupt as error:
            told.append(str(error))
    return told


@pytest.mark.slow
def test_whatever_value_is_damaged_others_are_written_to_and_the_damaged_one_is_named(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        before = dict(volume.table("keyvalue").entries(b"", None, reverse=False))
        for name, (key, value) in records(volume).items():
            break_value(volume, key, value)
            async with await opened(volume, _CONFIG) as store:
                told = await write_to_both(store, rows)
                assert all("t/i/m" in each for each in told), name
                other = await store.collection("t", "i", "untouched")
                assert "new" in await found(other)
                # The writer goes on, drops the damaged one at once, and makes it anew.
                if told:
                    assert await store.drop(NAME), name
                    again = await store.collection("t", "i", "m", dimensions=3, metric="dot")
                    await again.upsert(rows(["x"], [[1, 2, 3]]), durable=True)
                    assert await found(again, (1, 2, 3)) == ["x"]
                left = [key for key, _ in volume.table("keyvalue").entries(b"", None, reverse=False)]
                assert bool(told) == (not any(key.startswith(collection_prefix(0)) for key in left)), name
                assert [report.problems for report in await store.verify()] == [[], []] or not told, name
            after = dict(volume.table("keyvalue").entries(b"", None, reverse=False))
            volume.land("keyvalue", [*((key, None) for key in after), *before.items()])

    run(work)


def test_a_change_that_names_a_damaged_collection_is_refused_whole_and_its_source_stays_there(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        key, value = next(pair for name, pair in every_value(volume).items() if name.startswith("dictionary"))
        break_value(volume, key, value)
        observer = RecordingObserver()
        async with await opened(volume, _CONFIG, observer=observer) as store:
            collection, other = [await store.collection("t", "i", model) for model in ("m", "untouched")]
            both = store.changes("queue", 7)
            for each, ids in ((collection, ["r1"]), (other, ["from-7"])):
                both.upsert(each, rows(ids, [[1, 1]]))
            first = await store.write(both)
            later = await store.write(store.changes("queue", 8).upsert(other, rows(["from-8"], [[1, 1]])))
            bystander = await other.upsert(rows(["from-another"], [[1, 1]]), source="another", position=3)
            await store._coordinator.flush()
            await bystander.durable()
            for handle in (first, later):
                with pytest.raises(Corrupt, match="t/i/m is damaged and takes no writes"):
                    await handle.durable()
            assert (store.position("queue"), store.position("another")) == (None, 3)
            assert {"from-7", "from-8", "from-another"} & set(await found(other)) == {"from-another"}
            assert observer.events(names.VECTOR_COLLECTION_ASIDE)[0]["collection"] == "t/i/m"
            # Known by now: refused before anything is taken, and still before what comes after it.
            for position in (7, 8):
                with pytest.raises(Corrupt, match="t/i/m"):
                    await store.write(store.changes("queue", position).upsert(collection, rows(["r1"], [[1, 1]])))
            with pytest.raises(Corrupt, match="the one at 7 was refused"):
                await other.upsert(rows(["x"], [[1, 1]]), source="queue", position=8)
            await store.drop(NAME)
            await store.write(both, durable=True)
            await other.upsert(rows(["from-8"], [[1, 1]]), source="queue", position=8, durable=True)
            assert store.position("queue") == 8
            assert {"from-7", "from-8"} <= set(await found(other))

    run(work)


def test_refusals_that_nobody_asked_after_are_told_once_at_the_next_flush_or_at_the_end(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        key, value = next(pair for name, pair in every_value(volume).items() if name.startswith("dictionary"))
        break_value(volume, key, value)
        for tell in (VectorStore.flush, VectorStore.close):
            store = await opened(volume, _CONFIG)
            collection = await store.collection("t", "i", "m")
            for _ in range(3):
                await collection.delete(["r1"])
            with pytest.raises(Corrupt, match="3 accepted writes were refused"):
                await tell(store)
            await store.close()

    run(work)


def test_a_damaged_position_stops_its_source_alone(rows: Make) -> None:
    """Without it nobody can tell what of that source is in the store; all others are read and written."""

    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        volume.land("keyvalue", [(position_key("s"), b"damaged")])
        observer = RecordingObserver()
        async with await opened(volume, _CONFIG, observer=observer) as store:
            collection = await store.collection("t", "i", "m")
            with pytest.raises(Corrupt, match="the position of 's' cannot be read"):
                store.position("s")
            with pytest.raises(Corrupt, match=r"changes of 's' are refused.*repair --position s="):
                await collection.upsert(rows(["r1"], [[1, 1]]), source="s", position=100)
            await collection.upsert(rows(["a"], [[1, 1]]), source="other", position=1, durable=True)
            await collection.upsert(rows(["b"], [[1, 1]]), durable=True)
            assert {"a", "b"} <= set(await found(collection))
            assert "position of 's'" in observer.events(names.VECTOR_RECORD_CORRUPT)[0]["why"]
            *collections, itself = await store.verify()
            assert all(report.sound for report in collections)
            assert itself.collection == "the records of the store"
            assert "the position of 's' cannot be read" in itself.problems[0]
        reader = VectorReader(MemoryFollower(volume, poll_interval_ms=0.001), VectorConfig(staleness_seconds=0.0))
        assert await reader.position("other") == 1
        with pytest.raises(Corrupt, match="the position of 's'"):
            await reader.position("s")
        await reader.close()

    run(work)


@pytest.mark.parametrize("gone", [False, True])
def test_a_damaged_store_record_is_made_again_and_gives_no_number_out_twice(rows: Make, gone: bool) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        value = volume.table("keyvalue").get(STORE)
        assert value is not None
        volume.land("keyvalue", [(STORE, None if gone else value[:-1])])
        async with VectorReader(MemoryFollower(volume, poll_interval_ms=0.001), VectorConfig()) as reader:
            assert (await reader.verify_records()).sound == gone
            assert len(await reader.collections()) == 2
            await reader.collection("t", "i", "m")
        async with await opened(volume, _CONFIG) as store:
            fresh = await store.collection("t", "i", "fresh", dimensions=2)
            await fresh.upsert(rows(["a"], [[1, 1]]), durable=True)
            assert [report.problems for report in await store.verify()] == [[], [], []]
        record = FORMAT.decode_record(RecordKind.STORE, volume.table("keyvalue").get(STORE) or b"", StoreRecord)
        assert record.next_collection > 2 + (1 << 16)

    run(work)


def test_figures_of_one_that_cannot_be_read_say_so_and_the_others_are_given(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_in(volume, rows)
        pairs = records(volume)
        for name, blocks in (("head", 0), ("record", 0), ("deleted, ", 1)):
            key, value = next(pair for found, pair in pairs.items() if found.startswith(name))
            break_value(volume, key, value)
            async with await opened(volume, _CONFIG) as store:
                damaged, whole = await store.stats()
                assert len(damaged.damage) == 1
                assert (damaged.blocks > 0) == bool(blocks)
                assert (whole.rows, whole.damage) == (59, ())
            volume.land("keyvalue", [(key, value)])

    run(work)


@pytest.mark.slow
def test_hundreds_of_collections_go_on_though_some_are_damaged(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        config = VectorConfig(list_rows=2, threads=1, collections_open=16, coordinator=QUIET)
        async with await opened(volume, config) as store:
            for n in range(300):
                collection = await store.collection("t", "i", f"m{n:03}", dimensions=2, metric="l2")
                await collection.upsert(rows(["a", "b"], [[1, 1], [2, 2]]))
                await collection.delete(["b"])
            await store.flush()
        table = volume.table("keyvalue")
        for number in range(0, 300, 30):
            keys = [
                key for key, _ in table.entries(collection_prefix(number), collection_prefix(number + 1), reverse=False)
            ]
            # The last one of each is a fragment of its dead rows.
            break_value(volume, keys[-1], table.get(keys[-1]) or b"")
        async with await opened(volume, config) as store:
            many = [await store.collection("t", "i", f"m{n:03}") for n in range(300)]
            refused = []
            for n, collection in enumerate(many):
                try:
                    await collection.upsert(rows(["c"], [[3, 3]]))
                except Corrupt as error:
                    refused.append((n, f"m{n:03}" in str(error)))
            await store.flush()
            assert refused == [(n, True) for n in range(0, 300, 30)]
            for n in (1, 29, 31, 299):
                assert sorted(await found(many[n])) == ["a", "c"]

    run(work)
