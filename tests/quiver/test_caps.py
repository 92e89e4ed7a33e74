"""At the cap, and on a full disk: callers wait or the oldest goes, and everything resumes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.quiver.worlds import bundle, drained, numbers, opened, run, small, torn

from penstock.errors import AtCapacity, DeadlineExceeded, StorageFull
from penstock.quiver import QuiverConfig, RetentionConfig, SizeCapPolicy
from penstock.testing import ManualClock, RecordingObserver


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
        assert "disk is full" in refused.value.why
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
