"""What a start finds: bundles that were in no segment yet, deletions that stay, and numbers that only grow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from tests.quiver.worlds import HOME, bundle, drained, killed, names, opened, run, small, torn, with_mode

from penstock.quiver import WriteMode
from penstock.testing import ManualClock

T = TypeVar("T")


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


@pytest.mark.parametrize("turns", range(12))
def test_a_close_that_is_cancelled_at_any_moment_gives_the_store_back_all_the_same(turns: int) -> None:
    async def offload(work: Callable[..., T], /, *args: Any) -> T:
        await asyncio.sleep(0)
        return work(*args)

    async def scenario() -> None:
        disk = torn()
        store = await opened(disk, offload=offload)
        await store.register("s")
        await store.ingest(bundle(1))
        closing = asyncio.create_task(store.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await store.close()
        again = await opened(disk)
        assert again.findings.replayed_bundles == 0, "what was in memory is in a segment"
        await again.register("s")
        assert await drained(again) == [1]
        await again.close()

    run(scenario())


def test_what_was_processed_last_is_gone_when_the_store_is_closed() -> None:
    """And not only with the next start, which may never come."""

    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s")
        for number in range(4):
            await store.ingest(bundle(number))
            await store.flush()
        assert await drained(store) == [0, 1, 2, 3]
        await store.close()
        assert names(disk, "segments") == []

    run(scenario())
