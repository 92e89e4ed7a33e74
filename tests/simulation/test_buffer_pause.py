"""A quiet queue and writes of its manifest that land minutes late, when their objects have long outlived the grace.

A producer tries, loses every answer and is gone; its request is still under way. Consumers and
collectors go on. Whatever lands in the end must name objects that are there, and the consumer must
never halt. The planted bug is the rule that keeps such a write out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.buffer.world import GRACE_SECONDS, World

from penstock.buffer import Consumer
from penstock.buffer.collector import Collector
from penstock.errors import PenstockError
from penstock.objects import ObjectMeta
from penstock.testing import FaultPlan, FaultyStore, Latency, Simulation, simulate

LATE = FaultPlan(
    zombie=0.4,
    request_lost=0.4,
    verbs=frozenset({"put_if"}),
    latency=Latency(0.002, 0.05),
    timeout_seconds=1.5,
    zombie_seconds_max=6 * GRACE_SECONDS,
)
PRODUCERS = 8


class LateWorld(World):
    """Faults befall producers alone: everybody else shall be there when the late write lands."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, LATE)
        self.vandal = False
        self.late = self.faulty
        self.faulty = FaultyStore(self.auditor, FaultPlan(), entropy=self.entropy.fork("calm"), clock=self.clock)

    async def produce(self, name: str) -> None:
        """One input, from a producer that lives no longer than it takes to be told of it."""
        self.faulty, calm = self.late, self.faulty
        producer = self.producer(name)
        self.faulty = calm
        with suppress(PenstockError):
            await (await producer.produce([name.encode()])).durable()
            self.journal.confirmed[name] = 0
        with suppress(PenstockError):
            await producer.close()


async def consume(world: LateWorld, consumer: Consumer) -> None:
    while True:
        while (batch := await consumer.next_batch()) is None:
            await world.clock.sleep(0.5)
        world.sink.store(batch)
        await consumer.ack(batch.sequence)
        await consumer.flush()


async def trial(simulation: Simulation) -> object:
    world = LateWorld(simulation)
    entropy = world.entropy.fork("hand")
    consumer = world.consumer("only")
    await consumer.start()
    consuming = asyncio.create_task(consume(world, consumer))
    collecting = asyncio.create_task(world.collector().run())
    for number in range(PRODUCERS):
        await world.produce(f"p{number}")
        await world.clock.sleep(entropy.uniform(0.0, 4.0) * GRACE_SECONDS)
    await world.late.settle()
    await world.clock.sleep(5.0)
    for task in (consuming, collecting):
        assert not task.done(), task.exception()
        task.cancel()
    assert not world.auditor.violations, world.auditor.violations
    lost = set(world.journal.confirmed) - set(world.sink.records)
    assert not lost, f"confirmed and lost: {lost}"
    assert len(world.sink.records) == len(set(world.sink.records)), "twice in the sink"
    return simulation.fingerprint


@pytest.mark.simulation(seeds=200)
def test_a_write_that_lands_minutes_late_never_names_an_object_that_is_gone(seed: int) -> object:
    return simulate(trial, seed, stall_seconds_max=0.05)


_JUDGE = Collector._judge


async def judged_by_the_clock(self: Any, aged: list[ObjectMeta], oldest: Any) -> Any:
    """Takes an object that is old now, and was not when the manifest was last written."""
    page = await _JUDGE(self, aged, oldest)
    if page is None:
        return None
    waiting = [meta for meta in aged if meta not in page.garbage]
    return replace(page, garbage=[*page.garbage, *waiting[: page.waiting]], waiting=0)


@pytest.mark.parametrize(("place", "bug"), [("collector.Collector._judge", judged_by_the_clock)])
def test_a_planted_bug_is_noticed(place: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"penstock.buffer.{place}", bug)
    for seed in range(300):
        try:
            simulate(trial, seed, stall_seconds_max=0.05)
        except (AssertionError, PenstockError, BaseExceptionGroup):
            return
    pytest.fail("300 seeds saw nothing wrong")
