"""Producers under test, and what they left in the store."""

from __future__ import annotations

from penstock.buffer import Manifest, Producer, ProducerConfig, decode_batch
from penstock.errors import (
    NotFound,
)
from penstock.objects import MemoryStore, ObjectStore
from penstock.testing import FaultPlan, FaultyStore, Simulation

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
