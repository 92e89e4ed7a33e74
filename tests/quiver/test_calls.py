"""Small calls of one group share a frame of the log, and none of them can fail another."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
from tests.quiver.worlds import PATH, bundle, drained, opened, small, torn

from penstock.quiver import Bundle, Quiver
from penstock.quiver.wal.calls import GroupCalls, WalCall
from penstock.quiver.wal.replay import replay_wal_files
from penstock.testing import ManualClock, TornDisk


def calls(*sizes: int, ms: int = 5) -> list[WalCall]:
    """One bundle each, of about so many bytes."""
    bundles = [Bundle({"logs": pa.record_batch({"body": [bytes(size)]})}) for size in sizes]
    return [WalCall([one], one.nbytes, ms + number) for number, one in enumerate(bundles)]


def shared_frames(group: list[WalCall]) -> list[int]:
    """How many calls each frame has."""
    whole = GroupCalls(group)
    whole.encode()
    assert not whole.refused
    return [len(frame.calls) for frame in whole.frames]


def frame_counts(disk: TornDisk) -> list[int]:
    """How many bundles each frame of the log has."""
    folder = f"{PATH}/instance-000/wal"
    files = [
        (int(name[:20]), memoryview(disk.read(f"{folder}/{name}")[0]))
        for name, _ in disk.scan(folder)
        if name[0] != "s"
    ]
    return [frame.count for frame in replay_wal_files(files, 0).frames]


def test_small_calls_share_frames_and_large_ones_have_their_own() -> None:
    assert shared_frames(calls(1000, 1000, 1000)) == [3]
    assert shared_frames(calls(1000, 100_000, 1000, 1000)) == [1, 1, 2]
    assert shared_frames(calls(100_000, 100_000)) == [1, 1]


def test_a_shared_frame_stays_small() -> None:
    found = shared_frames(calls(*[16_000] * 40))
    assert sum(found) == 40
    assert max(found) * 16_000 <= 256 << 10


def test_a_shared_frame_came_in_with_its_last_call() -> None:
    whole = GroupCalls(calls(10, 10, 10, ms=70))
    whole.encode()
    assert [frame.ingestion_ms for frame in whole.frames] == [72]


def test_a_group_is_encoded_once() -> None:
    whole = GroupCalls(calls(10, 10))
    whole.encode()
    frames = list(whole.frames)
    whole.encode()
    assert whole.frames == frames


def test_callers_of_one_moment_are_one_frame_and_come_back_after_a_crash() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s")
        acks = await asyncio.gather(*(_ingested(store, number) for number in range(6)))
        assert [[ack.bundle_seq for ack in found] for found in acks] == [[1], [2, 3], [4], [5, 6], [7], [8, 9]]
        assert sum(frame_counts(disk)) == 9
        assert len(frame_counts(disk)) < 6
        disk.crash()
        store = await opened(disk)
        assert store.findings.replayed_bundles + sum(meta.bundles for meta in store.segments) == 9
        await store.register("s")
        await store.flush()
        assert await drained(store) == [0, 1, 101, 2, 3, 103, 4, 5, 105]
        await store.close()

    asyncio.run(scenario())


def test_acknowledgements_of_shared_frames_never_name_a_time_before_the_call() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        store = await opened(torn(), small(), clock=clock)
        before = clock.now_ms()
        acks = await asyncio.gather(*(store.ingest(bundle(number)) for number in range(5)))
        assert all(before <= ack.ingestion_ms <= clock.now_ms() for ack in acks)
        await store.close()

    asyncio.run(scenario())


async def _ingested(store: Quiver, number: int) -> list[Any]:
    if number % 2:
        return await store.ingest_many([bundle(number), bundle(100 + number)])
    return [await store.ingest(bundle(number))]
