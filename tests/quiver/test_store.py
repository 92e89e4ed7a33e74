"""One store: its one writer, what it takes and refuses, and how it ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.quiver.worlds import HOME, bundle, drained, names, opened, run, small, torn

from penstock.errors import Closed, Conflict, Corrupt, InvalidInput, NotFound
from penstock.quiver import Bundle, Quiver


def test_schema_evolution_inside_one_segment_and_many_slots_a_bundle() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk, replace(small(), segment=replace(small().segment, target_size=1 << 20)))
        await store.register("s")
        words = pa.array(["x", "y", "x"]).dictionary_encode()
        await store.ingest(bundle(1, 3))
        await store.ingest(bundle(2, 3, extra=pa.array([1.0, None, 2.0]), word=words))
        await store.ingest(
            bundle(3, 3, extra=pa.array([4.0, None, 2.0]), word=pa.array(["z", None, "x"]).dictionary_encode())
        )
        many = {f"slot{at}": pa.record_batch({"n": [at]}) for at in range(30)}
        await store.ingest(Bundle(many, signal="traces"))
        disk.crash()
        store = await opened(disk)
        await store.register("s")
        await store.flush()
        delivery = await store.next("s")
        assert delivery is not None
        slots = await delivery.read()
        assert len(slots) == 31
        assert [table.num_rows for table in slots["logs"]] == [3, 6]
        table = await delivery.table("logs")
        assert table.column("n").to_pylist() == [1] * 3 + [2] * 3 + [3] * 3
        assert table.column("word").to_pylist() == [None] * 3 + ["x", "y", "x", "z", None, "x"]
        assert delivery.meta.signals == ["logs", "traces"]
        with pytest.raises(InvalidInput, match="no slot"):
            await delivery.table("nope")

    run(scenario())


def test_one_writer_an_instance_and_instances_beside_each_other() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        with pytest.raises(Conflict, match="already open"):
            await opened(disk)
        other = await opened(disk, instance=1)
        await other.close()
        await store.close()
        await (await opened(disk)).close()

    run(scenario())


def test_a_closed_store_says_so_and_closing_twice_is_nothing() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("s")
        waiting = asyncio.create_task(store.next("s"))
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        with pytest.raises(Closed):
            await waiting
        calls = (
            store.ingest(bundle(1)),
            store.flush(),
            store.register("t"),
            store.next("s"),
            store.scan(),
            store.sweep(),
        )
        for call in calls:
            with pytest.raises(Closed):
                await call

    run(scenario())


def test_a_segment_damaged_below_is_lost_to_everybody_and_marks_go_on() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s")
        await store.register("t")
        for number in range(16):
            await store.ingest(bundle(number))
        path = f"{HOME}/segments/{1:020d}-0.arrow"
        body = bytearray(disk.read(path)[0])
        body[len(body) // 2] ^= 1
        disk.overwrite(path, bytes(body), 1)
        delivery = await store.next("s")
        assert delivery is not None
        with pytest.raises(Corrupt):
            await delivery.read()
        assert await drained(store, "s") == list(range(8, 16))
        assert await drained(store, "t") == list(range(8, 16))
        assert store.state.subscriptions["t"].done.mark == 2
        assert store.findings.lost_segments == [1]
        assert len(names(disk, "aside")) == 2

    run(scenario())


def test_hostile_arguments_are_refused_by_name() -> None:
    batch = pa.record_batch({"n": [1]})
    for slots in ({}, {"": batch}, {"a": "text"}, {"a": pa.table({"n": [1]})}):
        with pytest.raises(InvalidInput):
            Bundle(slots)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        Bundle({"a": batch}, event_time_ns=(2, 1))


@pytest.mark.parametrize("instance", [-1, 1.5, "0", None, True])
def test_an_instance_is_a_number_that_every_command_finds(instance: Any) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidInput, match="instance"):
            await opened(torn(), instance=instance)

    run(scenario())


def test_empty_batches_and_no_columns_are_bundles_too() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s")
        assert await store.ingest_many([]) == []
        await store.ingest(Bundle({"a": pa.record_batch({"n": pa.array([], pa.int64())})}))
        await store.ingest(Bundle({"none": pa.record_batch([], schema=pa.schema([]))}))
        disk.crash()
        store = await opened(disk)
        await store.register("s")
        await store.flush()
        delivery = await store.next("s")
        assert delivery is not None
        assert {slot: tables[0].num_rows for slot, tables in (await delivery.read()).items()} == {"a": 0, "none": 0}

    run(scenario())


def test_a_small_slice_does_not_keep_what_it_was_cut_from() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        whole = pa.record_batch({"n": pa.array(range(1_000_000), pa.int64())})
        await store.ingest(Bundle({"logs": whole.slice(500_000, 2)}))
        (batches,) = store._finaliser.open.streams.values()
        assert batches[0].get_total_buffer_size() < 100_000
        assert batches[0].column(0).to_pylist() == [500_000, 500_001]

    run(scenario())


def test_a_store_may_be_named_by_a_link_and_is_the_same_store_by_either_name(tmp_path: Path) -> None:
    """`/var/lib/penstock` is often a link to a larger disk."""

    async def scenario() -> None:
        (tmp_path / "disk").mkdir()
        (tmp_path / "store").symlink_to(tmp_path / "disk")
        store = await Quiver.open(tmp_path / "store")
        await store.ingest(bundle(1))
        with pytest.raises(Conflict):
            await Quiver.open(tmp_path / "disk")
        await store.close()
        store = await Quiver.open(tmp_path / "disk")
        assert [meta.bundles for meta in store.segments] == [1]
        await store.close()

    run(scenario())


def test_a_link_to_a_disk_that_is_not_mounted_is_missed_and_not_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "store").symlink_to(tmp_path / "mount/store")
        with pytest.raises(NotFound, match="mount its disk"):
            await Quiver.open(tmp_path / "store")
        assert not (tmp_path / "mount").exists()

    run(scenario())


def test_a_file_in_the_place_of_a_store_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "store").write_text("a file")
        with pytest.raises(InvalidInput, match="both a file and a directory"):
            await Quiver.open(tmp_path / "store")

    run(scenario())
