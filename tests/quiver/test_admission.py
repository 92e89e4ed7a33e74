"""Room for what comes: what can never fit, caps of number, large records, and instances that free room for each other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.quiver.worlds import PATH, bundle, drained, opened, small, torn

from penstock.errors import AtCapacity, InvalidInput, Unsupported
from penstock.quiver import Quiver, RetentionConfig, SegmentMeta, SizeCapPolicy
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.retention.budget import SharedUsage, UsageFigure, missing_elsewhere
from penstock.quiver.segment.finaliser import Finaliser
from penstock.quiver.segment.open_segment import OpenSegment
from penstock.quiver.segment.segment_store import MemorySegments
from penstock.testing import ManualClock, RecordingObserver, SeededEntropy, TornDisk, inline

DROP, WAIT = SizeCapPolicy.DROP_OLDEST, SizeCapPolicy.BACKPRESSURE


@pytest.mark.parametrize("policy", SizeCapPolicy)
def test_what_can_never_fit_is_refused_at_once_and_nothing_goes_for_it(policy: SizeCapPolicy) -> None:
    async def scenario() -> None:
        config = replace(small(), retention=RetentionConfig(size_cap=128 << 10, size_cap_policy=policy))
        store = await opened(torn(), config)
        await store.register("s")
        await store.ingest(bundle(1))
        await store.flush()
        with pytest.raises(InvalidInput, match="can never be stored"):
            await store.ingest(bundle(2, rows=10_000))
        assert await drained(store) == [1]
        await store.close()

    asyncio.run(scenario())


def test_at_the_cap_of_number_callers_wait_and_processed_segments_go_first() -> None:
    async def scenario() -> None:
        retention = replace(small().retention, segment_count_cap=3, steady_state_headroom=1 << 20)
        store = await opened(torn(), replace(small(), retention=retention))
        await store.register("s")
        for number in range(3):
            await store.ingest(bundle(number))
            await store.flush()
        with pytest.raises(AtCapacity, match="cap of 3 segments"):
            await store.try_ingest(bundle(3))
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        await delivery.ack()
        assert len(store.segments) == 3, "the headroom keeps what was processed"
        assert (await store.try_ingest(bundle(3))).durable
        assert [meta.segment_seq for meta in store.segments] == [2, 3]
        await store.flush()
        assert await drained(store) == [1, 2, 3]
        await store.close()

    asyncio.run(scenario())


def test_a_file_made_for_one_large_record_goes_with_its_segment() -> None:
    async def scenario() -> None:
        store = await opened(torn(), small())
        await store.register("s")
        before = store.stored_bytes
        await store.ingest(bundle(1, rows=20_000))
        assert store.stored_bytes >= before + 160_000
        await store.flush()
        await drained(store)
        await store.sweep()
        assert store.stored_bytes <= before + small().wal.rotation_size
        await store.ingest(bundle(2))
        await store.flush()
        assert await drained(store) == [2]
        await store.close()

    asyncio.run(scenario())


def test_a_full_log_file_whose_records_are_in_segments_is_used_again_at_the_cap() -> None:
    """Else a store that has been drained would still have no room for the next file of its log."""

    async def scenario() -> None:
        store = await opened(torn(), replace(small(), retention=RetentionConfig(size_cap=128 << 10)))
        await store.register("s")
        for number in range(400):
            await store.ingest(bundle(number), timeout=1.0)
            if number % 4 == 0:
                await store.flush()
                assert await drained(store)
                await store.sweep()
        await store.close()

    asyncio.run(scenario())


async def two(disk: TornDisk, retention: RetentionConfig) -> tuple[Quiver, Quiver, ManualClock]:
    clock = ManualClock()
    config = replace(small(), retention=retention, instances=2, maintenance_seconds=0.1)
    stores = [await opened(disk, config, clock=clock, instance=number) for number in range(2)]
    for store in stores:
        await store.register("s")
    return stores[0], stores[1], clock


async def ingest_until_refused(store: Quiver, clock: ManualClock, number: int = 0) -> int:
    refused = 0
    while refused < 20:
        try:
            await store.try_ingest(bundle(number))
            number += 1
        except AtCapacity:
            refused += 1
            await clock.run_for(0.2)
    return number


@pytest.mark.slow
def test_a_busy_instance_leaves_an_idle_one_room_to_begin() -> None:
    async def scenario() -> None:
        disk = torn()
        idle, busy, clock = await two(disk, RetentionConfig(size_cap=256 << 10))
        await ingest_until_refused(busy, clock)
        assert busy.stored_bytes > (256 << 10) // 2, "it uses more than its share"
        begun = await ingest_until_refused(idle, clock)
        assert begun >= 3, "as much as a file of its log holds"
        assert busy.stored_bytes + idle.stored_bytes <= (256 << 10) + 2 * 1024, "a segment each at most"
        await idle.flush()
        assert await drained(idle) == list(range(begun))
        assert await ingest_until_refused(idle, clock, begun) > begun, "and goes on as its subscriber does"

    asyncio.run(scenario())


@pytest.mark.slow
def test_processed_segments_of_one_instance_go_for_a_caller_of_another() -> None:
    """The work of making room is shared: the one that is idle frees what it keeps beyond need."""

    async def scenario() -> None:
        disk = torn()
        retention = RetentionConfig(size_cap=256 << 10, steady_state_headroom=200 << 10)
        busy, idle, clock = await two(disk, retention)
        await ingest_until_refused(idle, clock)
        await idle.flush()
        await drained(idle)
        kept = len(idle.segments)
        assert kept > 10, "the headroom keeps them"
        await ingest_until_refused(busy, clock)
        assert len(idle.segments) < kept // 2
        assert busy.stored_bytes > (256 << 10) // 2

    asyncio.run(scenario())


def test_under_drop_oldest_only_those_above_their_share_drop_for_others() -> None:
    others = [UsageFigure(90, missing=7)]
    assert missing_elsewhere(own=5, others=others, cap=100, instances=2, policy=DROP) == 0
    assert missing_elsewhere(own=60, others=others, cap=100, instances=2, policy=DROP) == 7
    assert missing_elsewhere(own=5, others=others, cap=100, instances=2, policy=WAIT) == 7


def test_figures_that_are_damaged_or_of_a_removed_instance_count_for_nothing() -> None:
    disk = torn()
    disk.make_directory(PATH)
    for number in (0, 1, 2):
        disk.make_directory(f"{PATH}/instance-{number:03d}")
    own = SharedUsage(disk, PATH, 0)
    SharedUsage(disk, PATH, 1).exchange(UsageFigure(100, 3))
    SharedUsage(disk, PATH, 2).exchange(UsageFigure(200))
    assert own.exchange(UsageFigure(1)) == [UsageFigure(100, 3), UsageFigure(200)]
    disk.remove_directory(f"{PATH}/instance-002")
    assert own.exchange(UsageFigure(1)) == [UsageFigure(100, 3)]
    with disk.open(f"{PATH}/001.usage") as file:
        file.write_at(0, b"\xff" * 8)
    assert own.exchange(UsageFigure(1)) == [UsageFigure(100, 3)], "what was known before"
    assert SharedUsage(disk, PATH, 0).exchange(UsageFigure(1)) == [UsageFigure(0)]


def test_a_segment_that_cannot_be_written_for_any_reason_keeps_nobody_waiting() -> None:
    class Refusing(MemorySegments):
        refusals = 1

        def write(self, segment: OpenSegment, segment_seq: int) -> SegmentMeta:
            if self.refusals:
                self.refusals -= 1
                raise NotImplementedError("this type")
            return super().write(segment, segment_seq)

    async def scenario() -> None:
        clock, published = ManualClock(), []
        doors = Doors(torn(), clock, SeededEntropy(1), inline, RecordingObserver(), "0")

        async def publish(meta: SegmentMeta, came_at: float) -> None:
            published.append(meta)

        async def write_first(segment: OpenSegment, segment_seq: int) -> bool:
            return False

        def nothing() -> Any:
            return None

        finaliser = Finaliser(
            Refusing(),
            small().segment,
            doors,
            WakeUp(clock),
            number=lambda: 1,
            publish=publish,
            hand_over=write_first,
            begun=nothing,
        )
        finaliser.add([bundle(1)], 1, 0)
        with pytest.raises(Unsupported, match="this type"):
            await finaliser.flush("flush")
        await clock.run_for(1.0)
        assert [meta.bundles for meta in published] == [1], "it was tried again"

    asyncio.run(scenario())
