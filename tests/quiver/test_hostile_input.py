"""What callers should not do: each gets an error that says so, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.quiver.worlds import PATH, bundle, drained, opened, small, torn

from penstock.errors import InvalidInput, NotFound
from penstock.quiver import Bundle, Quiver, gather
from penstock.quiver.inspection import inspect_store, stored_tables


def run(scenario: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(scenario)


def twins(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values), pa.array(values)], names=["a", "a"])


def test_rows_without_columns_are_refused_because_no_file_keeps_their_number() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))  # type: ignore[arg-type]
    assert batch.num_rows == 5
    with pytest.raises(InvalidInput, match="5 rows and no columns"):
        Bundle({"logs": batch})


@pytest.mark.parametrize("slots", [None, [], 5, "logs", {}])
def test_a_bundle_without_a_mapping_of_batches_is_refused(slots: Any) -> None:
    with pytest.raises(InvalidInput):
        Bundle(slots)


def test_columns_of_one_name_are_kept_and_read() -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        await store.ingest_many([Bundle({"logs": twins(1)}), Bundle({"logs": twins(2)})])
        await store.flush()
        await store.ingest(Bundle({"logs": twins(3)}))
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        assert (await delivery.table("logs")).column(1).to_pylist() == [1, 2]
        assert (await store.scan()).column(0).to_pylist() == [1, 2, 3]
        with pytest.raises(InvalidInput, match="several columns a"):
            await store.scan(columns=["a"])
        await store.close()

    run(scenario())


def test_what_is_no_bundle_is_refused_and_a_generator_of_bundles_is_taken() -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        # Arrow's own have a size in bytes, as a bundle has.
        for wrong in (None, {"logs": 1}, "x", twins(1), pa.array([1])):
            with pytest.raises(InvalidInput, match="a store accepts bundles"):
                await store.ingest(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="NoneType cannot be stored"):
            await store.ingest_many([bundle(1), None])  # type: ignore[list-item]
        assert len(await store.ingest_many(bundle(number) for number in range(5))) == 5
        await store.flush()
        assert await drained(store) == [0, 1, 2, 3, 4]
        await store.close()

    run(scenario())


def test_what_a_caller_changes_after_the_call_is_stored_as_it_was() -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        slots = dict(bundle(1).slots)
        mine = [Bundle(slots), bundle(2)]
        slots["more"] = slots["logs"]
        waiting = asyncio.ensure_future(store.ingest_many(mine))
        await asyncio.sleep(0)
        mine.clear()
        assert len(await waiting) == 2
        await store.flush()
        assert await drained(store) == [1, 2]
        await store.close()

    run(scenario())


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "../x", "ä", "a\n", None, 5, b"s"])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        with pytest.raises(InvalidInput, match="cannot be a subscriber"):
            await store.register(name)
        with pytest.raises(NotFound):
            await store.next(name, 0.0)
        await store.close()

    run(scenario())


@pytest.mark.parametrize("bound", ["2024", 1.5, float("nan")])
def test_a_bound_that_is_no_whole_number_is_refused(bound: Any) -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.ingest(Bundle(dict(bundle(1).slots), event_time_ns=(1, 2)))
        for bounds in ((bound, None), (None, bound)):
            with pytest.raises(InvalidInput, match="whole number"):
                await store.scan(*bounds)
        assert (await store.scan(-(2**70), 2**70)).num_rows == 4
        await store.close()

    run(scenario())


def test_slots_of_any_name_come_out_under_it() -> None:
    names = ["../../etc", "a/b", "a_b", "\x00", "é" * 300, "logs ", "LOGS", "' OR 1=1 --", "x" * 5000, "\n"]

    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        await store.ingest(Bundle(dict.fromkeys(names, bundle(1).slots["logs"])))
        await store.flush()
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        assert set(await delivery.read()) == set(names)
        await store.close()

    run(scenario())


def test_an_instance_whose_folders_are_not_all_there_has_nothing_in_them() -> None:
    """A crash may have come between the making of one and of the next."""
    disk = torn()
    for folder in (PATH, f"{PATH}/instance-000", f"{PATH}/instance-000/wal"):
        disk.make_directory(folder)
    (report,) = inspect_store(disk, PATH, check_payloads=True)
    assert (report.damage, report.segments, report.waiting_bundles) == ([], [], 0)
    assert stored_tables(disk, PATH) == {}


def test_a_batch_of_two_gigabytes_is_refused_when_the_bundle_is_made() -> None:
    """Memory that nobody touches costs nothing: the batch is there, and its bytes are not."""
    size = (1 << 31) + 8
    column = pa.Array.from_buffers(pa.int8(), size, [None, pa.py_buffer(mmap.mmap(-1, size))])
    with pytest.raises(InvalidInput, match="2147483656 bytes") as refused:
        Bundle({"logs": pa.record_batch({"n": column})})
    assert "split it" in str(refused.value)


def test_more_instances_than_cores_each_store_and_deliver_their_own() -> None:
    async def scenario() -> None:
        disk, count = torn(), 16
        config = replace(small(), instances=count, retention=replace(small().retention, size_cap=1 << 26))
        stores = [await opened(disk, config, instance=number) for number in range(count)]
        for number, store in enumerate(stores):
            await store.register("s")
            await store.ingest(bundle(number))
        await asyncio.gather(*(store.flush() for store in stores))
        assert [await drained(store) for store in stores] == [[number] for number in range(count)]
        disk.crash()
        stores = [await opened(disk, config, instance=number) for number in range(count)]
        for store in stores:
            await store.register("s")
        assert [await drained(store) for store in stores] == [[]] * count

    asyncio.run(scenario())


NO_DELAYS = [float("nan"), float("inf"), -1.0, "soon", None, True]


@pytest.mark.parametrize("delay", NO_DELAYS)
def test_a_delay_that_is_none_is_refused_and_the_delivery_stays_open(delay: Any) -> None:
    """It was taken, and nobody got the segment again before the next start."""

    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        await store.ingest(bundle(1))
        await store.flush()
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        with pytest.raises(InvalidInput, match="the delay"):
            await delivery.defer(delay)
        await delivery.defer(0.0)
        assert await drained(store) == [1]
        await store.close()

    run(scenario())


@pytest.mark.parametrize("reason", [None, 5, b"bytes"])
def test_a_reason_that_is_no_text_is_refused_and_the_delivery_stays_open(reason: Any) -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        await store.ingest(bundle(1))
        await store.flush()
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        with pytest.raises(InvalidInput, match="must be text"):
            await delivery.nack(reason)
        await delivery.nack("now", permanent=True)
        assert list(store.state.subscriptions["s"].rejected.values()) == ["now"]
        await store.close()

    run(scenario())


def test_a_reason_that_utf8_cannot_hold_is_kept_and_fails_nobody_who_shares_its_write() -> None:
    """The name of a file in an error has such characters."""

    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("a")
        await store.register("b")
        await store.ingest(bundle(1))
        await store.flush()
        first, second = await store.next("a", 0.0), await store.next("b", 0.0)
        assert first is not None
        assert second is not None
        await asyncio.gather(first.nack("no file \udcff", permanent=True), second.ack())
        assert list(store.state.subscriptions["a"].rejected.values()) == ["no file ?"]
        assert store.state.subscriptions["b"].done.mark == 1
        await store.close()

    run(scenario())


@pytest.mark.parametrize("timeout", [float("nan"), "5", True])
def test_a_timeout_that_is_no_number_is_refused(timeout: Any) -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        with pytest.raises(InvalidInput, match="number of seconds"):
            await store.next("s", timeout)
        await store.close()

    run(scenario())


def test_settings_of_another_kind_are_refused_by_name() -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidInput, match="a QuiverConfig is needed"):
            await Quiver.open(PATH, {"durability": "sync"}, disk=torn())  # type: ignore[arg-type]
        store = await opened(torn(), small())
        with pytest.raises(InvalidInput, match="a SubscriberConfig is needed"):
            await store.register("s", {"from_newest": True})  # type: ignore[arg-type]
        for wrong in (None, 5, bundle(1)):
            with pytest.raises(InvalidInput, match="a store accepts bundles"):
                await store.ingest_many(wrong)  # type: ignore[arg-type]
        await store.close()

    run(scenario())


@pytest.mark.parametrize("path", [None, 5, b"store", "a\0b"])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot be the directory of a store"):
        run(Quiver.open(path))


def test_a_schema_too_deep_for_arrow_to_read_back_is_refused() -> None:
    kind: pa.DataType = pa.int64()
    for _ in range(300):
        kind = pa.struct([("x", kind)])
    with pytest.raises(InvalidInput, match="does not read it back"):
        Bundle({"logs": pa.record_batch({"n": pa.nulls(1, kind)})})  # type: ignore[call-overload]


def test_a_segment_that_is_replayed_twice_in_one_call_waits_once() -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        await store.register("t")
        await store.ingest(bundle(1))
        await store.flush()
        assert await drained(store) == [1]
        assert await store.replay("s", [1, 1, 1]) == [1]
        assert await drained(store) == [1]
        await store.close()

    run(scenario())


def test_a_subscriber_that_is_no_text_is_not_found_and_a_column_that_is_none_is_refused() -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        nobody: Any = ["s"]
        for call in (store.next, store.deactivate, store.unregister, store.replay):
            with pytest.raises(NotFound, match="no subscriber"):
                await call(nobody)
        await store.ingest(bundle(1))
        columns: Any = [1]
        with pytest.raises(InvalidInput, match="names of columns"):
            await store.scan(columns=columns)
        await store.close()

    run(scenario())


def test_a_slot_of_hundreds_of_schemas_is_refused_as_one_table_and_read_by_columns() -> None:
    """Arrow would need minutes and gigabytes to put them together, and the loop would stand still meanwhile."""
    tables = [pa.table({f"c{number}": [number], "n": [number]}) for number in range(600)]
    with pytest.raises(InvalidInput, match="600 schemas with 601 columns"):
        gather(tables, None)
    assert gather(tables, ["n"]).column("n").to_pylist() == list(range(600))
    assert gather(2000 * [tables[0], tables[1]], None).num_rows == 4000, "many tables of few schemas are no harm"


def test_arguments_of_a_wrong_kind_are_refused_by_their_names() -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        await store.ingest(bundle(1))
        await store.flush()
        beyond = 10**400
        for call, name in (
            (lambda: store.replay("s", True), "segment_seqs"),  # type: ignore[arg-type]
            (lambda: store.replay("s", [[1]]), "segment_seqs"),  # type: ignore[list-item]
            (lambda: store.replay("s", ["1"]), "segment_seqs"),  # type: ignore[list-item]
            (lambda: store.scan(columns=True), "columns"),  # type: ignore[arg-type]
            (lambda: store.scan(columns="n"), "columns"),
            (lambda: store.scan(columns=[["n"]]), "columns"),  # type: ignore[list-item]
            (lambda: store.scan(slot=["logs"]), "slot"),  # type: ignore[arg-type]
            (lambda: store.next("s", beyond), "timeout"),
            (lambda: store.next("s", "1"), "timeout"),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidInput, match=name):
                await call()
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        with pytest.raises(InvalidInput, match="delay"):
            await delivery.defer(beyond)
        await store.close()

    run(scenario())


def test_a_path_that_no_file_system_can_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="encoding of file names"):
        run(Quiver.open("/store\ud800"))
