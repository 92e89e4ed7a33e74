"""A quiver at the edge, its relay, a queue that others share and a consumer: no crash loses or repeats a row.

One seed decides the disk's faults and power cuts, the store's faults and lost answers, the order of all tasks, and the
moment of each end. Outside of all processes a journal keeps what callers of `ingest` were told; at the end everything
is healthy, the relay and the queue are drained, and the sink is compared with the journal.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec
import pytest
from tests.quiver.worlds import PATH, bundle, small

from penstock.buffer import Consumer, ConsumerConfig, Producer, ProducerConfig
from penstock.errors import AtCapacity, OutcomeUnknown, PenstockError, StorageFull, Unsupported
from penstock.objects import MemoryStore
from penstock.observability import names
from penstock.quiver import Quiver
from penstock.relay import (
    Delivered,
    QueueOutlet,
    QueueOutletConfig,
    Relay,
    RelayConfig,
    RelayMarks,
    RelayStamp,
    decode_part,
)
from penstock.relay.outlets.journal import JournalState
from penstock.testing import (
    Fate,
    FaultPlan,
    FaultyStore,
    Latency,
    PowerCut,
    RecordingObserver,
    SeededEntropy,
    Simulation,
    TornDisk,
    simulate,
)

T = TypeVar("T")
JOURNAL = f"{PATH}/relay/queue-000.json"
SUBSCRIBER = "queue"
LIVES = 3
PLAN = FaultPlan(
    throttled=0.02,
    error_before=0.03,
    request_lost=0.02,
    error_after=0.06,
    reply_lost=0.03,
    zombie=0.04,
    crash_before=0.01,
    crash_after=0.05,
    latency=Latency(0.002, 0.05),
    timeout_seconds=1.5,
    zombie_seconds_max=5.0,
)
HEALTHY = FaultPlan(latency=Latency(0.001, 0.01))
DOWN = FaultPlan(error_before=0.9, error_after=0.05, latency=Latency(0.002, 0.05))
# Little patience below the relay, so that its own is tried.
PRODUCING = ProducerConfig(manifest_deadline_seconds=3.0, upload_attempts=2, backoff_seconds_max=0.5)


@dataclass
class RowSink:
    """Stores a batch, its sequence and the relay's marks in one step. `knows_repeats` is what the marks are for."""

    knows_repeats: bool
    position: int | None = None
    marks: RelayMarks = field(default_factory=RelayMarks)
    numbers: Counter[int] = field(default_factory=Counter)
    # Stamps that came in again and were passed over, or would have been.
    repeats: int = 0

    def store(self, batch: Any) -> None:
        if self.position is not None and batch.sequence <= self.position:
            return
        self.position = batch.sequence
        try:
            stamp = RelayStamp.decode(batch.metadata[0].payload)
        except Unsupported:
            # Another producer's.
            return
        assert stamp is not None
        is_new = self.marks.admit(stamp)
        self.repeats += not is_new
        if self.knows_repeats and not is_new:
            return
        for tables in decode_part(batch.records).values():
            for table in tables:
                self.numbers.update(table.column("n").to_pylist())


@dataclass
class World:
    simulation: Simulation
    disk: TornDisk
    # The way of the edge to the store, and that of everybody else.
    faulty: FaultyStore
    others: FaultyStore
    inner: MemoryStore
    entropy: SeededEntropy
    alone: bool
    sink: RowSink
    observer: RecordingObserver
    outlet: Callable[..., Any]
    rows: int = 16
    part_bytes: int = 96
    # Bundles whose ingest returned, and those where nobody knows.
    stored: list[int] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    number: int = 0
    dark: asyncio.Event = field(default_factory=asyncio.Event)

    async def offload(self, work: Callable[..., T], /, *args: Any) -> T:
        await self.simulation.clock.sleep(0)
        try:
            return work(*args)
        except PowerCut:
            self.dark.set()
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def open(self) -> tuple[Quiver, QueueOutlet, Relay]:
        clock, entropy = self.simulation.clock, self.entropy.fork("store")
        store = await Quiver.open(PATH, small(), disk=self.disk, clock=clock, entropy=entropy, offload=self.offload)
        outlet = self.outlet(
            self.faulty,
            JOURNAL,
            QueueOutletConfig(part_bytes=self.part_bytes, alone=self.alone),
            PRODUCING,
            is_waiting=lambda number: SUBSCRIBER in store.state.outstanding.get(number, ()),
            disk=self.disk,
            clock=clock,
            entropy=entropy.fork("outlet"),
            offload=self.offload,
            observer=self.observer,
        )
        config = RelayConfig(retry_seconds_first=0.05, retry_seconds_max=2.0)
        return store, outlet, Relay(store, SUBSCRIBER, outlet, config, clock=clock, entropy=entropy.fork("relay"))


async def live(world: World, bundles: int) -> None:
    store, _, relay = await world.open()
    await store.register(SUBSCRIBER)
    running = asyncio.create_task(relay.run())
    for _ in range(bundles):
        world.number += 1
        number = world.number
        world.unknown.add(number)
        try:
            await store.ingest(bundle(number, world.rows), timeout=5.0)
        except OutcomeUnknown:
            continue
        except (StorageFull, AtCapacity, TimeoutError):
            world.unknown.discard(number)
            continue
        world.unknown.discard(number)
        world.stored.append(number)
        await world.simulation.clock.sleep(world.entropy.uniform(0, 0.5))
    await world.simulation.clock.sleep(world.entropy.uniform(0, 20))
    relay.stop()
    await running
    await store.close()


async def produce_beside(world: World) -> None:
    """Another producer on the same queue, until its process is gone."""
    doors = {"clock": world.simulation.clock, "entropy": world.entropy.fork("other")}
    while True:
        with suppress(PenstockError):
            async with Producer(world.others, PRODUCING, **doors) as producer:  # type: ignore[arg-type]
                for _ in range(3):
                    await (await producer.produce([b"another's"], b"\x01\x02\x01\x00")).durable()
                    await world.simulation.clock.sleep(world.entropy.uniform(0, 2))


async def consume(world: World, *, until_empty: bool = False) -> None:
    """Take batches off quickly, so that little can be looked up; with rests, so that some can."""
    config = ConsumerConfig(collect=False, dequeue_every_acks=1, dequeue_percent=1, dequeue_every_seconds=0.1)
    while True:
        with suppress(PenstockError):
            doors = {"clock": world.simulation.clock, "entropy": world.entropy.fork("consumer")}
            async with Consumer(world.others, config, world.sink.position, **doors) as consumer:  # type: ignore[arg-type]
                while True:
                    batch = await consumer.next_batch()
                    if batch is None:
                        if until_empty:
                            return
                        await world.simulation.clock.sleep(world.entropy.uniform(0.01, 1.0))
                        continue
                    world.sink.store(batch)
                    await consumer.ack(batch.sequence)
                    await consumer.flush()
        await world.simulation.clock.sleep(0.5)


async def weather(world: World) -> None:
    """The store goes away for a while."""
    await world.simulation.clock.sleep(world.entropy.uniform(0, 3))
    world.faulty.faults = DOWN
    await world.simulation.clock.sleep(world.entropy.uniform(5, 30))
    world.faulty.faults = PLAN


async def one_life(world: World) -> None:
    entropy, disk, simulation = world.entropy, world.disk, world.simulation
    world.dark = asyncio.Event()
    world.faulty.faults = world.others.faults = PLAN
    if entropy.chance(0.5):
        # The moment that matters: the manifest is written, and the relay is gone before it hears of it.
        world.faulty.script("put_if", *([Fate.SERVED] * entropy.below(3)), Fate.CRASH_AFTER)
    how = entropy.choice(("power", "kill", "crash", "close"))
    for verb in ("sync_file", "sync_directory", "create", "rename"):
        if entropy.chance(0.05):
            disk.fail_next(verb, entropy.choice((errno.EIO, errno.ENOSPC)))
    edge = simulation.start("edge", live(world, 3 + entropy.below(8)))
    others = [simulation.start("consumer", consume(world))]
    if not world.alone:
        others.append(simulation.start("other", produce_beside(world)))
    if how in ("power", "kill"):
        disk.cut_power(after_writes=entropy.below(160))
    storm = asyncio.create_task(weather(world)) if entropy.chance(0.3) else None
    joined = asyncio.create_task(edge.join())
    waits = [joined, asyncio.create_task(world.dark.wait())]
    if how == "crash":
        waits.append(asyncio.create_task(simulation.clock.sleep(entropy.uniform(0, 15))))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if not edge.alive:
        # It may have failed in the very turn in which the power went.
        await asyncio.wait([joined])
    error = joined.exception() if joined.done() and not edge.crashed else None
    for process in (edge, *others):
        process.crash()
    for wait in (*waits, *filter(None, [storm])):
        wait.cancel()
    if error is not None and not isinstance(error, PenstockError):
        raise error
    if how == "power":
        disk.crash()
    else:
        disk.revive()


async def last_life(world: World) -> int:
    """All is well: what was acknowledged arrives, each row once, and nothing that was refused."""
    world.disk.heal()
    world.dark = asyncio.Event()
    world.faulty.faults = world.others.faults = HEALTHY
    await world.faulty.settle()
    world.faulty = FaultyStore(
        world.inner, HEALTHY, entropy=world.entropy.fork("healthy"), clock=world.simulation.clock
    )
    # Consumers are quick: what a killed relay left in the queue is gone when the next one looks.
    if world.entropy.chance(0.5):
        await consume(world, until_empty=True)
    store, _, relay = await world.open()
    await store.flush()
    await relay.run(until_empty=True)
    await store.close()
    await consume(world, until_empty=True)
    check(world)
    return len(world.stored)


def check(world: World) -> None:
    numbers = world.sink.numbers
    lost = sorted(number for number in world.stored if not numbers[number])
    assert not lost, f"never arrived: {lost}"
    strangers = sorted(set(numbers) - set(world.stored) - world.unknown)
    assert not strangers, f"were refused, and arrived: {strangers}"
    wrong = {number: count for number, count in numbers.items() if count != world.rows}
    assert not wrong, f"rows of bundles that did not arrive exactly once: {wrong}"
    unproved = world.observer.events(names.RELAY_UNPROVED)
    assert unproved or not world.sink.repeats, "a repeat that the relay knew nothing of"
    assert not (world.alone and world.sink.repeats), "a relay that is alone repeats nothing"


async def trial(simulation: Simulation, outlet: Callable[..., Any] = QueueOutlet, *, knows_repeats: bool = True) -> int:
    entropy = simulation.entropy.fork("plan")
    clock = simulation.clock
    alone = entropy.chance(0.5)
    inner = MemoryStore(clock=clock)
    world = World(
        simulation,
        TornDisk(entropy=simulation.entropy.fork("disk"), clock=clock),
        FaultyStore(inner, PLAN, entropy=simulation.entropy.fork("faults"), clock=clock),
        FaultyStore(inner, PLAN, entropy=simulation.entropy.fork("other faults"), clock=clock),
        inner,
        entropy,
        alone,
        # A queue with one producer needs no help from its consumer.
        RowSink(knows_repeats and not alone),
        RecordingObserver(),
        outlet,
    )
    store, _, _ = await world.open()
    await store.register(SUBSCRIBER)
    await store.close()
    for _ in range(1 + entropy.below(LIVES)):
        await one_life(world)
    return await last_life(world)


@pytest.mark.simulation(seeds=200)
def test_no_end_of_a_life_loses_or_repeats_a_row(seed: int) -> object:
    return simulate(trial, seed)


# Planted bugs: the same checks must notice each of them, in a few dozen seeds.


class Forgetful(QueueOutlet):
    """Sends what it may have sent before, without looking for it, and under a new stamp."""

    async def send(self, delivery: Any) -> Any:
        state = self._state or await self._open()
        self._state = msgspec.structs.replace(state, intent=None)
        return await super().send(delivery)


class Renamed(QueueOutlet):
    """Resends what nobody can prove under a stamp of its own, by which no consumer can know it."""

    async def send(self, delivery: Any) -> Any:
        state = self._state or await self._open()
        if state.intent is not None:
            ordinal = state.ordinal + 1
            intent = msgspec.structs.replace(state.intent, ordinal=ordinal)
            self._state = msgspec.structs.replace(state, ordinal=ordinal, intent=intent)
        return await super().send(delivery)


class Late(QueueOutlet):
    """Writes its note behind the write of the manifest instead of before it."""

    def __init__(self, *args: Any, **doors: Any) -> None:
        super().__init__(*args, **doors)
        self._late: JournalState | None = None

    async def _write(self, state: JournalState) -> None:
        if state.intent is None:
            await super()._write(state)
        else:
            self._late = state

    async def send(self, delivery: Any) -> Any:
        answer = await super().send(delivery)
        if self._late is not None:
            await super()._write(self._late)
        return answer


class Hasty(QueueOutlet):
    """Says that a segment is delivered when the queue did not answer."""

    async def send(self, delivery: Any) -> Any:
        try:
            return await super().send(delivery)
        except PenstockError:
            return Delivered()


@pytest.mark.slow
@pytest.mark.parametrize("bug", [Forgetful, Renamed, Late, Hasty])
def test_a_planted_bug_is_noticed(bug: type[QueueOutlet]) -> None:
    def noticed(seed: int) -> bool:
        try:
            simulate(partial(trial, outlet=bug), seed)
        except AssertionError:
            return True
        return False

    assert any(noticed(seed) for seed in range(200))


def test_a_shared_queue_needs_a_consumer_that_knows_repeats() -> None:
    """What the stamp is for: a sink that does not look at it gets some segments twice."""

    def noticed(seed: int) -> bool:
        try:
            simulate(partial(trial, knows_repeats=False), seed)
        except AssertionError:
            return True
        return False

    assert any(noticed(seed) for seed in range(300))
