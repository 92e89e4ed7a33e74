"""Groups of the log overlap: the next is laid out while one is written. A failure of one never shows in another."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from tests.quiver.worlds import bundle, drained, opened, small, torn, with_mode

from penstock.errors import OutcomeUnknown, StorageFull
from penstock.quiver import Bundle, Quiver, QuiverConfig, WriteMode
from penstock.quiver.bundles.payload import encode_bundles
from penstock.quiver.log.batch_parts import BatchPart, BatchSink
from penstock.testing import TornDisk

T = TypeVar("T")
MODES = pytest.mark.parametrize("mode", [WriteMode.DIRECT, WriteMode.BUFFERED])
# What fails when a group is saved, in each mode.
SAVING = {WriteMode.DIRECT: "write_at", WriteMode.BUFFERED: "sync_file"}


class Gate:
    """An `offload` that holds writes of the log back until it is opened, and does something ahead of one."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.opened.set()
        self.done: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}

    async def __call__(self, work: Callable[..., T], /, *args: Any) -> T:
        name = work.__name__
        if name in ("_write", "put"):
            await self.opened.wait()
            self.done.append(name)
        if name in self.before:
            self.before.pop(name)()
        return work(*args)


async def at_rest() -> None:
    """Until nobody has anything to do but to wait for the gate."""
    for _ in range(50):
        await asyncio.sleep(0)


def unsealed(mode: WriteMode) -> QuiverConfig:
    """One segment takes everything, so that nothing but bundles is written."""
    config = small()
    return with_mode(replace(config, segment=replace(config.segment, target_size=1 << 20)), mode)


async def two_groups(store: Quiver, gate: Gate) -> list[asyncio.Task[Any]]:
    """One bundle in the first group, which is held back; three in the second, laid out behind it."""
    gate.opened.clear()
    gate.done.clear()
    first = asyncio.create_task(store.ingest(bundle(1)))
    await at_rest()
    others = [asyncio.create_task(store.ingest(bundle(number))) for number in (2, 3)]
    others.append(asyncio.create_task(store.ingest_many([bundle(4), bundle(5)])))  # type: ignore[arg-type]
    await at_rest()
    assert not any(task.done() for task in (first, *others))
    return [first, *others]


async def came_out(disk: TornDisk, config: QuiverConfig) -> list[int]:
    disk.crash()
    store = await opened(disk, config)
    assert store.findings.lost_bundles == []
    await store.register("s")
    await store.flush()
    return await drained(store)


@MODES
def test_a_group_is_laid_out_while_the_one_before_is_written_and_follows_it_at_once(mode: WriteMode) -> None:
    async def scenario() -> None:
        disk, gate, config = torn(), Gate(), unsealed(mode)
        store = await opened(disk, config, offload=gate)
        await store.ingest(bundle(0))
        tasks = await two_groups(store, gate)
        gate.opened.set()
        acks = await asyncio.gather(*tasks)
        assert gate.done == ["_write", "put"], "laid out before its turn came"
        assert [ack.bundle_seq for ack in acks[:3]] == [2, 3, 4]
        assert [ack.bundle_seq for ack in acks[3]] == [5, 6]
        assert await came_out(disk, config) == [0, 1, 2, 3, 4, 5]

    asyncio.run(scenario())


@MODES
@pytest.mark.parametrize("failing", ["_write", "put"])
def test_a_failed_write_is_made_good_and_the_groups_keep_their_order(mode: WriteMode, failing: str) -> None:
    """Of the first group, behind which another is laid out, or of the one that was laid out."""

    async def scenario() -> None:
        disk, gate, config = torn(), Gate(), unsealed(mode)
        store = await opened(disk, config, offload=gate)
        await store.ingest(bundle(0))
        tasks = await two_groups(store, gate)
        gate.before[failing] = lambda: disk.fail_next(SAVING[mode])
        gate.opened.set()
        acks = await asyncio.gather(*tasks)
        assert [ack.bundle_seq for ack in acks[:3]] == [2, 3, 4]
        assert all(ack.durable for ack in (*acks[:3], *acks[3]))
        assert await came_out(disk, config) == [0, 1, 2, 3, 4, 5]

    asyncio.run(scenario())


@MODES
def test_callers_of_a_group_that_fails_twice_do_not_know_and_those_behind_it_are_served(mode: WriteMode) -> None:
    async def scenario() -> None:
        disk, gate, config = torn(), Gate(), unsealed(mode)
        store = await opened(disk, config, offload=gate)
        await store.ingest(bundle(0))
        tasks = await two_groups(store, gate)

        def fail() -> None:
            disk.fail_next(SAVING[mode])
            # The second try begins a file of its own.
            disk.fail_next("write_at" if mode is WriteMode.DIRECT else "sync_file")

        gate.before["_write"] = fail
        gate.opened.set()
        first, *others = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(first, OutcomeUnknown)
        assert all(not isinstance(answer, BaseException) for answer in others)
        found = await came_out(disk, config)
        assert [number for number in found if number != 1] == [0, 2, 3, 4, 5]

    asyncio.run(scenario())


@MODES
def test_a_disk_that_runs_full_in_the_middle_of_a_write_leaves_an_unknown_outcome(mode: WriteMode) -> None:
    """Some of its bytes may be there: "nothing was written" would make its caller send it twice."""

    async def scenario() -> None:
        disk, config = torn(), unsealed(mode)
        store = await opened(disk, config)
        await store.ingest(bundle(1))
        disk.fail_next("write_at", errno.ENOSPC)
        disk.fail_next("write_at", errno.ENOSPC)
        with pytest.raises(OutcomeUnknown, match="no room"):
            await store.ingest(bundle(2))
        assert (await store.ingest(bundle(3))).durable, "it goes on by itself"
        found = await came_out(disk, config)
        assert [number for number in found if number != 2] == [1, 3]

    asyncio.run(scenario())


@MODES
def test_a_disk_without_room_for_a_file_refuses_the_callers_and_has_none_of_them(mode: WriteMode) -> None:
    async def scenario() -> None:
        disk, gate, config = torn(), Gate(), unsealed(mode)
        config = replace(config, wal=replace(config.wal, spare_files=0))
        store = await opened(disk, config, offload=gate)
        large = Bundle({"logs": pa.record_batch({"n": [9] * 1800})})
        await store.ingest(bundle(0))
        gate.opened.clear()
        tasks = [asyncio.create_task(store.ingest(large))]
        await at_rest()
        tasks += [asyncio.create_task(store.ingest(large)) for _ in range(2)]
        await at_rest()
        # Room for what the files have, and for none more: the first or the second group needs a new one.
        disk.resize(0)
        gate.opened.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, StorageFull)]
        assert refused
        assert all(isinstance(answer, StorageFull) or answer.durable for answer in answers)  # type: ignore[union-attr]
        disk.resize(None)
        await store.ingest(bundle(1))
        stored = [0, *([9] if len(refused) < len(answers) else []), 1]
        assert list(dict.fromkeys(await came_out(disk, config))) == stored

    asyncio.run(scenario())


def test_a_sync_that_hangs_holds_up_its_callers_and_no_subscriber() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s")
        await store.ingest(bundle(0))
        await store.flush()
        disk.hang_next("write_at")
        callers = [asyncio.create_task(store.ingest(bundle(number))) for number in (1, 2)]
        await at_rest()
        assert await drained(store) == [0], "delivered and acknowledged beside it"
        assert not any(caller.done() for caller in callers)
        disk.crash()
        again = await opened(disk)
        assert again.findings.lost_bundles == []
        for caller in callers:
            caller.cancel()

    asyncio.run(scenario())


def test_batches_in_place_are_the_bytes_that_arrow_serialises() -> None:
    batches = [
        pa.record_batch({"n": [1, 2, 3], "text": ["a", None, "ccc"]}),
        pa.record_batch({"n": list(range(100)), "text": ["x" * number for number in range(100)]}).slice(7, 50),
        pa.record_batch({"list": [[1], [], None], "point": [{"x": 1}, None, {"x": 3}]}),
        pa.record_batch({"n": pa.array([], pa.int64())}),
    ]
    parts = [BatchPart(batch, batch.schema.serialize().to_pybytes()) for batch in batches]
    memory = memoryview(bytearray(1 << 16))
    schemas = {part.schema: part.batch.num_columns for part in parts[:3]}
    sink, at = BatchSink(memory, schemas), BatchSink.room(schemas) // 8 * 8 + 8
    for part in [*parts, *parts]:
        memory[at : at + 8] = b"between "
        end = sink.lay(part, at + 8)
        assert bytes(memory[at:end]) == b"between " + bytes(part)
        at = end


def test_a_schema_gets_a_writer_once_it_has_enough_bytes() -> None:
    small, large = pa.record_batch({"n": [1]}), pa.record_batch({"body": [bytes(1000)] * 50})
    parts = [BatchPart(batch, batch.schema.serialize().to_pybytes()) for batch in (small, large, large, large)]
    assert BatchSink.wide_schemas(parts[:3]) == {}
    assert BatchSink.wide_schemas(parts) == {parts[1].schema: 1}


def test_a_schema_of_the_same_bytes_and_another_type_is_laid_out_by_way_of_a_copy() -> None:
    """An extension type that only one of two callers has a class for."""

    class Celsius(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(pa.float64(), "test.celsius")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, _storage: Any, _serialised: Any) -> Celsius:
            return cls()

    typed = pa.record_batch({"t": pa.ExtensionArray.from_storage(Celsius(), pa.array([1.5, 2.5]))})
    body = typed.schema.serialize().to_pybytes()
    plain = pa.ipc.read_record_batch(typed.serialize(), pa.ipc.read_schema(pa.py_buffer(body)))
    assert plain.schema.field("t").type != typed.schema.field("t").type
    parts = [BatchPart(typed, body), BatchPart(plain, body)]
    memory = memoryview(bytearray(1 << 15))
    sink, at = BatchSink(memory, [body]), 8192
    for part in parts:
        end = sink.lay(part, at)
        assert bytes(memory[at:end]) == bytes(part)
        at = end


def test_five_hundred_slots_are_one_frame_and_come_out_as_they_were() -> None:
    async def scenario() -> None:
        disk = torn()
        config = replace(unsealed(WriteMode.DIRECT), wal=replace(small().wal, max_size=1 << 24, rotation_size=1 << 20))
        store = await opened(disk, config)
        slots = {f"slot-{number}": pa.record_batch({f"c{number % 7}": [number]}) for number in range(500)}
        assert len(encode_bundles([Bundle(slots)], 1)) > 500
        await store.ingest(Bundle(slots))
        disk.crash()
        store = await opened(disk, config)
        await store.register("s")
        await store.flush()
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        found = await delivery.read()
        assert {slot: table.to_pylist() for slot, (table,) in found.items()} == {
            slot: batch.to_pylist() for slot, batch in slots.items()
        }

    asyncio.run(scenario())
