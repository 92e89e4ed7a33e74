"""Uploads: a fresh name each time, patience within bounds, an age that trusts neither clock alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.buffer.simulated import simulated

from penstock.buffer.config import ProducerConfig
from penstock.buffer.format.batch import Compression, RecordBlock, decode_batch
from penstock.buffer.location import batch_time_ms
from penstock.buffer.producing.upload import BatchPlacement, Uploader
from penstock.errors import Unavailable
from penstock.ids import SYSTEM_ENTROPY
from penstock.objects import MemoryStore, ObjectMeta
from penstock.objects.port import Body
from penstock.observability import SILENT
from penstock.testing import FaultPlan, FaultyStore, Latency, ManualClock, SeededEntropy, Simulation, UnreachableStore
from penstock.testing.storage.hostile_stores import PassingStore


@simulated
async def test_each_upload_gets_a_name_of_its_own_that_tells_its_time(simulation: Simulation) -> None:
    store = MemoryStore(clock=simulation.clock)
    uploader = Uploader(store, ProducerConfig(), clock=simulation.clock, entropy=simulation.entropy, observer=SILENT)
    placements = [await uploader.upload(b"same bytes") for _ in range(3)]
    assert len({placement.location for placement in placements}) == 3
    for placement in placements:
        assert batch_time_ms(placement.location, "ingest") == placement.named_ms == simulation.clock.now_ms()
        assert (await store.get(placement.location)).data == b"same bytes"


@simulated
async def test_no_more_uploads_run_at_once_than_allowed(simulation: Simulation) -> None:
    running = most = 0

    class Counting(PassingStore):
        async def put(self, key: str, data: Body) -> ObjectMeta:
            nonlocal running, most
            running, most = running + 1, max(most, running + 1)
            try:
                return await super().put(key, data)
            finally:
                running -= 1

    slow = FaultyStore(
        MemoryStore(clock=simulation.clock),
        FaultPlan(latency=Latency(0.1, 1.0)),
        entropy=simulation.entropy.fork("faults"),
        clock=simulation.clock,
    )
    config = ProducerConfig(upload_concurrency=3)
    uploader = Uploader(Counting(slow), config, clock=simulation.clock, entropy=simulation.entropy, observer=SILENT)
    await asyncio.gather(*(uploader.upload(b"x") for _ in range(10)))
    assert most == 3


@simulated
async def test_an_upload_is_given_up_after_its_attempts_and_their_pauses(simulation: Simulation) -> None:
    config = ProducerConfig(upload_attempts=6, backoff_seconds_min=0.1, backoff_seconds_max=1.0)
    uploader = Uploader(UnreachableStore(), config, clock=simulation.clock, entropy=simulation.entropy, observer=SILENT)
    with pytest.raises(Unavailable):
        await uploader.upload(b"x")
    assert 0.0 < simulation.clock.monotonic() <= 0.1 + 0.2 + 0.4 + 0.8 + 1.0


def test_an_object_is_vouched_for_by_its_fence_or_by_the_stores_stamps_alone() -> None:
    config = ProducerConfig(collector_grace_seconds=600.0)
    uploader = Uploader(MemoryStore(), config, clock=ManualClock(), entropy=SeededEntropy(1), observer=SILENT)
    placed = BatchPlacement("x", 0, 0.0, fence=7)
    assert uploader.vouched(placed, 7, None)
    assert not uploader.vouched(placed, 8, 1000), "nobody knows since when it is there"
    assert not uploader.vouched(replace(placed, fence=None), 7, 1000)
    stamped = replace(placed, stored_ms=1_000_000)
    assert uploader.vouched(stamped, 8, 1_299_999)
    assert not uploader.vouched(stamped, 8, 1_300_000), "half the grace had passed when the manifest was written"
    assert not uploader.vouched(stamped, 8, None)


@pytest.mark.parametrize("by", ["wall", "monotonic"])
def test_a_batch_is_too_old_by_whichever_clock_says_so(by: str) -> None:
    clock = ManualClock()
    config = ProducerConfig(collector_grace_seconds=600.0)
    uploader = Uploader(MemoryStore(), config, clock=clock, entropy=SeededEntropy(1), observer=SILENT)
    clock.advance(1000.0)
    now_ms, now = clock.now_ms(), clock.monotonic()
    aged = (
        BatchPlacement("x", now_ms - 300_000, now, 7) if by == "wall" else BatchPlacement("x", now_ms, now - 300.0, 7)
    )
    young = BatchPlacement("x", now_ms - 299_999, now - 299.9, 7)
    assert uploader.too_old(aged)
    assert not uploader.too_old(young)


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_compression_gives_the_same_batch_on_the_loop_and_in_a_thread(size: int) -> None:
    async def main() -> None:
        config = ProducerConfig(compression=Compression.ZSTD)
        uploader = Uploader(MemoryStore(), config, clock=ManualClock(), entropy=SYSTEM_ENTROPY, observer=SILENT)
        block = RecordBlock()
        block.extend([bytes(size), b"end"])
        assert [len(record) for record in decode_batch(await uploader.encode(block))] == [size, 3]

    asyncio.run(main())
