"""A producer that is replaced once it has halted: an outage costs the calls under way, and none after it."""

from __future__ import annotations

import asyncio

import pytest
from tests.buffer.producers import contents, faulty
from tests.buffer.simulated import simulated

from penstock.buffer import Producer, ProducerConfig, RestartingProducer
from penstock.errors import Closed, InvalidInput, Unavailable
from penstock.objects import ObjectStore
from penstock.testing import FaultPlan, FaultyStore, Simulation

OUTAGE = FaultPlan(error_before=1.0, verbs=frozenset({"put_if", "get"}))


def restarting(simulation: Simulation, store: ObjectStore, **knobs: object) -> RestartingProducer:
    config = ProducerConfig(**knobs)  # type: ignore[arg-type]

    def make() -> Producer:
        return Producer(store, config, clock=simulation.clock, entropy=simulation.entropy.fork("producer"))

    return RestartingProducer(make)


async def outage(store: FaultyStore, producer: RestartingProducer) -> None:
    """A call that outlasts the patience of its producer, and the store is well again."""
    store.faults = OUTAGE
    handle = await producer.produce([b"lost"])
    with pytest.raises(Unavailable):
        await handle.durable()
    store.faults = FaultPlan.none()


@simulated
async def test_after_an_outage_inputs_are_taken_again_without_a_restart(simulation: Simulation) -> None:
    store = faulty(simulation)
    async with restarting(simulation, store) as producer:
        for _ in range(2):
            await outage(store, producer)
            handles = await asyncio.gather(*(producer.produce(iter([b"%d" % number])) for number in range(3)))
            await asyncio.gather(*(handle.durable() for handle in handles))
    assert sorted(record for batch in await contents(store) for record in batch) == [b"0", b"0", b"1", b"1", b"2", b"2"]


@simulated
async def test_a_caller_in_line_when_its_producer_halts_goes_to_the_next_one(simulation: Simulation) -> None:
    store = faulty(simulation, OUTAGE)
    producer = restarting(simulation, store, max_in_flight_bytes=100)
    first = await producer.produce([bytes(20)])
    waiting = asyncio.create_task(producer.produce(iter([b"in line" + bytes(20)])))
    with pytest.raises(Unavailable):
        await first.durable()
    store.faults = FaultPlan.none()
    await (await waiting).durable()
    await producer.close()
    assert await contents(store) == [[b"in line" + bytes(20)]]


@simulated
async def test_what_no_producer_takes_is_refused_as_ever(simulation: Simulation) -> None:
    store = faulty(simulation)
    producer = restarting(simulation, store)
    for records in (b"one", [], [1], None):
        with pytest.raises(InvalidInput):
            await producer.produce(records)  # type: ignore[arg-type]
    await outage(store, producer)
    with pytest.raises(Closed, match="halted"):
        await producer.close()
    for _ in range(2):
        with pytest.raises(Closed):
            await producer.produce([b"late"])
