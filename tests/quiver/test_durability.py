"""What an acknowledgement stands for, in each mode, and what a write or a sync that failed means."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.quiver.worlds import bundle, drained, opened, run, small, torn, with_mode

from penstock.quiver import Durability, WriteMode
from penstock.testing import ManualClock


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
