"""The store's promises, one scenario each: replay, marks, retries, caps, many slots, and numbers that only grow."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.quiver.worlds import PATH, bundle, drained, numbers, opened, small, torn, with_mode

from penstock.errors import AtCapacity, Closed, Conflict, Corrupt, DeadlineExceeded, InvalidInput, NotFound, StorageFull
from penstock.quiver import (
    Bundle,
    DeliveryOrder,
    Durability,
    OrphanPolicy,
    QuiverConfig,
    RetentionConfig,
    SizeCapPolicy,
    SubscriberConfig,
    WriteMode,
)
from penstock.testing import ManualClock, RecordingObserver, TornDisk
from penstock.testing.clock import START_MS

HOME = f"{PATH}/instance-000"


def run(scenario: Any) -> None:
    asyncio.run(scenario)


def names(disk: TornDisk, folder: str) -> list[str]:
    return [name for name, _ in disk.scan(f"{HOME}/{folder}")]


async def killed(disk: TornDisk) -> None:
    """The process dies where it stands; its page cache stays."""
    await asyncio.sleep(0)
    disk.revive()


@pytest.mark.parametrize("mode", [WriteMode.DIRECT, WriteMode.BUFFERED])
def test_replay_recovers_bundles_that_were_not_finalised_and_skips_those_that_were(mode: WriteMode) -> None:
    async def scenario() -> None:
        disk, config = torn(), with_mode(small(), mode)
        store = await opened(disk, config)
        await store.register("s")
        for number in range(20):
            await store.ingest(bundle(number))
        assert [meta.bundles for meta in store.segments] == [8, 8]
        disk.crash()
        store = await opened(disk, config)
        assert store.findings.replayed_bundles == 4
        await store.register("s")
        await store.flush()
        assert await drained(store) == list(range(20))
        await store.close()

    run(scenario())


def test_replay_reads_rotated_files_with_gaps_in_their_numbers() -> None:
    async def scenario() -> None:
        disk = torn()
        # Nothing is finalised, and every second bundle needs a new file.
        config = replace(small(), segment=replace(small().segment, target_size=1 << 20, max_open_duration=1e6))
        store = await opened(disk, config)
        await store.register("s")
        for number in range(9):
            await store.ingest(bundle(number, rows=600))
        files = [name for name in names(disk, "wal") if not name.startswith("spare")]
        assert len(files) >= 4
        disk.crash()
        store = await opened(disk, config)
        assert store.findings.replayed_bundles == 9
        disk.crash()
        disk.unlink(f"{HOME}/wal/{files[1]}")
        store = await opened(disk, config)
        lost = store.findings.lost_bundles
        assert store.findings.replayed_bundles + sum(end - first for first, end in lost) == 9
        assert len(lost) == 1, "what is gone is named, and the rest is there"

    run(scenario())


def test_missing_and_empty_logs_open() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.ingest(bundle(1))
        await killed(disk)
        for name in names(disk, "wal"):
            disk.unlink(f"{HOME}/wal/{name}")
        disk.create(f"{HOME}/wal/{9:020d}.wal", b"")
        disk.create(f"{HOME}/wal/foreign.txt", b"left alone")
        store = await opened(disk)
        assert store.findings.replayed_bundles == 0
        assert (await store.ingest(bundle(2))).durable
        assert "foreign.txt" in names(disk, "wal")

    run(scenario())


def test_expired_records_are_skipped() -> None:
    async def scenario() -> None:
        disk, clock = torn(), ManualClock()
        store = await opened(disk, clock=clock)
        await store.ingest(bundle(1))
        await killed(disk)
        clock.advance(73 * 3600)
        store = await opened(disk, clock=clock)
        assert (store.findings.expired_bundles, store.findings.replayed_bundles) == (1, 0)

    run(scenario())


def test_replay_under_a_tight_budget_finalises_as_it_goes() -> None:
    async def scenario() -> None:
        disk = torn()
        large = replace(small(), segment=replace(small().segment, target_size=1 << 20, max_open_duration=1e6))
        store = await opened(disk, large)
        await store.register("s")
        for number in range(50):
            await store.ingest(bundle(number))
        await killed(disk)
        store = await opened(disk, small())
        await store.register("s")
        assert store.open_bytes <= 3 * 256
        await store.flush()
        assert len(store.segments) >= 6
        assert await drained(store) == list(range(50))

    run(scenario())


def test_numbers_go_on_after_all_segments_are_gone() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s")
        last = [await store.ingest(bundle(number)) for number in range(10)][-1]
        await store.flush()
        await drained(store)
        await store.sweep()
        assert store.segments == []
        before = store.state.next_segment_seq
        await store.close()
        assert names(disk, "segments") == []
        store = await opened(disk)
        await store.register("s")
        assert store.state.next_segment_seq == before
        assert (await store.ingest(bundle(99))).bundle_seq == last.bundle_seq + 1
        await store.flush()
        assert [meta.segment_seq for meta in store.segments] == [before]
        assert await drained(store) == [99]

    run(scenario())


def test_deletions_and_renames_survive_a_power_loss() -> None:
    for seed in range(20):

        async def scenario(seed: int = seed) -> None:
            disk = torn(seed)
            store = await opened(disk)
            await store.register("s")
            for number in range(16):
                await store.ingest(bundle(number))
            await drained(store)
            await store.sweep()
            disk.crash()
            store = await opened(disk)
            await store.register("s")
            assert await drained(store) == []
            assert names(disk, "segments") == []

        run(scenario())


def test_a_segment_whose_write_failed_stays_in_memory_and_is_retried() -> None:
    async def scenario() -> None:
        disk, clock = torn(), ManualClock()
        store = await opened(disk, clock=clock)
        await store.register("s")
        disk.fail_next("create")
        disk.fail_next("sync_file")
        for number in range(8):
            await store.ingest(bundle(number))
        await clock.run_for(0.01)
        assert store.segments == []
        assert store.open_bytes == 256
        await clock.run_for(1.0)
        assert [meta.bundles for meta in store.segments] == [8]
        assert store.open_bytes == 0
        assert await drained(store) == list(range(8))

    run(scenario())


def test_the_log_keeps_what_a_failed_segment_holds() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s")
        for _ in range(50):
            disk.fail_next("create")
        for number in range(12):
            await store.ingest(bundle(number))
        disk.heal()
        disk.crash()
        store = await opened(disk)
        assert store.findings.replayed_bundles == 12
        assert store.findings.lost_bundles == []

    run(scenario())


@pytest.mark.parametrize("mode", [WriteMode.DIRECT, WriteMode.BUFFERED])
def test_a_failed_sync_is_never_taken_for_a_later_success(mode: WriteMode) -> None:
    """The group is written again in another file; the failed one's bytes are nobody's word."""
    for seed in range(30):

        async def scenario(seed: int = seed) -> None:
            disk, config = torn(seed), with_mode(small(), mode)
            store = await opened(disk, config)
            await store.ingest(bundle(1))
            disk.fail_next("write_at" if mode is WriteMode.DIRECT else "sync_file")
            assert (await store.ingest(bundle(2))).durable
            await store.ingest(bundle(3))
            disk.crash()
            store = await opened(disk, config)
            await store.register("s")
            await store.flush()
            assert await drained(store) == [1, 2, 3]
            assert store.findings.lost_bundles == []

        run(scenario())


def test_a_caller_alone_is_synced_without_others() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk, clock=ManualClock())
        ack = await asyncio.wait_for(store.ingest(bundle(1)), 5)
        assert ack.durable
        disk.crash()
        assert (await opened(disk)).findings.replayed_bundles == 1

    run(scenario())


def test_many_callers_share_a_sync_and_a_sync_mode_shares_none() -> None:
    async def scenario() -> None:
        writes = {}
        for durability in (Durability.GROUP, Durability.SYNC):
            disk = torn()
            config = replace(small(), durability=durability, segment=replace(small().segment, target_size=1 << 20))
            store = await opened(disk, with_mode(config, WriteMode.BUFFERED))
            await store.ingest(bundle(0))
            before = disk.writes
            acks = await asyncio.gather(*(store.ingest(bundle(number)) for number in range(10)))
            assert [ack.bundle_seq for ack in acks] == list(range(2, 12))
            writes[durability] = disk.writes - before
        assert writes[Durability.GROUP] == 2, "one write and one sync"
        assert writes[Durability.SYNC] >= 20

    run(scenario())


def test_off_writes_nothing_and_delivers_the_same() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk, replace(small(), durability=Durability.OFF))
        await store.register("s")
        for number in range(10):
            assert not (await store.ingest(bundle(number))).durable
        await store.flush()
        assert await drained(store) == list(range(10))
        await store.close()
        assert disk.writes == 0

    run(scenario())


def test_segment_only_is_durable_with_its_segment() -> None:
    async def scenario() -> None:
        disk, config = torn(), replace(small(), durability=Durability.SEGMENT_ONLY)
        store = await opened(disk, config)
        await store.register("s")
        for number in range(10):
            assert not (await store.ingest(bundle(number))).durable
        disk.crash()
        store = await opened(disk, config)
        await store.register("s")
        assert await drained(store) == list(range(8))

    run(scenario())


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


def test_two_subscribers_at_different_speeds() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("fast")
        await store.register("slow")
        for number in range(24):
            await store.ingest(bundle(number))
        assert await drained(store, "fast") == list(range(24))
        await store.sweep()
        assert len(store.segments) == 3, "the slow one has seen none"
        first = await store.next("slow")
        assert first is not None
        await first.ack()
        await store.sweep()
        assert [meta.segment_seq for meta in store.segments] == [2, 3]
        assert await drained(store, "slow") == list(range(8, 24))
        await store.sweep()
        assert store.segments == []

    run(scenario())


def test_newest_first_delivers_the_newest_and_marks_wait_for_the_oldest() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("s", SubscriberConfig(order=DeliveryOrder.NEWEST_FIRST))
        for number in range(24):
            await store.ingest(bundle(number))
        first = await store.next("s")
        assert first is not None
        assert first.segment_seq == 3
        await first.ack()
        known = store.state.subscriptions["s"]
        assert (known.done.mark, known.done.gaps) == (0, {3})
        await drained(store)
        assert known.done.mark == 3

    run(scenario())


def test_a_nack_retries_with_backoff_and_keeps_the_segment_pinned() -> None:
    async def scenario() -> None:
        disk, clock = torn(), ManualClock()
        store = await opened(disk, clock=clock)
        await store.register("s", SubscriberConfig(retry_seconds_first=1.0))
        for number in range(8):
            await store.ingest(bundle(number))
        for attempt in (1, 2, 3):
            delivery = await store.next("s", 0.0)
            assert delivery is not None
            assert delivery.attempt == attempt
            await delivery.nack("busy")
            assert await store.next("s", 0.0) is None, "too soon"
            await store.sweep()
            assert len(store.segments) == 1
            clock.advance(2.0**attempt)
        await killed(disk)
        store = await opened(disk, clock=clock)
        await store.register("s")
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        assert delivery.attempt == 4, "refusals are remembered"

    run(scenario())


def test_a_permanent_refusal_is_a_dead_letter_until_it_is_replayed() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s", SubscriberConfig(attempts_max=1))
        for number in range(16):
            await store.ingest(bundle(number))
        first = await store.next("s")
        second = await store.next("s")
        assert first is not None
        assert second is not None
        await first.nack("cannot parse", permanent=True)
        await second.nack("too often")
        await store.sweep()
        await killed(disk)
        store = await opened(disk)
        await store.register("s")
        assert store.state.subscriptions["s"].rejected == {1: "cannot parse", 2: "too often"}
        assert len(store.segments) == 2
        assert await drained(store) == []
        assert await store.replay("s") == [1, 2]
        assert await drained(store) == list(range(16))
        await store.sweep()
        assert store.segments == []

    run(scenario())


def test_deferred_comes_back_later_and_is_no_refusal() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        store = await opened(torn(), clock=clock)
        await store.register("s")
        for number in range(8):
            await store.ingest(bundle(number))
        delivery = await store.next("s")
        assert delivery is not None
        await delivery.defer(5.0)
        assert await store.next("s", 0.0) is None
        clock.advance(5.0)
        again = await store.next("s", 0.0)
        assert again is not None
        assert again.attempt == 1
        await again.ack()
        await again.nack("too late: the first word counts")
        assert await store.next("s", 0.0) is None

    run(scenario())


def test_a_block_that_raises_refuses_and_one_that_ends_acknowledges() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("s", SubscriberConfig(retry_seconds_first=0.001, retry_seconds_max=0.001))
        for number in range(8):
            await store.ingest(bundle(number))
        with pytest.raises(ZeroDivisionError):
            async with await store.next("s"):  # type: ignore[union-attr]
                raise ZeroDivisionError
        assert store.state.subscriptions["s"].attempts == {1: 1}
        store._doors.clock.advance(1.0)  # type: ignore[attr-defined]
        async with await store.next("s"):  # type: ignore[union-attr]
            pass
        assert store.state.subscriptions["s"].done.mark == 1

    run(scenario())


def test_a_subscriber_that_waits_is_told_of_a_new_segment() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("s")
        waiting = asyncio.create_task(store.next("s"))
        for number in range(8):
            await store.ingest(bundle(number))
        delivery = await asyncio.wait_for(waiting, 60)
        assert delivery is not None
        assert await numbers(delivery) == list(range(8))

    run(scenario())


def test_deactivate_keeps_data_and_unregister_lets_it_go() -> None:
    async def scenario() -> None:
        store = await opened(torn())
        await store.register("a")
        await store.register("gone")
        for number in range(8):
            await store.ingest(bundle(number))
        await drained(store, "a")
        await store.deactivate("gone")
        with pytest.raises(NotFound):
            await store.next("gone", 0.0)
        await store.sweep()
        assert len(store.segments) == 1
        await store.unregister("gone")
        await store.sweep()
        assert store.segments == []
        with pytest.raises(NotFound):
            await store.unregister("gone")

    run(scenario())


def test_an_orphan_pins_nothing_for_ever() -> None:
    async def scenario() -> None:
        clock, observer = ManualClock(), RecordingObserver()
        config = replace(small(), orphan_policy=OrphanPolicy.RELEASE, orphan_after_hours=1.0, maintenance_seconds=60.0)
        store = await opened(torn(), config, clock=clock, observer=observer)
        await store.register("a")
        await store.register("orphan")
        for number in range(8):
            await store.ingest(bundle(number))
        await drained(store, "a")
        for _ in range(70):
            await store.next("a", 0.0)
            await clock.run_for(60.0)
        assert list(store.state.subscriptions) == ["a"]
        assert store.segments == []

    run(scenario())


class SetClock(ManualClock):
    """A clock that somebody sets: the date jumps, and no time has passed."""

    set_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.set_ms


def releasing() -> QuiverConfig:
    return replace(small(), orphan_policy=OrphanPolicy.RELEASE, orphan_after_hours=1.0, maintenance_seconds=60.0)


def test_a_clock_that_is_set_makes_no_orphans_and_numbers_grow_all_the_same() -> None:
    async def scenario() -> None:
        clock = SetClock()
        store = await opened(torn(), releasing(), clock=clock)
        await store.register("s")
        for number, hours in enumerate((0, 50, -100_000, 3)):
            clock.set_ms = hours * 3_600_000
            await store.ingest(bundle(number))
            await store.flush()
            await clock.run_for(120.0)
        assert list(store.state.subscriptions) == ["s"]
        assert [meta.segment_seq for meta in store.segments] == [1, 2, 3, 4]
        assert await drained(store) == [0, 1, 2, 3]
        await store.close()

    run(scenario())


def test_whoever_waits_or_holds_a_segment_for_hours_is_no_orphan() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        store = await opened(torn(), releasing(), clock=clock)
        for name in ("waits", "holds"):
            await store.register(name)
        await store.ingest(bundle(1))
        await store.flush()
        held = await store.next("holds", 0.0)
        await drained(store, "waits")
        waiting = asyncio.create_task(store.next("waits"))
        await clock.run_for(3 * 3600.0)
        assert set(store.state.subscriptions) == {"waits", "holds"}
        assert held is not None
        await held.ack()
        waiting.cancel()
        await clock.run_for(3 * 3600.0)
        assert list(store.state.subscriptions) == []
        await store.close()

    run(scenario())


def test_a_start_gives_subscribers_time_to_come_back() -> None:
    """Nobody could ask while the store was closed."""

    async def scenario() -> None:
        disk = torn()
        store = await opened(disk, releasing())
        await store.register("s")
        await store.ingest(bundle(1))
        await store.close()
        clock = ManualClock(START_MS + 10 * 3_600_000)
        store = await opened(disk, releasing(), clock=clock)
        await clock.run_for(1800.0)
        await store.register("s")
        assert await drained(store) == [1]
        await store.close()

    run(scenario())


def capped(policy: SizeCapPolicy, **changes: Any) -> QuiverConfig:
    """Two log files, the acknowledgements, and a few segments fit."""
    config = small()
    return replace(config, retention=RetentionConfig(size_cap=128 << 10, size_cap_policy=policy), **changes)


def test_at_capacity_blocks_then_resumes_after_acks() -> None:
    async def scenario() -> None:
        store = await opened(torn(), capped(SizeCapPolicy.BACKPRESSURE))
        await store.register("s")
        stored, refusals = 0, 0
        while refusals < 50:
            try:
                await store.try_ingest(bundle(stored))
                stored += 1
            except AtCapacity as refused:
                rejected = refused.rejected
                refusals += 1
                # What is in memory becomes a segment, and its log is given back.
                await asyncio.sleep(0)
        assert rejected == bundle(stored)
        with pytest.raises(DeadlineExceeded):
            waiting = asyncio.create_task(store.ingest(bundle(stored), timeout=1.0))
            for _ in range(200):
                store._doors.clock.advance(0.1)  # type: ignore[attr-defined]
                await asyncio.sleep(0)
            await waiting
        blocked = asyncio.create_task(store.ingest(bundle(stored)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not blocked.done()
        seen = await drained(store)
        for _ in range(50):
            store._doors.clock.advance(0.1)  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        assert (await blocked).durable
        assert store.stored_bytes <= 128 << 10
        await store.flush()
        seen += await drained(store)
        assert seen == list(range(stored + 1))

    run(scenario())


def test_drop_oldest_records_dropped_before_the_file_goes() -> None:
    async def scenario() -> None:
        disk, observer = torn(), RecordingObserver()
        store = await opened(disk, capped(SizeCapPolicy.DROP_OLDEST), observer=observer)
        await store.register("s")
        await store.register("reader")
        reading = None
        for number in range(400):
            await store.ingest(bundle(number))
            reading = reading or await store.next("reader", 0.0)
        assert reading is not None
        assert reading.segment_seq in {meta.segment_seq for meta in store.segments}, "somebody reads it"
        assert (await numbers(reading))[0] == 0
        assert store.stored_bytes <= 128 << 10
        known = store.state.subscriptions["s"]
        assert known.done.gaps, "the second was dropped, the first is being read"
        disk.crash()
        store = await opened(disk, capped(SizeCapPolicy.DROP_OLDEST))
        assert store.findings.lost_segments == []
        await store.register("s")
        await store.flush()
        left = await drained(store)
        assert left[-1] == 399
        assert store.state.subscriptions["s"].done.mark == store.state.next_segment_seq - 1

    run(scenario())


def test_the_count_cap_holds_and_age_takes_what_is_old() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        config = replace(
            small(),
            retention=replace(small().retention, segment_count_cap=3, size_cap_policy=SizeCapPolicy.DROP_OLDEST),
        )
        store = await opened(torn(), config, clock=clock)
        await store.register("s")
        for number in range(80):
            await store.ingest(bundle(number))
        await store.sweep()
        assert len(store.segments) == 3
        clock.advance(73 * 3600)
        await store.sweep()
        assert store.segments == []
        assert store.state.subscriptions["s"].done.mark == 10

    run(scenario())


def test_a_full_disk_refuses_clearly_drains_and_resumes() -> None:
    async def scenario() -> None:
        disk = torn(capacity_bytes=110_000)
        store = await opened(disk)
        await store.register("s")
        stored: list[int] = []
        with pytest.raises(StorageFull) as refused:
            for number in range(3000):
                await store.ingest(bundle(number), timeout=0.0)
                stored.append(number)
        assert "room" in refused.value.why
        seen = await drained(store)
        assert seen == stored[: len(seen)]
        await store.sweep()
        await store._doors.clock.run_for(10.0)  # type: ignore[attr-defined]
        await store.ingest(bundle(9999))
        disk.crash()
        store = await opened(disk)
        await store.register("s")
        await store.flush()
        assert seen + await drained(store) == [*stored, 9999]

    run(scenario())


def test_one_writer_an_instance_and_instances_beside_each_other() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        with pytest.raises(Conflict, match="open already"):
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
        for call in (store.ingest(bundle(1)), store.flush(), store.register("t"), store.next("s"), store.scan()):
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
