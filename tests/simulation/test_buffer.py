"""The queue in bad weather: producers, consumers that get fenced, a collector, crashes and lost answers.

Producers write records with names of their own, so the sink tells what arrived, how often and in which
order; an auditor beneath the faults looks at every state the manifest ever has. A second set of tests
plants known bugs and demands that the same checks notice.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from tests.buffer.world import CRAWLING, DOWN, GRACE_SECONDS, World

from penstock.buffer import ConsumedBatch, Consumer, DeadLetters, Descriptor, InputHandle, Manifest, Producer, Watermark
from penstock.buffer.consuming.cursor import Cursor
from penstock.buffer.location import batch_time_ms
from penstock.buffer.producing.pipeline import Pipeline
from penstock.buffer.queue import Enqueue
from penstock.errors import Fenced, InvalidInput, NotFound, OutcomeUnknown, PenstockError, Unavailable
from penstock.testing import FaultPlan, Process, SeededEntropy, Simulation, simulate

T = TypeVar("T")
PRODUCERS = 3
INPUTS = 6


# Producers ---------------------------------------------------------------------------------------


async def produce(world: World, name: str) -> None:
    """A process that offers its records, alone or at once, patiently or not, and watches what becomes of them."""
    producer, entropy = world.producer(name), world.entropy.fork(f"{name} moves")
    offers: list[asyncio.Task[None]] = []
    for number in range(INPUTS):
        if entropy.chance(0.6):
            await world.clock.sleep(entropy.uniform(0.0, 2.0))
        records = [f"{name}.{number}.{index}" for index in range(1 + entropy.below(3))]
        offers.append(asyncio.create_task(offer(world, producer, records, entropy.fork(str(number)))))
        if entropy.chance(0.1):
            with suppress(PenstockError):
                await producer.flush()
    if entropy.chance(0.8):
        with suppress(PenstockError):
            await producer.close()
        assert producer.in_flight_bytes == 0, "closed, and still holding bytes"
        await asyncio.gather(*offers)
    # Else the process exits as programs do that forget to close: whatever was not durable is nobody's promise.


async def offer(world: World, producer: Producer, records: list[str], entropy: SeededEntropy) -> None:
    journal = world.journal
    journal.offered += records
    bodies = [record.encode() for record in records]
    patience = entropy.uniform(0.0, 1.0) if entropy.chance(0.15) else None
    try:
        async with asyncio.timeout(patience):
            handle = (
                producer.try_produce(bodies) if entropy.chance(0.1) else await producer.produce(bodies, b"metadata")
            )
            # No await lies between acceptance and this line, so this is the order in which the producer took them.
            journal.accepted += records
    except (TimeoutError, PenstockError):
        journal.refused += records
        return
    await watch(world, handle, records, entropy)


async def watch(world: World, handle: InputHandle, records: list[str], entropy: SeededEntropy) -> None:
    if entropy.chance(0.2):
        with suppress(TimeoutError, PenstockError):
            async with asyncio.timeout(0.3):
                await handle.durable()
    try:
        sequence = await handle.durable()
    except OutcomeUnknown as error:
        world.journal.events.add("unproved" if "cannot be proved" in str(error) else "unknown")
    except PenstockError:
        world.journal.denied += records
    else:
        assert handle.done
        assert sequence in world.auditor.entries, f"confirmed at {sequence}, which was never written"
        world.journal.confirmed.update(dict.fromkeys(records, sequence))


# Consumers ---------------------------------------------------------------------------------------


async def consume(world: World, name: str, *, until_empty: bool = False) -> None:
    """A process that feeds the sink until it is fenced, told to stop, or killed."""
    entropy = world.entropy.fork(f"{name} moves")
    try:
        if entropy.chance(0.3):
            await feed_by_runner(world, name, entropy, until_empty=until_empty)
            return
        consumer, started_behind = world.consumer(name), world.sink.position
        await patiently(world, consumer.start)
        feed = feed_one_by_one if entropy.chance(0.5) else feed_read_ahead
        await feed(world, consumer, entropy, started_behind, until_empty=until_empty)
        await consumer.close()
    except (Fenced, InvalidInput, Unavailable, OutcomeUnknown):
        # Fenced, or the sink moved on between asking it and starting: the next consumer asks it again.
        world.journal.events.add("stopped")


class CheckedSink:
    """The world's sink as a runner knows it: some time passes, and then a whole run is stored in one step."""

    def __init__(self, world: World, entropy: SeededEntropy) -> None:
        self._world = world
        self._entropy = entropy
        self._last: int | None = None

    async def position(self) -> int | None:
        self._last = self._world.sink.position
        return self._last

    async def store(self, batches: Sequence[ConsumedBatch]) -> None:
        for batch in batches:
            self._last = await check_next(self._world, batch.descriptor, self._last)
        await self._world.clock.sleep(self._entropy.uniform(0.0, 0.3))
        for batch in batches:
            self._world.sink.store(batch)


async def feed_by_runner(world: World, name: str, entropy: SeededEntropy, *, until_empty: bool) -> None:
    """Run again after every fault that may pass: each run asks the sink where to go on."""
    runner = world.runner(name, CheckedSink(world, entropy))
    await patiently(world, lambda: runner.run(until_empty=until_empty), tries=20)


async def meddle(world: World, consumer: Consumer, entropy: SeededEntropy) -> None:
    """Ask to set aside what another consumer was handed, or nobody yet: taken, batches would be lost unread."""
    known = [*world.journal.descriptors, *world.auditor.manifest]
    handed = consumer._cursor._pending  # the one thing that tells what this consumer may set aside
    strange = [descriptor for descriptor in known if descriptor.sequence not in handed]
    if strange:
        # Whether it was refused, the sink tells in the end.
        with suppress(PenstockError):
            await consumer.set_aside(entropy.choice(strange), NotFound("gone", "as a confused program believes"))


async def patiently(world: World, call: Callable[[], Awaitable[T]], tries: int = 5) -> T:
    """Every call may be made again after a failure, as its docstring promises."""
    for _ in range(tries - 1):
        with suppress(Unavailable, OutcomeUnknown):
            return await call()
        await world.clock.sleep(0.5)
    return await call()


async def feed_one_by_one(
    world: World, consumer: Consumer, entropy: SeededEntropy, last: int | None, *, until_empty: bool
) -> None:
    while True:
        if entropy.chance(0.1) and not until_empty:
            with suppress(TimeoutError):
                async with asyncio.timeout(entropy.uniform(0.0, 0.2)):
                    await consumer.next_batch()
                    return  # got it just in time; a process that stops here has lost nothing
        batch = await patiently(world, consumer.next_batch)
        if batch is None:
            if until_empty:
                return
            await world.clock.sleep(entropy.uniform(0.1, 1.0))
            continue
        last = await check_next(world, batch.descriptor, last)
        await world.clock.sleep(entropy.uniform(0.0, 0.3))
        world.sink.store(batch)
        await patiently(world, lambda: consumer.ack(last))  # noqa: B023  called before the loop goes on


async def feed_read_ahead(
    world: World, consumer: Consumer, entropy: SeededEntropy, last: int | None, *, until_empty: bool
) -> None:
    handle, watermark = consumer.fetch_handle(), Watermark()
    while True:
        if entropy.chance(0.2):
            await meddle(world, consumer, entropy)
        descriptors = await patiently(world, lambda: consumer.next_descriptors(1 + entropy.below(4)))
        if not descriptors:
            if until_empty:
                return
            await world.clock.sleep(entropy.uniform(0.1, 1.0))
            continue
        world.journal.descriptors += descriptors
        for descriptor in descriptors:
            last = await check_next(world, descriptor, last)
            watermark.begin(descriptor.sequence)
        fetches = [patiently(world, lambda d=d: handle.fetch(d)) for d in descriptors]
        fetched = await asyncio.gather(*fetches, return_exceptions=True)
        for descriptor, found in zip(descriptors, fetched, strict=True):
            if isinstance(found, ConsumedBatch):
                world.sink.store(found)
            else:
                assert isinstance(found, PenstockError)
                await patiently(world, lambda d=descriptor, e=found: consumer.set_aside(d, e))
            watermark.complete(descriptor.sequence)
        through = watermark.value
        assert through is not None
        await patiently(world, lambda: acknowledge(consumer, through))  # noqa: B023  called before the loop goes on


async def acknowledge(consumer: Consumer, through: int) -> None:
    before = consumer.last_acked
    try:
        await consumer.ack_through(through)
    except BaseException:
        assert consumer.last_acked == before, "a failed acknowledgement moved the consumer"
        raise


async def check_next(world: World, descriptor: Descriptor, last: int | None) -> int:
    """Handed out: behind everything acknowledged before the start, without a gap but for dead letters."""
    if last is not None:
        assert descriptor.sequence > last, f"{descriptor.sequence} was handed out behind {last}"
        skipped = set(range(last + 1, descriptor.sequence))
        recorded = await DeadLetters(world.auditor, "ingest").sequences(last + 1, descriptor.sequence)
        assert skipped <= recorded, f"{skipped - recorded} were passed over"
    return descriptor.sequence


# The world's hand --------------------------------------------------------------------------------


async def vandalise(world: World, entropy: SeededEntropy) -> None:
    """Destroy a queued object, as a person with a shell does."""
    await world.clock.sleep(entropy.uniform(0.5, 5.0))
    queued = [entry.location for entry in world.auditor.manifest]
    if queued:
        await world.auditor.vandalise(entropy.choice(queued), entropy.choice([None, b"", b"garbage"]))


async def fall_ill(world: World, entropy: SeededEntropy) -> None:
    """The store answers nearly nothing, or answers late, for about as long as the grace."""
    await world.clock.sleep(entropy.uniform(0.0, 3.0))
    usual, world.faulty.faults = world.faulty.faults, entropy.choice([DOWN, CRAWLING, CRAWLING])
    await world.clock.sleep(entropy.uniform(0.5, 1.5) * GRACE_SECONDS)
    world.faulty.faults = usual


async def run(world: World) -> None:
    simulation, entropy = world.simulation, world.entropy.fork("hand")
    collector = simulation.start("collector", world.collector().run())
    producers = [simulation.start(f"p{number}", produce(world, f"p{number}")) for number in range(PRODUCERS)]
    consumers: list[Process] = []
    mischief: list[Process] = []
    if world.vandal:
        mischief.append(simulation.start("vandal", vandalise(world, entropy.fork("vandal"))))
    if entropy.chance(0.3):
        mischief.append(simulation.start("illness", fall_ill(world, entropy.fork("illness"))))
    for number in range(1 + entropy.below(3)):
        consumers.append(simulation.start(f"c{number}", consume(world, f"c{number}")))
        await simulation.clock.sleep(entropy.uniform(0.5, 8.0))
        if entropy.chance(0.3):
            entropy.choice([*producers, *consumers, collector]).crash()
    for process in producers:
        await process.join()
    for process in (*consumers, *mischief):
        process.crash()


async def check(world: World) -> None:
    """Heal everything, drain the queue, and compare the sink with what producers were told."""
    await world.faulty.settle()
    world.faulty.faults = FaultPlan.none()
    # What is queued when nobody comes for it must outlive every grace.
    await world.clock.sleep(world.entropy.uniform(0.0, 2.0) * GRACE_SECONDS)
    await world.collector().collect()
    await consume(world, "last", until_empty=True)
    await check_garbage(world)
    assert not world.auditor.violations, world.auditor.violations
    journal, sink = world.journal, world.sink
    letters = await DeadLetters(world.auditor, "ingest").sequences(0, world.auditor.manifest.next_sequence)

    times = Counter(sink.records)
    assert max(times.values(), default=1) == 1, f"twice in the sink: {times.most_common(3)}"
    dead = {sequence for sequence in letters if world.auditor.entries[sequence] in world.auditor.vandalised}
    assert letters <= dead | set(sink.batches), f"dead letters of sound batches: {letters - dead}"
    assert set(sink.batches) | dead == set(range(world.auditor.manifest.next_sequence)), "the sink has a gap"
    lost = [record for record, sequence in journal.confirmed.items() if sequence not in dead and not times[record]]
    assert not lost, f"confirmed and lost: {lost}"
    risen = [record for record in (*journal.denied, *journal.refused) if times[record]]
    assert not risen, f"denied and delivered: {risen}"
    for name in {record.split(".")[0] for record in journal.accepted}:
        mine = [record for record in journal.accepted if record.startswith(f"{name}.") and times[record]]
        assert [record for record in sink.records if record.startswith(f"{name}.")] == mine, f"{name} out of order"


async def check_garbage(world: World) -> None:
    """An empty queue whose grace has passed leaves no batch object behind."""
    assert len(world.auditor.manifest) == 0, "drained, and not empty"
    await world.clock.sleep(2 * GRACE_SECONDS)
    # Nothing goes while nobody writes the manifest; starting does.
    await consume(world, "sweeper", until_empty=True)
    await world.collector().collect()
    left = [meta.key async for page in world.auditor.list("ingest/") for meta in page if meta.key.endswith(".batch")]
    if await exists(world, "ingest/manifest"):
        assert not left, f"never collected: {left}"


async def exists(world: World, key: str) -> bool:
    try:
        await world.auditor.head(key)
    except NotFound:
        return False
    return True


async def trial(simulation: Simulation, build: Callable[[Simulation], World] = World) -> Any:
    world = build(simulation)
    await run(world)
    await check(world)
    return simulation.fingerprint


@pytest.mark.simulation(seeds=2000)
def test_nothing_acknowledged_is_lost_or_doubled_and_nothing_referenced_is_collected(seed: int) -> object:
    return simulate(trial, seed, stall_seconds_max=0.05)


@pytest.mark.simulation(seeds=500)
def test_the_same_holds_where_the_manifest_is_too_long_to_be_read_for_every_call(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> object:
    monkeypatch.setattr("penstock.buffer.consuming.view._GLANCE_BYTES_MIN", 0)
    return simulate(trial, seed, stall_seconds_max=0.05)


# The same checks over planted bugs ---------------------------------------------------------------


class ForgetfulEnqueue(Enqueue):
    """Appends again after every lost answer, as the public implementations do."""

    def landed(self, manifest: Manifest) -> bool | None:
        return False


class HopefulEnqueue(Enqueue):
    """Takes every lost answer for a success."""

    def landed(self, manifest: Manifest) -> bool | None:
        return True


class GuessingEnqueue(Enqueue):
    """Takes a group that left the queue already for one that never entered it."""

    def landed(self, manifest: Manifest) -> bool | None:
        return bool(super().landed(manifest))


class ImpatientPipeline(Pipeline):
    """Enqueues whatever is uploaded first."""

    def _next_group(self) -> list[Any]:
        while self._batches and not self._batches[-1].ready.is_set():
            self._batches.rotate()
        self._batches.rotate()
        return super()._next_group()


class LooseCursor(Cursor):
    """Moves before the write that must come first."""

    def plan_ack_through(self, sequence: int) -> int:
        through = super().plan_ack_through(sequence)
        self.acked(sequence)
        return through


class TrustingCursor(Cursor):
    """Sets aside whatever it is given."""

    def check_pending(self, sequence: int) -> None:
        pass


# Where a bug is noticed the world ends in the middle of its work; what its coroutines say to that is not the bug.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("place", "bug"),
    [
        ("producing.pipeline.Enqueue", ForgetfulEnqueue),
        ("producing.pipeline.Enqueue", HopefulEnqueue),
        ("producing.pipeline.Enqueue", GuessingEnqueue),
        ("producing.producer.Pipeline", ImpatientPipeline),
        ("consuming.consumer.Cursor", LooseCursor),
        ("consuming.consumer.Cursor", TrustingCursor),
        ("collector.garbage", lambda aged, oldest_ms, prefix: list(aged)),
        ("collector._aged", lambda meta, prefix, newest_ms: batch_time_ms(meta.key, prefix) is not None),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_planted_bug_is_noticed(place: str, bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"penstock.buffer.{place}", bug)
    for seed in range(600):
        try:
            simulate(trial, seed, stall_seconds_max=0.05)
        except (AssertionError, PenstockError, BaseExceptionGroup):
            break
    else:
        pytest.fail("600 seeds saw nothing wrong")
    # Here, and not in the test that happens to come next.
    gc.collect()
