"""A full segment is delivered from memory while its subscribers keep up: never written then, and never lost or repeated."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from tests.quiver.power_cuts import cut_short
from tests.quiver.worlds import PATH, bundle, drained, numbers, opened, small, torn, with_mode

from penstock.quiver import Bundle, Delivery, Quiver, QuiverConfig, RetentionConfig, SizeCapPolicy, WriteMode
from penstock.relay.outlets.parts import split_segment
from penstock.testing import ManualClock, Simulation, TornDisk, simulate

T = TypeVar("T")
HOME = f"{PATH}/instance-000"
# What fills a segment of `small`.
FULL = 8


def names(disk: TornDisk) -> list[str]:
    return [name for name, _ in disk.scan(f"{HOME}/segments")]


async def handed_out(store: Quiver, *subscribers: str, start: int = 0) -> list[Delivery]:
    """Fill a segment while all these wait for it."""
    waiting = [asyncio.create_task(store.next(name)) for name in subscribers]
    for number in range(start, start + FULL):
        await store.ingest(bundle(number))
    found = await asyncio.gather(*waiting)
    return [delivery for delivery in found if delivery is not None]


async def registered(disk: TornDisk, *subscribers: str, **doors: Any) -> Quiver:
    store = await opened(disk, **doors)
    for name in subscribers:
        await store.register(name)
    return store


def test_a_segment_that_all_settle_in_time_is_never_written() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await registered(disk, "a", "b")
        for turn in range(5):
            for delivery in await handed_out(store, "a", "b", start=turn * FULL):
                assert await numbers(delivery) == list(range(turn * FULL, (turn + 1) * FULL))
                await delivery.ack()
        await store.flush()
        assert names(disk) == []
        assert store.segments == []
        assert store.state.finalised_through == 5 * FULL
        disk.crash()
        store = await registered(disk, "a", "b")
        assert store.findings.replayed_bundles == 0
        assert store.findings.lost_segments == []
        assert await drained(store, "a") == await drained(store, "b") == []
        assert store.state.next_segment_seq == 6, "numbers go on"

    asyncio.run(scenario())


def test_after_a_power_cut_the_segment_has_its_number_its_rows_and_its_parts() -> None:
    """Whoever acknowledged it does not get it again, and whoever had begun to send it finds the same parts."""

    async def scenario() -> None:
        disk = torn()
        store = await registered(disk, "a", "b")
        one, other = await handed_out(store, "a", "b")
        before = await other.read()
        await one.ack()
        await store.ingest(bundle(100))
        disk.crash()
        store = await registered(disk, "a", "b")
        await store.flush()
        again = await store.next("b", 0.0)
        assert again is not None
        assert again.segment_seq == other.segment_seq
        after = await again.read()
        assert [table.equals(before["logs"][0]) for table in after["logs"]] == [True]
        for part_bytes in (1, 40, 100, 1 << 20):
            cuts = [split_segment(slots, part_bytes) for slots in (before, after)]
            rows = [[[one.table.num_rows for one in part] for part in cut] for cut in cuts]
            assert rows[0] == rows[1]
        assert await drained(store, "a") == [100]

    asyncio.run(scenario())


def test_a_segment_nobody_settles_in_time_is_written_and_reads_the_same() -> None:
    async def scenario() -> None:
        disk, clock = torn(), ManualClock()
        store = await registered(disk, "a", clock=clock)
        (delivery,) = await handed_out(store, "a")
        before = await delivery.table()
        assert names(disk) == []
        await clock.run_for(2.0)
        assert len(names(disk)) == 2
        assert (await delivery.table()).equals(before)
        await delivery.ack()
        await store.sweep()
        assert names(disk) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["fill", "flush", "close"])
def test_memory_that_is_needed_makes_it_a_file(how: str) -> None:
    async def scenario() -> None:
        disk = torn()
        store = await registered(disk, "a")
        (delivery,) = await handed_out(store, "a")
        if how == "fill":
            for number in range(FULL, 2 * FULL - 1):
                await store.ingest(bundle(number))
        elif how == "flush":
            await store.flush()
        else:
            await store.close()
        assert f"{delivery.segment_seq:020d}.meta" in names(disk)

    asyncio.run(scenario())


def test_a_subscriber_that_is_about_to_settle_it_gets_the_time_that_writing_would_take() -> None:
    """Else a fast producer would have every segment written, and wait for that, though its subscriber keeps up."""

    async def scenario() -> None:
        disk, clock, written = torn(), ManualClock(), list[int]()

        async def offload(work: Callable[..., T], /, *args: Any) -> T:
            if getattr(work, "__qualname__", "") == "SegmentShelf.write":
                written.append(args[1])
                await clock.sleep(0.2)
            return work(*args)

        store = await registered(disk, "a", clock=clock, offload=offload)
        (delivery,) = await handed_out(store, "a")
        flushing = asyncio.create_task(store.flush())
        await clock.run_for(0.3)
        await flushing
        await delivery.ack()
        await store.sweep()
        (delivery,) = await handed_out(store, "a", start=FULL)
        for number in range(2 * FULL, 3 * FULL - 1):
            await store.ingest(bundle(number))
        await clock.run_for(0.1)
        assert written == [1], "the next one is nearly full, and writing this one would take longer"
        await delivery.ack()
        waiting = asyncio.create_task(store.next("a"))
        await asyncio.sleep(0)
        await store.ingest(bundle(3 * FULL - 1))
        last = await waiting
        assert last is not None
        for number in range(3 * FULL, 4 * FULL - 1):
            await store.ingest(bundle(number))
        await clock.run_for(0.5)
        assert written == [1, last.segment_seq], "its time was up"

    asyncio.run(scenario())


@pytest.mark.slow
def test_more_callers_than_memory_takes_at_once_are_no_reason_to_write_it() -> None:
    """They wait until it is settled. Only a lack of room elsewhere is pressing."""

    async def scenario() -> None:
        written: list[int] = []

        async def offload(work: Callable[..., T], /, *args: Any) -> T:
            if getattr(work, "__qualname__", "") == "SegmentShelf.write":
                written.append(args[1])
            await asyncio.sleep(0)
            return work(*args)

        async def consume() -> None:
            while (delivery := await store.next("a")) is not None:
                await delivery.ack()

        async def produce(first: int) -> None:
            for number in range(first, first + 10):
                await store.ingest(bundle(number))

        store = await registered(torn(), "a", offload=offload)
        store._finaliser._write_seconds = 60.0
        consumer = asyncio.create_task(consume())
        await asyncio.gather(*(produce(100 * caller) for caller in range(32)))
        assert written == []
        consumer.cancel()

    asyncio.run(scenario())


def test_a_refused_segment_comes_again_and_is_kept() -> None:
    async def scenario() -> None:
        disk, clock = torn(), ManualClock()
        store = await registered(disk, "a", clock=clock)
        (delivery,) = await handed_out(store, "a")
        await delivery.nack("not now")
        await clock.run_for(2.0)
        again = await store.next("a", 0.0)
        assert again is not None
        assert again.attempt == 2
        assert await numbers(again) == list(range(FULL))
        await again.nack("never", permanent=True)
        assert await store.replay("a") == [delivery.segment_seq], "a dead letter stays"

    asyncio.run(scenario())


def test_whoever_is_behind_holds_up_nobody() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await registered(disk, "a", "absent")
        waiting = asyncio.create_task(store.next("a"))
        for number in range(FULL):
            await store.ingest(bundle(number))
        assert await waiting is not None
        assert len(names(disk)) == 2, "nobody serves the other one: the file comes first"

    asyncio.run(scenario())


def test_subscribers_that_come_or_go_meanwhile_are_counted() -> None:
    async def scenario() -> None:
        disk, clock = torn(), ManualClock()
        store = await registered(disk, "a", "b", clock=clock)
        one, _ = await handed_out(store, "a", "b")
        await store.register("late")
        await one.ack()
        await store.unregister("b")
        assert one.segment_seq not in store.state.reclaimed, "one waits for it"
        assert await drained(store, "late") == list(range(FULL))
        assert one.segment_seq in store.state.reclaimed
        await clock.run_for(2.0)
        assert names(disk) == []
        assert store.state.subscriptions["late"].done.mark == store.state.subscriptions["a"].done.mark == 1

    asyncio.run(scenario())


def test_a_scan_reads_it_once() -> None:
    async def scenario() -> None:
        store = await registered(torn(), "a")
        (delivery,) = await handed_out(store, "a")
        await store.ingest(bundle(50))
        assert (await store.scan()).num_rows == 4 * (FULL + 1)
        await delivery.ack()
        assert (await store.scan()).num_rows == 4

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "config",
    [
        replace(small(), segment=replace(small().segment, memory_delivery_seconds=0.0)),
        replace(small(), retention=RetentionConfig(size_cap=1 << 24, steady_state_headroom=4096)),
    ],
    ids=["turned off", "processed segments are to stay"],
)
def test_the_file_comes_first_where_it_is_wanted(config: QuiverConfig) -> None:
    async def scenario() -> None:
        disk = torn()
        store = await registered(disk, "a", config=config)
        await handed_out(store, "a")
        assert len(names(disk)) == 2
        assert store.state.seals == {}

    asyncio.run(scenario())


def test_a_seal_whose_log_is_gone_is_a_lost_segment_and_stops_nothing() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await registered(disk, "a")
        (delivery,) = await handed_out(store, "a")
        disk.crash()
        for name, _ in disk.scan(f"{HOME}/wal"):
            disk.unlink(f"{HOME}/wal/{name}")
        store = await registered(disk, "a")
        assert store.findings.lost_segments == [delivery.segment_seq]
        assert store.state.subscriptions["a"].done.mark == delivery.segment_seq
        await store.ingest(bundle(7))
        await store.flush()
        assert await drained(store, "a") == [7]

    asyncio.run(scenario())


def test_a_seal_that_cannot_be_written_leaves_a_segment_like_any_other() -> None:
    async def scenario() -> None:
        disk, refusing = torn(), False

        async def offload(work: Callable[..., T], /, *args: Any) -> T:
            if refusing and getattr(work, "__self__", None) in (store._ack_log, store._ack_log._log):
                raise OSError(errno.EIO, "ack.log cannot be written")
            return work(*args)

        store = await registered(disk, "a", offload=offload)
        refusing = True
        (delivery,) = await handed_out(store, "a")
        assert len(names(disk)) == 2, "the file came first"
        assert store.state.seals == {}
        refusing = False
        assert await numbers(delivery) == list(range(FULL))
        await delivery.ack()
        disk.crash()
        store = await registered(disk, "a")
        assert await drained(store, "a") == []
        assert store.findings.lost_segments == []

    asyncio.run(scenario())


def test_a_segment_that_is_cut_again_can_be_had_before_it_is_written() -> None:
    async def scenario() -> None:
        disk, slow = torn(), asyncio.Event()
        store = await registered(disk, "a")
        (delivery,) = await handed_out(store, "a")
        disk.crash()

        async def offload(work: Callable[..., T], /, *args: Any) -> T:
            if getattr(work, "__qualname__", "") == "SegmentShelf.write":
                await slow.wait()
            return work(*args)

        store = await registered(disk, "a", offload=offload)
        again = await store.next("a", 0.0)
        assert again is not None
        assert again.segment_seq == delivery.segment_seq
        assert await numbers(again) == list(range(FULL))
        await again.ack()
        slow.set()
        await store.flush()
        await store.sweep()
        assert names(disk) == []
        assert await drained(store, "a") == []

    asyncio.run(scenario())


def test_whoever_registers_while_the_seal_is_written_gets_the_segment() -> None:
    async def scenario() -> None:
        disk = torn()
        arrived: list[asyncio.Task[Delivery | None]] = []

        async def late() -> Delivery | None:
            await store.register("late")
            return await store.next("late")

        async def offload(work: Callable[..., T], /, *args: Any) -> T:
            answer = work(*args)
            if store is not None and store._finaliser.sealed is not None and not arrived:
                arrived.append(asyncio.create_task(late()))
                await arrived_settles()
            return answer

        async def arrived_settles() -> None:
            """So many turns that the other call is in the queue of `ack.log`."""
            for _ in range(10):
                await asyncio.sleep(0)

        store: Quiver = None  # type: ignore[assignment]
        store = await registered(disk, "a", offload=offload)
        (delivery,) = await handed_out(store, "a")
        other = await arrived[0]
        assert other is not None
        assert await numbers(other) == await numbers(delivery) == list(range(FULL))
        await other.ack()
        await delivery.ack()
        assert names(disk) == []

    asyncio.run(scenario())


def assorted(number: int) -> Bundle:
    """Nulls and none, slices, dictionaries and strings: what memory and a file hold differently."""
    whole = pa.record_batch(
        {
            "n": pa.array([number] * 40, pa.int64()),
            "none": pa.array([None] * 40, pa.int32()),
            "some": pa.array([None if n % 3 else n for n in range(40)], pa.float64()),
            "word": pa.array([f"w{n % 5}" for n in range(40)]).dictionary_encode(),
            "text": pa.array(["x" * n for n in range(40)]),
            "flag": pa.array([n % 2 == 0 for n in range(40)]),
        }
    )
    attributes = pa.record_batch({"k": ["a", "b", "c"], "v": [1, 2, 3]})
    return Bundle(
        {"logs": whole.slice(number % 7, 13), "attributes": attributes.slice(number % 2)}, identity=f"{number}"
    )


@pytest.mark.cases(quick=2)
@pytest.mark.parametrize("calls", [[1] * 300, [40, 1, 1, 40], [3] * 90])
def test_tables_from_memory_from_the_file_and_from_the_log_are_the_same_to_the_batch(calls: list[int]) -> None:
    async def scenario() -> None:
        config = small(
            segment=replace(small().segment, target_size=1 << 24),
            wal=replace(small().wal, max_size=1 << 26, rotation_size=1 << 22),
            retention=RetentionConfig(size_cap=1 << 30),
        )
        disk = torn()
        store = await registered(disk, "a", config=config)
        waiting = asyncio.create_task(store.next("a"))
        number = 0
        for count in calls:
            await store.ingest_many([assorted(number + at) for at in range(count)])
            number += count
        store._finaliser.seal("size")
        delivery = await waiting
        assert delivery is not None
        memory = await delivery.read()
        disk.crash()
        store = await registered(disk, "a", config=config)
        await store.flush()
        again = await store.next("a", 0.0)
        assert again is not None
        file = await again.read()
        assert list(memory) == list(file)
        for slot in memory:
            assert [shape(table) for table in memory[slot]] == [shape(table) for table in file[slot]]
            assert all(one.equals(other) for one, other in zip(memory[slot], file[slot], strict=True))

    asyncio.run(scenario())


def shape(table: pa.Table) -> Any:
    return table.schema, [batch.num_rows for batch in table.to_batches()], table.nbytes


# Every moment ------------------------------------------------------------------------------------


@dataclass
class History:
    stored: list[int] = field(default_factory=list)
    acked: dict[str, list[int]] = field(default_factory=lambda: {"a": [], "b": []})
    doubtful: dict[str, list[int]] = field(default_factory=lambda: {"a": [], "b": []})
    seen: dict[int, list[int]] = field(default_factory=dict)


async def live(store: Quiver, history: History) -> None:
    for name in ("a", "b"):
        await store.register(name)
    consumers = [asyncio.create_task(consume(store, history, name)) for name in ("a", "b")]
    for number in range(2 * FULL + 2):
        await store.ingest(bundle(number))
        history.stored.append(number)
    await store.close()
    for consumer in consumers:
        consumer.cancel()


async def consume(store: Quiver, history: History, name: str) -> None:
    while (delivery := await store.next(name)) is not None:
        found = await numbers(delivery)
        assert history.seen.setdefault(delivery.segment_seq, found) == found
        history.doubtful[name] = found
        await delivery.ack()
        history.acked[name] += found
        history.doubtful[name] = []


async def cut(simulation: Simulation, after: int, mode: WriteMode, how: str) -> int | None:
    config = replace(with_mode(small(), mode), checkpoint_records=4)
    history = History()
    return await cut_short(
        simulation,
        after,
        mode,
        how,
        config,
        lambda store: live(store, history),
        lambda store: check(store, history),
        yields=True,
    )


async def check(store: Quiver, history: History) -> None:
    assert store.findings.lost_bundles == []
    assert store.findings.lost_segments == []
    await store.flush()
    for name in ("a", "b"):
        await store.register(name)
        came: list[int] = []
        while (delivery := await store.next(name, 0.0)) is not None:
            found = await numbers(delivery)
            assert history.seen.setdefault(delivery.segment_seq, found) == found, (
                "a number means the same rows for ever"
            )
            came += found
            await delivery.ack()
        assert not set(came) & set(history.acked[name]), f"{name} got again what it had acknowledged"
        expected = set(history.stored) - set(history.acked[name]) - set(history.doubtful[name])
        assert expected <= set(came), f"{name} lost {sorted(expected - set(came))}"
        assert len(came) == len(set(came))
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["power", "kill"])
@pytest.mark.parametrize("mode", [WriteMode.DIRECT, WriteMode.BUFFERED])
def test_an_end_between_any_two_system_calls_loses_and_repeats_nothing(mode: WriteMode, how: str) -> None:
    after = 0
    while simulate(lambda simulation: cut(simulation, after, mode, how), seed=after) is not None:  # noqa: B023
        after += 1
    assert after > 40, "the history has that many writes"


class SetBackClock(ManualClock):
    """A clock that somebody sets: the date jumps, and no time has passed."""

    set_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.set_ms


@pytest.mark.parametrize("hours", [-100_000, -1, 1, 100_000])
def test_a_clock_that_is_set_meanwhile_neither_ends_nor_prolongs_the_delivery_from_memory(hours: int) -> None:
    async def scenario() -> None:
        disk, clock = torn(), SetBackClock()
        store = await registered(disk, "a", clock=clock)
        (delivery,) = await handed_out(store, "a")
        clock.set_ms = hours * 3_600_000
        await clock.run_for(0.5)
        assert names(disk) == [], "half of its time is left"
        await clock.run_for(1.0)
        assert [meta.segment_seq for meta in store.segments] == [1], "its time was up, and it has files now"
        assert await numbers(delivery) == list(range(FULL))
        await clock.run_for(120.0)
        assert len(store.segments) == 1, "nothing that came in this life is old"
        await delivery.ack()
        (other,) = await handed_out(store, "a", start=FULL)
        assert other.segment_seq == 2
        await other.ack()
        disk.crash()
        store = await registered(disk, "a", clock=clock)
        assert await drained(store, "a") == []

    asyncio.run(scenario())


def test_drop_oldest_passes_over_a_segment_that_is_delivered_from_memory() -> None:
    """It has no file that could go, and somebody has it."""

    async def scenario() -> None:
        disk = torn()
        retention = replace(small().retention, size_cap_policy=SizeCapPolicy.DROP_OLDEST, segment_count_cap=1)
        store = await opened(disk, replace(small(), retention=retention))
        await store.register("a")
        (delivery,) = await handed_out(store, "a")
        await store.sweep()
        assert await numbers(delivery) == list(range(FULL))
        assert store.state.outstanding[1] == {"a"}
        for number in range(FULL, 4 * FULL):
            await store.ingest(bundle(number))
        await store.flush()
        assert await numbers(delivery) == list(range(FULL)), "still there for whoever has it"
        await delivery.ack()
        await store.sweep()
        assert [meta.segment_seq for meta in store.segments] == [4], "the cap holds"

    asyncio.run(scenario())


@pytest.mark.slow
def test_hundreds_of_subscribers_share_a_segment_in_memory() -> None:
    async def scenario() -> None:
        disk = torn()
        everybody = [f"s{number}" for number in range(300)]
        store = await registered(disk, *everybody)
        deliveries = await handed_out(store, *everybody)
        assert len(deliveries) == 300
        await asyncio.gather(*(delivery.ack() for delivery in deliveries[:-1]))
        assert store.state.outstanding == {1: {"s299"}}
        await deliveries[-1].ack()
        await store.flush()
        assert names(disk) == []
        disk.crash()
        store = await registered(disk, *everybody)
        assert store.state.outstanding == {}
        assert len(store.state.subscriptions) == 300

    asyncio.run(scenario())
