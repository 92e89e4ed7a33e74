"""What a producer promises: durable means both objects, in order, on time, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain, pairwise

import pytest
from tests.buffer.producers import MANIFEST, built, contents, faulty, queue
from tests.buffer.simulated import simulated

from penstock.buffer import Compression, Manifest, Producer, ProducerConfig
from penstock.errors import (
    AtCapacity,
    Closed,
    InvalidInput,
)
from penstock.objects import MemoryStore, ObjectMeta
from penstock.objects.port import Body
from penstock.observability import names
from penstock.testing import FaultPlan, Latency, RecordingObserver, Simulation, simulate
from penstock.testing.storage.hostile_stores import PassingStore

# Durability --------------------------------------------------------------------------------------


@simulated
async def test_durable_means_that_batch_object_and_manifest_entry_are_stored(simulation: Simulation) -> None:
    producer, store = built(simulation, compression=Compression.ZSTD)
    handle = await producer.produce([b"hello", b""], b"meta")
    assert not handle.done
    assert await handle.durable() == 0
    assert await contents(store) == [[b"hello", b""]]
    (entry,) = await queue(store)
    assert [one.payload for one in entry.metadata] == [b"meta"]
    assert entry.location.startswith("ingest/")


@simulated
async def test_nothing_is_durable_while_the_batch_is_stored_and_the_manifest_is_not(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put_if": Latency(5.0, 5.0)}))
    producer, _ = built(simulation, store)
    handle = await producer.produce([b"x"])
    await simulation.clock.sleep(3.0)
    assert [meta.key async for page in store.list("ingest/") for meta in page]
    assert not handle.done
    assert await handle.durable() == 0


@simulated
async def test_sequences_follow_the_order_of_produce_although_uploads_overtake_each_other(
    simulation: Simulation,
) -> None:
    store = faulty(simulation, FaultPlan(latency=Latency(0.0, 2.0)))
    producer, _ = built(simulation, store, max_buffered_inputs=1)
    handles = [await producer.produce([b"%d" % number]) for number in range(10)]
    assert [await handle.durable() for handle in handles] == list(range(10))
    assert await contents(store) == [[b"%d" % number] for number in range(10)]


@simulated
async def test_batches_that_wait_for_a_write_of_the_manifest_share_the_next_one(simulation: Simulation) -> None:
    writes: list[int] = []

    class Counting(PassingStore):
        async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
            if key == MANIFEST:
                writes.append(len(Manifest(bytes(data))))
            return await super().put_if(key, data, version=version)

    store = Counting(faulty(simulation, FaultPlan(latency_by_verb={"put_if": Latency(1.0, 1.0)})))
    producer, _ = built(simulation, store, max_buffered_inputs=1, manifest_append_batches=5)
    for number in range(9):
        await producer.produce([b"%d" % number])
    await producer.flush()
    assert len(writes) <= 1 + 8 // 5 + 1
    assert writes[-1] == 9
    assert max(after - before for before, after in pairwise(writes)) <= 5


@simulated
async def test_two_producers_share_one_queue_without_a_gap(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency=Latency(0.01, 0.1)))
    producers = [built(simulation, store, max_buffered_inputs=1)[0] for _ in range(2)]
    sequences = await asyncio.gather(
        *[(await producer.produce([b"x"])).durable() for producer in producers for _ in range(5)]
    )
    assert sorted(sequences) == list(range(10))
    assert 0.0 <= producers[0].conflict_rate < 1.0


def test_fifty_producers_on_one_queue_all_get_through() -> None:
    """On a store with the latencies of a real one; conflicts are many, and nobody fails or starves."""

    async def main(simulation: Simulation) -> None:
        plan = FaultPlan(latency_by_verb={"get": Latency(0.015, 0.015), "put_if": Latency(0.04, 0.04)})
        store = faulty(simulation, plan)

        async def work(number: int) -> float:
            entropy = simulation.entropy.fork(str(number))
            longest = 0.0
            async with Producer(store, clock=simulation.clock, entropy=entropy) as producer:
                for _ in range(5):
                    began = simulation.clock.monotonic()
                    await (await producer.produce([b"x"])).durable()
                    longest = max(longest, simulation.clock.monotonic() - began)
            return longest

        waits = await asyncio.gather(*(work(number) for number in range(50)))
        assert [entry.sequence for entry in await queue(store)] == list(range(250))
        # 250 writes that cannot overlap take 10 s at least; nobody waits for all the others.
        assert max(waits) < 25.0

    simulate(main, seed=1)


# When batches close ------------------------------------------------------------------------------


@simulated
async def test_a_lonely_input_is_durable_soon_after_the_interval(simulation: Simulation) -> None:
    producer, _ = built(simulation, flush_interval_seconds=0.1)
    handle = await producer.produce([b"x"])
    await handle.durable()
    assert simulation.clock.monotonic() == pytest.approx(0.1)


@simulated
async def test_a_batch_that_reaches_its_size_does_not_wait_for_the_interval(simulation: Simulation) -> None:
    producer, store = built(simulation, flush_interval_seconds=60.0, flush_size_bytes=100)
    handles = [await producer.produce([bytes(40)]) for _ in range(2)]
    await asyncio.gather(*(handle.durable() for handle in handles))
    assert simulation.clock.monotonic() < 1.0
    assert len(await queue(store)) == 1


@simulated
async def test_flush_closes_the_batch_now_and_waits_for_everything_before_it(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency=Latency(0.0, 1.0)))
    producer, _ = built(simulation, store, flush_interval_seconds=3600.0, max_buffered_inputs=3)
    handles = [await producer.produce([b"x"]) for _ in range(8)]
    await producer.flush()
    assert all(handle.done for handle in handles)
    assert simulation.clock.monotonic() < 60.0
    await producer.flush()


class WorkingClock:
    """Time that passes only by working: every look at it costs half a millisecond."""

    def __init__(self) -> None:
        self.worked = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return round(self.worked * 1000)

    def monotonic(self) -> float:
        self.worked += 0.0005
        for due, woken in self._sleepers:
            if due <= self.worked and not woken.done():
                woken.set_result(None)
        return self.worked

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.worked + seconds, woken))
        await woken


def test_a_flood_does_not_hold_back_the_timed_flush() -> None:
    """The flood awaits nothing but `produce`, which has room for all of it and so has no reason to wait."""

    async def main() -> None:
        clock = WorkingClock()
        store = MemoryStore(clock=clock)
        producer = Producer(store, ProducerConfig(max_buffered_inputs=100_000), clock=clock)
        first = await producer.produce([b"first"])
        while not first.done:
            await producer.produce([b"more"])
            assert clock.worked < 0.3, "three intervals went by, and the first input is not durable"
        assert clock.worked >= 0.1
        await producer.close()

    asyncio.run(main())


# Bounds ------------------------------------------------------------------------------------------


@simulated
async def test_over_the_bound_of_bytes_produce_waits_and_try_produce_refuses(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(1.0, 1.0)}))
    producer, _ = built(simulation, store, max_in_flight_bytes=250, flush_size_bytes=100)
    for _ in range(2):
        await producer.produce([bytes(100)])
    refused = [bytes(100)]
    with pytest.raises(AtCapacity) as raised:
        producer.try_produce(refused)
    assert raised.value.rejected is refused
    third = await producer.produce([bytes(100)])
    assert simulation.clock.monotonic() >= 1.0, "it went in before there was room"
    assert producer.in_flight_bytes <= 250
    await third.durable()
    await producer.close()
    assert producer.in_flight_bytes == 0


@simulated
async def test_over_the_bound_of_batches_inputs_gather_and_then_wait(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(1.0, 1.0)}))
    producer, _ = built(simulation, store, max_in_flight_batches=2, max_buffered_inputs=3)
    handles = [producer.try_produce([b"%d" % number]) for number in range(9)]
    with pytest.raises(AtCapacity):
        producer.try_produce([b"9"])
    handles.append(await producer.produce([b"9"]))
    await asyncio.gather(*(handle.durable() for handle in handles))
    assert list(chain.from_iterable(await contents(store))) == [b"%d" % number for number in range(10)]


@simulated
async def test_a_batch_that_came_due_while_the_pipeline_was_full_goes_in_as_soon_as_there_is_room(
    simulation: Simulation,
) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(1.0, 1.0)}))
    producer, _ = built(simulation, store, max_in_flight_batches=1, flush_interval_seconds=0.1)
    first = await producer.produce([b"first"])
    await simulation.clock.sleep(0.2)
    second = await producer.produce([b"second"])
    assert await first.durable() == 0
    assert await second.durable() == 1
    assert simulation.clock.monotonic() < 3.0


@simulated
async def test_an_empty_queue_is_never_called_full_however_much_metadata_comes(simulation: Simulation) -> None:
    """A batch closes before its metadata outgrows the manifest, and a write takes as many entries as fit."""
    producer, store = built(simulation, manifest_bytes_max=4000, flush_interval_seconds=3600.0)
    handles = [await producer.produce([b"%d" % number], b"%03d" % number * 200) for number in range(9)]
    flushing = asyncio.create_task(producer.flush())
    settled = await asyncio.gather(*(handle.durable() for handle in handles), return_exceptions=True)
    assert settled[:4] == [0, 0, 1, 1]
    for late in settled:
        assert isinstance(late, int) or (isinstance(late, AtCapacity) and "0 batches are queued" not in late.why)
    await asyncio.gather(flushing, return_exceptions=True)
    assert len(await queue(store)) >= 2


@simulated
async def test_callers_that_wait_hold_no_more_than_their_bound(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(5.0, 5.0)}))
    observer = RecordingObserver()
    config = ProducerConfig(max_in_flight_bytes=400, max_waiting_bytes=300, flush_size_bytes=1)
    producer = Producer(
        store, config, clock=simulation.clock, entropy=simulation.entropy.fork("producer"), observer=observer
    )
    callers = [asyncio.create_task(producer.produce([bytes(80)])) for _ in range(20)]
    results = await asyncio.gather(*callers, return_exceptions=True)
    refused = [one for one in results if isinstance(one, AtCapacity)]
    assert refused, "two went in at once, and the line holds three"
    assert all(one.rejected == [bytes(80)] and "with 300 bytes" in one.why for one in refused)
    assert observer.counted(names.BUFFER_INPUTS, admission="refused") == len(refused)
    await producer.close()
    assert len([record for batch in await contents(store) for record in batch]) == 20 - len(refused)


@simulated
async def test_the_first_in_line_waits_however_large_it_is(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(5.0, 5.0)}))
    producer, _ = built(simulation, store, max_in_flight_bytes=400, max_waiting_bytes=1, flush_size_bytes=1)
    await producer.produce([bytes(150)])
    await producer.produce([bytes(150)])
    await producer.close()


@simulated
async def test_callers_in_line_are_served_in_the_order_they_came(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(0.1, 0.5)}))
    producer, _ = built(simulation, store, max_in_flight_bytes=300, max_waiting_bytes=5000, flush_size_bytes=1)
    calls = []
    for number in range(6):
        calls.append(asyncio.create_task(producer.produce([b"%d" % number + bytes(100)])))
        await simulation.clock.sleep(0.01)
    await asyncio.gather(*calls)
    await producer.close()
    assert [batch[0][:1] for batch in await contents(store)] == [b"%d" % number for number in range(6)]


@simulated
async def test_a_caller_cancelled_in_line_has_produced_nothing_and_holds_nobody_up(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(1.0, 1.0)}))
    producer, _ = built(simulation, store, max_in_flight_bytes=300, flush_size_bytes=1)
    await producer.produce([b"first" + bytes(100)])
    cancelled = asyncio.create_task(producer.produce([b"cancelled" + bytes(100)]))
    behind = asyncio.create_task(producer.produce([b"behind" + bytes(100)]))
    await simulation.clock.sleep(0.5)
    cancelled.cancel()
    await (await behind).durable()
    await producer.close()
    assert [batch[0].rstrip(b"\0") for batch in await contents(store)] == [b"first", b"behind"]


@simulated
async def test_a_buffer_changed_while_its_caller_waits_in_line_goes_in_as_it_was(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(1.0, 1.0)}))
    producer, _ = built(simulation, store, max_in_flight_bytes=300, flush_size_bytes=1)
    await producer.produce([bytes(100)])
    buffer = bytearray(b"before")
    records = [buffer]
    waiting = asyncio.create_task(producer.produce(records))
    await simulation.clock.sleep(0.5)
    buffer[:] = b"after, and longer than it was"
    records.append(buffer)
    await waiting
    await producer.close()
    assert (await contents(store))[-1] == [b"before"]


@simulated
async def test_a_cancelled_wait_for_durability_changes_nothing_for_anybody(simulation: Simulation) -> None:
    producer, _ = built(simulation)
    handle = await producer.produce([b"x"])
    waiters = [asyncio.create_task(handle.durable()) for _ in range(3)]
    await simulation.clock.sleep(0.01)
    waiters[0].cancel()
    assert await asyncio.gather(*waiters[1:]) == [0, 0]
    assert await handle.durable() == 0


# Life --------------------------------------------------------------------------------------------


@simulated
async def test_close_flushes_and_refuses_what_comes_after(simulation: Simulation) -> None:
    producer, store = built(simulation, flush_interval_seconds=3600.0)
    handle = await producer.produce([b"x"])
    await producer.close()
    assert handle.done
    assert await contents(store) == [[b"x"]]
    with pytest.raises(Closed):
        await producer.produce([b"y"])
    with pytest.raises(Closed):
        producer.try_produce([b"y"])
    await producer.close()


@simulated
async def test_callers_in_line_at_close_are_told_so(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(1.0, 1.0)}))
    producer, _ = built(simulation, store, max_in_flight_bytes=300, flush_size_bytes=1)
    await producer.produce([bytes(100)])
    waiting = asyncio.create_task(producer.produce([bytes(100)]))
    await simulation.clock.sleep(0.1)
    await producer.close()
    with pytest.raises(Closed):
        await waiting


@simulated
async def test_a_cancelled_close_can_be_repeated(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(1.0, 1.0)}))
    producer, _ = built(simulation, store)
    handle = await producer.produce([b"x"])
    closing = asyncio.create_task(producer.close())
    await simulation.clock.sleep(0.2)
    closing.cancel()
    await asyncio.wait([closing])
    await producer.close()
    assert await handle.durable() == 0


@simulated
async def test_bad_input_is_refused_and_nothing_of_it_is_kept(simulation: Simulation) -> None:
    producer, store = built(simulation)
    bad: Sequence[object] = (b"bytes", "text", [], [b"good", 7], [b"good", None])
    for records in bad:
        with pytest.raises(InvalidInput):
            await producer.produce(records)  # type: ignore[arg-type]
    assert producer.in_flight_bytes == 0
    await producer.close()
    assert await contents(store) == []


@simulated
async def test_what_happens_is_counted(simulation: Simulation) -> None:
    observer, store = RecordingObserver(), MemoryStore(clock=simulation.clock)
    producer = Producer(store, clock=simulation.clock, entropy=simulation.entropy, observer=observer)
    await producer.produce([b"abc", b"de"])
    await producer.produce([b"f"])
    await producer.close()
    assert observer.counted(names.BUFFER_INPUTS, admission="direct") == 2
    assert observer.counted(names.BUFFER_FLUSHES, reason="demand") == 1
    assert observer.counted(names.BUFFER_BATCHES, outcome="enqueued") == 1
    assert observer.counted(names.BUFFER_RECORDS) == 3
    assert observer.counted(names.BUFFER_RECORD_BYTES) == 3 + 2 + 1 + 3 * 4
    assert observer.counted(names.BUFFER_UPLOAD_BYTES) == 3 + 2 + 1 + 3 * 4 + 7
    assert observer.gauged(names.BUFFER_IN_FLIGHT_BYTES) == 0
    assert observer.counted(names.REGISTER_COMMITS, register="buffer.producer") == 1
