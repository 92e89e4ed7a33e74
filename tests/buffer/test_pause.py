"""A producer that stops between finding its batch young and writing the manifest: nothing it enqueues is ever gone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.buffer.simulated import simulated

from penstock.buffer import Collector, Consumer, ConsumerConfig, Producer, ProducerConfig
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import OutcomeUnknown, Unavailable
from penstock.objects import MemoryStore, ObjectMeta, ObjectStore, open_store
from penstock.objects.port import Body
from penstock.observability import names
from penstock.testing import RecordingObserver, Simulation
from penstock.testing.storage.hostile_stores import PassingStore

MANIFEST = "ingest/manifest"
GRACE_SECONDS = 600.0


class Stopping(PassingStore):
    """Stops its process right before a chosen write of the manifest leaves it."""

    def __init__(self, inner: ObjectStore, stop: Callable[[], Any]) -> None:
        super().__init__(inner)
        self._stop = stop
        # The write it stops at, counted down; 0: none.
        self.armed = 0

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        if self.armed and key == MANIFEST:
            self.armed -= 1
            stopped = self._stop() if self.armed == 0 else None
            if stopped is not None:
                # What a stopped process has begun goes on when it goes on; nobody can call it back.
                await asyncio.shield(stopped)
        return await super().put_if(key, data, version=version)


class Stoppable:
    """A clock that loses the time during which its machine was stopped, as a virtual machine's may."""

    def __init__(self, simulation: Simulation) -> None:
        self._clock = simulation.clock
        self._lost = 0.0
        self._since: float | None = None

    def stop(self) -> None:
        self._since = self._clock.monotonic()

    def go_on(self) -> None:
        assert self._since is not None
        self._lost += self._clock.monotonic() - self._since
        self._since = None

    def _gone(self) -> float:
        return self._lost + (0.0 if self._since is None else self._clock.monotonic() - self._since)

    def now_ms(self) -> int:
        return self._clock.now_ms() - round(1000 * self._gone())

    def monotonic(self) -> float:
        return self._clock.monotonic() - self._gone()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


def consumer(simulation: Simulation, store: ObjectStore, **knobs: Any) -> Consumer:
    config = ConsumerConfig(**knobs)
    return Consumer(store, config, clock=simulation.clock, entropy=simulation.entropy.fork("consumer"))


@simulated
async def test_a_machine_stopped_past_the_grace_uploads_anew_though_its_clocks_saw_nothing(
    simulation: Simulation,
) -> None:
    inner, observer = MemoryStore(clock=simulation.clock), RecordingObserver()
    going_on, clock = asyncio.Event(), Stoppable(simulation)
    store = Stopping(inner, going_on.wait)
    producer = Producer(store, clock=clock, entropy=simulation.entropy.fork("producer"), observer=observer)
    # The pause is the machine's, so no timer of the register runs while it lasts.
    producer._pipeline._register._cell._attempt_seconds = 1e9
    producer._pipeline._register._policy = _endless(producer._pipeline._register._policy)
    await (await producer.produce([b"before"])).durable()
    reading = consumer(simulation, inner, collect_interval_seconds=300.0)
    async with reading:
        batch = await reading.next_batch()
        assert batch is not None
        await reading.ack(batch.sequence)
        await reading.flush()
        store.armed = 2
        handle = await producer.produce([b"paused"])
        while store.armed:
            await simulation.clock.sleep(0.1)
        clock.stop()
        await simulation.clock.sleep(3 * GRACE_SECONDS)
        left = [meta.key async for page in inner.list("ingest/") for meta in page if meta.key.endswith(".batch")]
        assert left == [], "collected, as it should be: nobody had enqueued it"
        clock.go_on()
        going_on.set()
        assert await handle.durable() == 1
        found = await reading.next_batch()
        assert found is not None
        assert [bytes(record) for record in found.records] == [b"paused"]
    assert observer.counted(names.BUFFER_REUPLOADS) >= 1
    await producer.close()


def _endless(policy: Any) -> Any:
    return type(policy)(deadline_seconds=1e9, attempt_seconds=1e9)


@simulated
async def test_an_idle_queue_is_collected_by_its_consumer_and_left_by_a_collector_without_the_fence(
    simulation: Simulation,
) -> None:
    store = MemoryStore(clock=simulation.clock)
    async with Producer(store, clock=simulation.clock, entropy=simulation.entropy.fork("producer")) as producer:
        await producer.produce([b"x"])

    async def batches() -> int:
        return len([meta async for page in store.list("ingest/") for meta in page if meta.key.endswith(".batch")])

    async with consumer(simulation, store, collect=False) as quiet:
        batch = await quiet.next_batch()
        assert batch is not None
        await quiet.ack(batch.sequence)
    await simulation.clock.sleep(10 * GRACE_SECONDS)
    alone = await Collector(store, clock=simulation.clock).collect()
    assert (alone.deleted, alone.waiting) == (0, 1)
    async with consumer(simulation, store) as busy:
        fence = await busy.start()
        await simulation.clock.sleep(301.0)
        assert await batches() == 0
        # It renewed the fence it held, and holds it still.
        assert await busy.len() == 0
        assert await busy.start() >= fence


@simulated
async def test_a_consumer_that_was_taken_over_collects_nothing_more(simulation: Simulation) -> None:
    store = MemoryStore(clock=simulation.clock)
    zombie = consumer(simulation, store)
    await zombie.start()
    async with Producer(store, clock=simulation.clock, entropy=simulation.entropy.fork("producer")) as producer:
        await producer.produce([b"x"])
    async with consumer(simulation, store, collect=False) as newer:
        fence = await newer.start()
        batch = await newer.next_batch()
        assert batch is not None
        await newer.ack(batch.sequence)
        await newer.flush()
        await simulation.clock.sleep(5 * GRACE_SECONDS)
        assert await newer.start() == fence
        assert await newer.len() == 0
    await zombie.close()


@simulated
async def test_consumers_that_start_again_and_again_cost_no_upload(simulation: Simulation) -> None:
    """The fence moves with each of them, and the store's stamps show that nothing can have been collected."""
    inner, observer = MemoryStore(clock=simulation.clock), RecordingObserver()

    class Restarting(PassingStore):
        """A consumer takes the fence while an upload of the producer is under way."""

        async def put(self, key: str, data: Body) -> ObjectMeta:
            meta = await super().put(key, data)
            await consumer(simulation, inner, collect=False).start()
            return meta

    store = Restarting(inner)
    async with Producer(
        store, clock=simulation.clock, entropy=simulation.entropy.fork("producer"), observer=observer
    ) as producer:
        for number in range(10):
            assert await (await producer.produce([b"x"])).durable() == number
    assert observer.counted(names.BUFFER_REUPLOADS) == 0


# A real process -------------------------------------------------------------------------------------

BRIEF_GRACE_SECONDS = 1.2
DURABLE, HALTED, BROKEN = 1, 2, 3


async def _produce_and_stop(url: str, wait: Callable[[], object]) -> int:
    """DURABLE or HALTED: who sleeps past the deadline of a write may be told that it was given up."""
    store = Stopping(await open_store(url), lambda: os.kill(os.getpid(), signal.SIGSTOP))
    config = ProducerConfig(collector_grace_seconds=BRIEF_GRACE_SECONDS, manifest_deadline_seconds=0.3)
    producer = Producer(store, config)
    await (await producer.produce([b"before"])).durable()
    wait()
    # The first write meets what the consumer has written; the second is on a manifest that nobody changes after it.
    store.armed = 2
    try:
        await (await producer.produce([b"paused"])).durable()
    except (OutcomeUnknown, Unavailable):
        return HALTED
    else:
        return DURABLE
    finally:
        # Waits for the write that was under way when its caller gave up.
        await store.close()


async def _collect(url: str, child: int, let_go: Callable[[], object]) -> None:
    """Empty the queue, let the producer run into its stop, and collect what it had uploaded. Wake it, and read on."""
    store = await open_store(url)
    config = ConsumerConfig(
        collector_grace_seconds=BRIEF_GRACE_SECONDS, collect_interval_seconds=0.1, dequeue_every_acks=1
    )
    async with Consumer(store, config) as reading:
        while (batch := await reading.next_batch()) is None:
            await SYSTEM_CLOCK.sleep(0.05)
        await reading.ack(batch.sequence)
        let_go()
        _, status = await asyncio.to_thread(os.waitpid, child, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the producer ended with {status} instead of stopping"
        for _ in range(200):
            await SYSTEM_CLOCK.sleep(0.1)
            if not [meta async for page in store.list("ingest/") for meta in page if meta.key.endswith(".batch")]:
                break
        else:
            pytest.fail("the orphan was not collected")
    await store.close()


async def _drained(url: str) -> list[bytes]:
    store = await open_store(url)
    async with Consumer(store, ConsumerConfig(collect=False)) as reading:
        records = []
        while batch := await reading.next_batch():
            records += [bytes(record) for record in batch.records]
            await reading.ack(batch.sequence)
    await store.close()
    return records


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_stopped_past_the_grace_leaves_no_entry_without_its_object(tmp_path: Path) -> None:
    """A real SIGSTOP between the producer's look at the clock and its write of the manifest."""
    url = f"file://{tmp_path}"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = BROKEN
        try:
            code = asyncio.run(_produce_and_stop(url, lambda: bool(os.read(reading, 1))))
        finally:
            os._exit(code)
    try:
        asyncio.run(_collect(url, child, lambda: bool(os.write(writing, b"."))))
    finally:
        os.kill(child, signal.SIGCONT)
    _, status = os.waitpid(child, 0)
    told = os.waitstatus_to_exitcode(status)
    assert told in (DURABLE, HALTED)
    assert asyncio.run(_drained(url)) == ([b"paused"] if told == DURABLE else [])
