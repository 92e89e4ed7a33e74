"""What a producer promises: durable means both objects, in order, on time, within bounds, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain, pairwise

import pytest
from tests.buffer.simulated import simulated

from penstock.buffer import Compression, Manifest, Producer, ProducerConfig, decode_batch
from penstock.errors import (
    AtCapacity,
    Closed,
    DeadlineExceeded,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    Unavailable,
)
from penstock.objects import MemoryStore, ObjectMeta, ObjectStore
from penstock.objects.port import Body
from penstock.observability import names
from penstock.testing import Fate, FaultPlan, FaultyStore, Latency, RecordingObserver, Simulation, simulate
from penstock.testing.hostile_stores import PassingStore

MANIFEST = "ingest/manifest"


def built(simulation: Simulation, store: ObjectStore | None = None, **knobs: object) -> tuple[Producer, ObjectStore]:
    store = store or MemoryStore(clock=simulation.clock)
    config = ProducerConfig(**knobs)  # type: ignore[arg-type]
    return Producer(store, config, clock=simulation.clock, entropy=simulation.entropy.fork("producer")), store


def faulty(simulation: Simulation, plan: FaultPlan | None = None) -> FaultyStore:
    inner = MemoryStore(clock=simulation.clock)
    return FaultyStore(inner, plan or FaultPlan(), entropy=simulation.entropy.fork("faults"), clock=simulation.clock)


async def queue(store: ObjectStore) -> Manifest:
    try:
        return Manifest.decode((await store.get(MANIFEST)).data)
    except NotFound:
        return Manifest.empty()


async def contents(store: ObjectStore) -> list[list[bytes]]:
    """The records of every queued batch, in order."""
    found = [decode_batch((await store.get(entry.location)).data) for entry in await queue(store)]
    return [[bytes(record) for record in records] for records in found]


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
async def test_callers_in_line_are_served_in_the_order_they_came(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(0.1, 0.5)}))
    producer, _ = built(simulation, store, max_in_flight_bytes=300, flush_size_bytes=1)
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


# Failures ----------------------------------------------------------------------------------------


class Choosy(PassingStore):
    """Fails every upload whose bytes contain a mark, with a given error."""

    def __init__(self, inner: ObjectStore, mark: bytes, error: Exception) -> None:
        super().__init__(inner)
        self._mark = mark
        self._error = error
        self.refused = 0

    async def put(self, key: str, data: Body) -> ObjectMeta:
        if self._mark in bytes(data):
            self.refused += 1
            raise self._error
        return await super().put(key, data)


@simulated
async def test_an_upload_that_is_given_up_fails_its_own_batch_and_the_rest_go_on(simulation: Simulation) -> None:
    store = Choosy(MemoryStore(clock=simulation.clock), b"bad", Unavailable("no answer"))
    producer, _ = built(simulation, store, max_buffered_inputs=1)
    handles = [await producer.produce([record]) for record in (b"one", b"bad", b"two")]
    assert await handles[0].durable() == 0
    with pytest.raises(Unavailable, match="no answer"):
        await handles[1].durable()
    assert await handles[2].durable() == 1
    assert store.refused == 6
    assert await contents(store) == [[b"one"], [b"two"]]
    await producer.close()


@simulated
async def test_an_upload_that_a_retry_cannot_cure_is_not_retried(simulation: Simulation) -> None:
    store = Choosy(MemoryStore(clock=simulation.clock), b"bad", PermissionDenied("no"))
    producer, _ = built(simulation, store)
    with pytest.raises(PermissionDenied):
        await (await producer.produce([b"bad"])).durable()
    assert store.refused == 1


@simulated
async def test_an_upload_of_unknown_outcome_is_a_certain_failure_of_its_batch(simulation: Simulation) -> None:
    """Whether the object lies there or not: the manifest does not name it."""
    store = Choosy(MemoryStore(clock=simulation.clock), b"bad", OutcomeUnknown("no answer"))
    producer, _ = built(simulation, store)
    with pytest.raises(Unavailable, match="not uploaded"):
        await (await producer.produce([b"bad"])).durable()
    assert store.refused == 6


@simulated
async def test_uploads_are_retried_with_growing_pauses(simulation: Simulation) -> None:
    store = faulty(simulation)
    store.script("put", Fate.ERROR_BEFORE, Fate.ERROR_AFTER, Fate.THROTTLED)
    producer, _ = built(simulation, store)
    assert await (await producer.produce([b"x"])).durable() == 0
    assert store.fates[Fate.SERVED] >= 2


@pytest.mark.parametrize("fate", [Fate.ERROR_AFTER, Fate.REPLY_LOST, Fate.REQUEST_LOST, Fate.ZOMBIE])
def test_a_manifest_write_whose_answer_was_lost_is_never_appended_twice(fate: Fate) -> None:
    @simulated
    async def check(simulation: Simulation) -> None:
        store = faulty(simulation, FaultPlan(timeout_seconds=2.0, zombie_seconds_max=6.0))
        producer, _ = built(simulation, store)
        await (await producer.produce([b"before"])).durable()
        store.script("put_if", fate)
        assert await (await producer.produce([b"x"])).durable() == 1
        assert await (await producer.produce([b"after"])).durable() == 2
        await store.settle()
        assert await contents(store) == [[b"before"], [b"x"], [b"after"]]

    check()


class Hasty(PassingStore):
    """A consumer that takes everything off the queue the moment a write of the manifest lands."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.hasty = False

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        meta = await super().put_if(key, data, version=version)
        if self.hasty:
            self.hasty = False
            taken = Manifest(bytes(data)).dequeue_through(Manifest(bytes(data)).next_sequence)
            await super().put_if(key, taken.body, version=meta.version)
        return meta


@simulated
async def test_an_enqueue_that_can_no_longer_be_proved_is_reported_as_unknown_and_never_repeated(
    simulation: Simulation,
) -> None:
    hasty = Hasty(MemoryStore(clock=simulation.clock))
    store = FaultyStore(hasty, FaultPlan(), entropy=simulation.entropy.fork("faults"), clock=simulation.clock)
    producer, _ = built(simulation, store)
    hasty.hasty = True
    store.script("put_if", Fate.ERROR_AFTER)
    with pytest.raises(OutcomeUnknown):
        await (await producer.produce([b"x"])).durable()
    # The producer itself is sound: what comes after goes in behind it.
    assert await (await producer.produce([b"y"])).durable() == 1
    assert await contents(store) == [[b"y"]]
    await producer.close()


@simulated
async def test_a_manifest_write_that_is_given_up_halts_the_producer_and_everyone_learns_why(
    simulation: Simulation,
) -> None:
    store = faulty(simulation, FaultPlan(error_before=1.0, verbs=frozenset({"put_if", "get"})))
    producer, _ = built(
        simulation,
        store,
        max_buffered_inputs=2,
        max_in_flight_batches=2,
        manifest_append_batches=1,
        flush_interval_seconds=3600,
    )
    handles = [await producer.produce([b"%d" % number]) for number in range(5)]
    waiting = asyncio.create_task(producer.produce([b"in line" + bytes(10)]))
    with pytest.raises(DeadlineExceeded):
        await handles[0].durable()
    for later in handles[2:]:
        with pytest.raises(Unavailable, match="halted before it"):
            await later.durable()
    with pytest.raises((Closed, Unavailable)):
        await (await waiting).durable()
    for call in (producer.produce([b"new"]), producer.flush(), producer.close()):
        with pytest.raises(Closed, match="given up") as raised:
            await call
        assert isinstance(raised.value.__cause__, DeadlineExceeded)
    assert producer.in_flight_bytes == 0
    store.faults = FaultPlan.none()
    assert await contents(store) == []


@simulated
async def test_a_given_up_manifest_write_of_unknown_outcome_is_reported_as_unknown(simulation: Simulation) -> None:
    store = faulty(simulation)
    producer, _ = built(simulation, store, max_buffered_inputs=1)
    await (await producer.produce([b"before"])).durable()
    store.faults = FaultPlan(reply_lost=1.0, verbs=frozenset({"put_if", "get"}), timeout_seconds=2.0)
    first, second = [await producer.produce([b"%d" % number]) for number in range(2)]
    with pytest.raises(OutcomeUnknown):
        await first.durable()
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await second.durable()


@simulated
async def test_a_full_queue_fails_its_batch_and_the_producer_goes_on(simulation: Simulation) -> None:
    producer, store = built(simulation, manifest_bytes_max=150, max_buffered_inputs=1)
    assert await (await producer.produce([b"x"])).durable() == 0
    with pytest.raises(AtCapacity, match="the queue is full"):
        await (await producer.produce([b"y"])).durable()
    found = await store.get(MANIFEST)
    await store.put_if(MANIFEST, Manifest(found.data).dequeue_through(0).body, version=found.meta.version)
    assert await (await producer.produce([b"z"])).durable() == 1
    await producer.close()


@simulated
async def test_a_damaged_manifest_is_left_as_it_is(simulation: Simulation) -> None:
    producer, store = built(simulation)
    await store.put(MANIFEST, b"not a manifest at all, but long enough")
    with pytest.raises(Exception, match=r"cannot be decoded|version"):
        await (await producer.produce([b"x"])).durable()
    assert (await store.get(MANIFEST)).data == b"not a manifest at all, but long enough"


# Age ---------------------------------------------------------------------------------------------


@simulated
async def test_a_batch_that_waited_longer_than_half_the_grace_is_uploaded_anew(simulation: Simulation) -> None:
    """The first batch is slow to upload; those behind it are stored long before they can be enqueued."""
    observer = RecordingObserver()

    class Slow(PassingStore):
        async def put(self, key: str, data: Body) -> ObjectMeta:
            if b"slow" in bytes(data):
                await simulation.clock.sleep(25.0)
            return await super().put(key, data)

    store = Slow(MemoryStore(clock=simulation.clock))
    config = ProducerConfig(max_buffered_inputs=1, collector_grace_seconds=40.0, manifest_deadline_seconds=10.0)
    producer = Producer(
        store, config, clock=simulation.clock, entropy=simulation.entropy.fork("producer"), observer=observer
    )
    handles = [await producer.produce([record]) for record in (b"slow", b"waiting")]
    await asyncio.gather(*(handle.durable() for handle in handles), return_exceptions=True)
    entries = list(await queue(store))
    stored = [meta.key async for page in store.list("ingest/") for meta in page if meta.key.endswith(".batch")]
    assert observer.counted(names.BUFFER_REUPLOADS) >= 1
    assert set(stored) > {entry.location for entry in entries}, "the old name is left to the collector"
    for entry in entries:
        (found,) = [page[0] async for page in store.list(entry.location)]
        assert simulation.clock.now_ms() - found.modified_ms < 20_000


@simulated
async def test_a_store_too_slow_to_ever_be_young_enough_fails_the_batch(simulation: Simulation) -> None:
    store = faulty(simulation, FaultPlan(latency_by_verb={"put": Latency(30.0, 30.0)}))
    producer, _ = built(simulation, store, collector_grace_seconds=40.0, manifest_deadline_seconds=10.0)
    with pytest.raises(DeadlineExceeded, match="half the collector's grace"):
        await (await producer.produce([b"x"])).durable()
    assert await contents(store) == []


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
