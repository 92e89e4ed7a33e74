"""What a producer does when things go wrong: each caller learns what happened, and nothing is enqueued twice."""

from __future__ import annotations

import asyncio

import pytest
from tests.buffer.producers import MANIFEST, built, contents, faulty, queue
from tests.buffer.simulated import simulated

from penstock.buffer import Manifest, Producer, ProducerConfig
from penstock.errors import (
    AtCapacity,
    Closed,
    DeadlineExceeded,
    OutcomeUnknown,
    PenstockError,
    PermissionDenied,
    Unavailable,
)
from penstock.objects import MemoryStore, ObjectMeta, ObjectStore
from penstock.objects.port import Body
from penstock.observability import names
from penstock.testing import Fate, FaultPlan, FaultyStore, Latency, RecordingObserver, Simulation
from penstock.testing.storage.hostile_stores import PassingStore

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
    await producer.start()
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


# Losses that no handle raised ---------------------------------------------------------------------


def losing(simulation: Simulation, **knobs: object) -> Producer:
    """A producer that loses every batch with "bad" in it."""
    store = Choosy(MemoryStore(clock=simulation.clock), b"bad", PermissionDenied("not here"))
    return built(simulation, store, max_buffered_inputs=1, **knobs)[0]


@simulated
async def test_whoever_ignores_handles_learns_of_a_loss_once(simulation: Simulation) -> None:
    for ending in ("flush", "close"):
        producer = losing(simulation)
        await producer.produce([b"bad"])
        await producer.produce([b"good"])
        await simulation.clock.sleep(60.0)
        assert producer.in_flight_bytes == 0, "settled long ago"
        with pytest.raises(PermissionDenied, match="not here"):
            await getattr(producer, ending)()
        if ending == "flush":
            await producer.flush()
        await producer.close()
        await producer.close()


@simulated
async def test_a_loss_that_its_handle_raised_is_not_raised_again(simulation: Simulation) -> None:
    producer = losing(simulation)
    handle = await producer.produce([b"bad"])
    for _ in range(2):
        with pytest.raises(PermissionDenied):
            await handle.durable()
    await producer.flush()
    await producer.close()


@simulated
async def test_a_loss_that_one_of_two_callers_heard_of_is_still_raised(simulation: Simulation) -> None:
    store = Choosy(MemoryStore(clock=simulation.clock), b"bad", PermissionDenied("not here"))
    producer, _ = built(simulation, store, max_buffered_inputs=2)
    handles = [await producer.produce([b"bad"]) for _ in range(2)]
    with pytest.raises(PermissionDenied):
        await handles[0].durable()
    with pytest.raises(PermissionDenied):
        await producer.flush()
    await producer.close()


@simulated
async def test_several_losses_are_told_at_once_with_their_number(simulation: Simulation) -> None:
    producer = losing(simulation)
    for _ in range(3):
        await producer.produce([b"bad"])
    await simulation.clock.sleep(60.0)
    await producer.produce([b"bad"])
    with pytest.raises(PermissionDenied) as raised:
        await producer.flush()
    assert raised.value.__notes__ == ["4 batches failed since the last flush; this is the first"]
    await producer.close()


@simulated
async def test_a_cancelled_flush_leaves_the_loss_to_the_next(simulation: Simulation) -> None:
    producer = losing(simulation, flush_interval_seconds=3600.0)
    await producer.produce([b"bad"])
    flushing = asyncio.create_task(producer.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    await simulation.clock.sleep(60.0)
    with pytest.raises(PermissionDenied):
        await producer.close()


def test_every_failed_batch_is_counted_and_handed_to_the_callback() -> None:
    told: list[tuple[PenstockError, int]] = []
    raised: list[object] = []
    observer = RecordingObserver()

    def raising(error: PenstockError, records: int) -> None:
        told.append((error, records))
        raise RuntimeError("a callback that fails holds nobody up")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))
        store = Choosy(MemoryStore(), b"bad", PermissionDenied("not here"))
        producer = Producer(store, ProducerConfig(max_buffered_inputs=2), observer=observer, on_failure=raising)
        for records in ([b"bad", b"x"], [b"y"], [b"good"], [b"fine"]):
            await producer.produce(records)
        with pytest.raises(PermissionDenied):
            await producer.close()

    asyncio.run(main())
    assert [(type(error), records) for error, records in told] == [(PermissionDenied, 3)]
    assert [type(error) for error in raised] == [RuntimeError]
    assert observer.counted(names.BUFFER_FAILED_INPUTS, outcome="failed") == 2
    assert observer.counted(names.BUFFER_RECORDS) == 2


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
