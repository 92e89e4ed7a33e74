"""Queues filled for a consumer under test, and the consumer."""

from __future__ import annotations

from penstock.buffer import (
    ConsumedBatch,
    Consumer,
    ConsumerConfig,
    Manifest,
    Producer,
    ProducerConfig,
)
from penstock.objects import MemoryStore, ObjectStore
from penstock.testing import FaultPlan, FaultyStore, RecordingObserver, Simulation

MANIFEST = "ingest/manifest"


async def filled(simulation: Simulation, count: int) -> FaultyStore:
    """A queue of `count` batches, each with its own number as its record and metadata."""
    inner = MemoryStore(clock=simulation.clock)
    store = FaultyStore(inner, FaultPlan(), entropy=simulation.entropy.fork("faults"), clock=simulation.clock)
    await fill(simulation, store, range(count))
    return store


async def fill(simulation: Simulation, store: ObjectStore, numbers: range) -> None:
    entropy = simulation.entropy.fork(f"producer of {numbers}")
    async with Producer(
        store, ProducerConfig(max_buffered_inputs=1), clock=simulation.clock, entropy=entropy
    ) as producer:
        for number in numbers:
            await producer.produce([b"%d" % number], b"m%d" % number)


def consumer(
    simulation: Simulation,
    store: ObjectStore,
    last_acked: int | None = None,
    observer: RecordingObserver | None = None,
    **knobs: object,
) -> Consumer:
    knobs.setdefault("collect", False)
    config = ConsumerConfig(**knobs)  # type: ignore[arg-type]
    entropy = simulation.entropy.fork("consumer")
    made = Consumer(store, config, last_acked, clock=simulation.clock, entropy=entropy)
    if observer is None:
        return made
    return Consumer(store, config, last_acked, clock=simulation.clock, entropy=entropy, observer=observer)


async def queued(store: ObjectStore) -> list[int]:
    return [entry.sequence for entry in Manifest.decode((await store.get(MANIFEST)).data)]


async def the_next(made: Consumer) -> ConsumedBatch:
    batch = await made.next_batch()
    assert batch is not None
    return batch
