"""A world for the queue: producers, consumers, a collector and a vandal on a faulty store, and what they were told.

Everything here lies outside of all simulated processes, so that a crash loses nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.buffer import (
    Collector,
    CollectorConfig,
    Compression,
    ConsumedBatch,
    Consumer,
    ConsumerConfig,
    DeadLetterPolicy,
    Descriptor,
    Manifest,
    Producer,
    ProducerConfig,
    Runner,
    RunnerConfig,
)
from penstock.buffer import Sink as RunnerSink
from penstock.errors import NotFound
from penstock.objects import MemoryStore, ObjectMeta, ObjectStore
from penstock.objects.port import Body
from penstock.testing import FaultPlan, FaultyStore, Latency, SeededEntropy, Simulation
from penstock.testing.storage.hostile_stores import PassingStore

MANIFEST = "ingest/manifest"
# A write of the manifest is first sent when its batches are at most half the grace old; then come the
# deadline, and the longest that a request may be under way. Together they stay below the grace.
GRACE_SECONDS = 24.0
PLAN = FaultPlan(
    throttled=0.03,
    error_before=0.03,
    request_lost=0.02,
    error_after=0.05,
    reply_lost=0.03,
    zombie=0.03,
    crash_before=0.003,
    crash_after=0.004,
    latency=Latency(0.002, 0.05, slow_chance=0.03, slow_seconds_max=5.0),
    timeout_seconds=1.5,
    zombie_seconds_max=5.5,
)
DOWN = FaultPlan(error_before=0.97)
CRAWLING = FaultPlan(error_after=0.05, latency=Latency(0.5, 3.0))


class Auditor(PassingStore):
    """Lies beneath all faults and looks at every write of the manifest and every deletion, as it lands.

    It writes violations down instead of raising: an error here would reach whoever sent the request, or nobody.
    """

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.manifest = Manifest.empty()
        # Every entry there ever was: sequence to location.
        self.entries: dict[int, str] = {}
        # What the vandal destroyed; the promises do not cover it.
        self.vandalised: set[str] = set()
        self.violations: list[str] = []

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        meta = await super().put_if(key, data, version=version)
        if key == MANIFEST:
            await self._look(Manifest.decode(bytes(data)))
        return meta

    async def delete_many(self, keys: Iterable[str]) -> None:
        doomed = list(keys)
        referenced = {entry.location for entry in self.manifest}
        self._demand(not referenced & set(doomed), f"collected although referenced: {referenced & set(doomed)}")
        await super().delete_many(doomed)

    async def vandalise(self, location: str, body: bytes | None) -> None:
        self.vandalised.add(location)
        if body is None:
            await super().delete_many([location])
        else:
            await self.put(location, body)

    async def _look(self, after: Manifest) -> None:
        before, self.manifest = self.manifest, after
        sequences = [entry.sequence for entry in after]
        expected = list(range(after.next_sequence - len(after), after.next_sequence))
        self._demand(sequences == expected, f"a gap: {sequences}")
        self._demand(after.next_sequence >= before.next_sequence, "sequences went back")
        self._demand(after.first_sequence >= before.first_sequence, "a dequeued entry came back")
        self._demand(after.fence >= before.fence, "the fence went back")
        for entry in after.after(before.next_sequence - 1, len(after)):
            self._demand(entry.location not in self.entries.values(), f"appended twice: {entry.location}")
            self.entries[entry.sequence] = entry.location
        for entry in after:
            self._demand(self.entries[entry.sequence] == entry.location, f"entry {entry.sequence} was changed")
            found = entry.location in self.vandalised or await self._present(entry.location)
            self._demand(found, f"enqueued, and not there: {entry.location}")

    def _demand(self, holds: bool, violation: str) -> None:
        if not holds:
            self.violations.append(violation)

    async def _present(self, key: str) -> bool:
        try:
            await self.head(key)
        except NotFound:
            return False
        return True


@dataclass
class Sink:
    """Stores a batch and its sequence in one step, and knows a sequence it has seen."""

    position: int | None = None
    batches: dict[int, list[str]] = field(default_factory=dict)

    def store(self, batch: ConsumedBatch) -> None:
        if self.position is None or batch.sequence > self.position:
            self.batches[batch.sequence] = [bytes(record).decode() for record in batch.records]
            self.position = batch.sequence

    @property
    def records(self) -> list[str]:
        return [record for _, records in sorted(self.batches.items()) for record in records]


@dataclass
class Journal:
    """What producers were told of each record."""

    offered: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    confirmed: dict[str, int] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    events: set[str] = field(default_factory=set)
    # What consumers were handed, whatever became of them since.
    descriptors: list[Descriptor] = field(default_factory=list)


class World:
    """One trial's surroundings. Subclasses plant bugs."""

    def __init__(self, simulation: Simulation, plan: FaultPlan = PLAN) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        self.entropy = simulation.entropy.fork("world")
        self.auditor = Auditor(MemoryStore(clock=simulation.clock))
        self.faulty = FaultyStore(self.auditor, plan, entropy=simulation.entropy.fork("faults"), clock=self.clock)
        self.journal = Journal()
        self.sink = Sink()
        self.vandal = self.entropy.chance(0.15)

    def producer(self, name: str) -> Producer:
        entropy = self.entropy.fork(name)
        # A producer may think the collectors quicker than they are: it then uploads anew more often.
        grace, deadline = entropy.choice([(GRACE_SECONDS, 6.0), (GRACE_SECONDS, 3.0), (GRACE_SECONDS / 3, 2.0)])
        config = ProducerConfig(
            flush_interval_seconds=entropy.choice([0.02, 0.1, 0.5]),
            flush_size_bytes=entropy.choice([60, 200, 1000]),
            max_buffered_inputs=entropy.choice([2, 5, 100]),
            max_in_flight_bytes=entropy.choice([150, 300, 100_000]),
            max_in_flight_batches=entropy.choice([1, 3, 12]),
            upload_concurrency=entropy.choice([1, 4]),
            manifest_append_batches=entropy.choice([1, 3, 64]),
            compression=entropy.choice(list(Compression)),
            upload_attempts=entropy.choice([2, 6]),
            backoff_seconds_max=2.0,
            manifest_deadline_seconds=deadline,
            collector_grace_seconds=grace,
        )
        return Producer(self.store(self.faulty), config, clock=self.clock, entropy=entropy.fork("doors"))

    def consumer(self, name: str) -> Consumer:
        entropy = self.entropy.fork(name)
        config, last_acked = self._consuming(entropy), self.sink.position
        return Consumer(self.faulty, config, last_acked, clock=self.clock, entropy=entropy.fork("doors"))

    def runner(self, name: str, sink: RunnerSink) -> Runner:
        entropy = self.entropy.fork(name)
        config = RunnerConfig(
            fetch_concurrency=entropy.choice([1, 3, 8]),
            in_flight_bytes_max=entropy.choice([1, 100, 100_000]),
            read_ahead_batches=entropy.choice([1, 4, 64]),
        )
        doors = entropy.fork("doors")
        return Runner(self.faulty, sink, config, self._consuming(entropy), clock=self.clock, entropy=doors)

    def _consuming(self, entropy: SeededEntropy) -> ConsumerConfig:
        return ConsumerConfig(
            dequeue_every_acks=entropy.choice([1, 3, 100]),
            dequeue_percent=entropy.choice([1, 10, 100]),
            dequeue_every_seconds=entropy.choice([0.5, 5.0, 1000.0]),
            dead_letter=DeadLetterPolicy.SET_ASIDE if self.vandal else DeadLetterPolicy.HALT,
            collect=entropy.chance(0.3),
            collect_interval_seconds=10.0,
            collector_grace_seconds=GRACE_SECONDS,
            manifest_deadline_seconds=10.0,
        )

    def collector(self) -> Collector:
        config = CollectorConfig(interval_seconds=5.0, grace_seconds=GRACE_SECONDS, delete_batch_keys=3)
        return Collector(self.faulty, config, clock=self.clock)

    def store(self, faulty: ObjectStore) -> ObjectStore:
        """What a producer sees."""
        return faulty
