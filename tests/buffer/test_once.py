"""A group is enqueued once: by looking for its mark, by the count of sequences, or not without saying so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from penstock.buffer import Consumer, ConsumerConfig, OnceProducer, OnceReceipt, Producer, ProducerConfig, Unproved
from penstock.errors import InvalidInput, OutcomeUnknown, PenstockError
from penstock.objects import MemoryStore
from penstock.testing import Fate, FaultPlan, FaultyStore, Simulation, simulate

CONFIG = ProducerConfig(manifest_deadline_seconds=5.0, collector_grace_seconds=60.0)


class Scene:
    def __init__(self, simulation: Simulation) -> None:
        self.clock = simulation.clock
        self.entropy = simulation.entropy
        self.inner = MemoryStore(clock=self.clock)
        self.store = FaultyStore(self.inner, FaultPlan(), entropy=self.entropy.fork("faults"), clock=self.clock)
        self.intents: list[int] = []
        self.uploads = 0
        self._roles = 0

    @property
    def doors(self) -> Any:
        self._roles += 1
        return {"clock": self.clock, "entropy": self.entropy.fork(f"role-{self._roles}")}

    def producer(self, *, alone: bool = False) -> OnceProducer:
        return OnceProducer(self.store, CONFIG, alone=alone, **self.doors)

    async def send(self, producer: OnceProducer, since: int | None = None, mark: bytes = b"m2") -> OnceReceipt:
        async def batches() -> AsyncIterator[tuple[Sequence[bytes], bytes]]:
            self.uploads += 1
            yield [b"one", b"two"], b"m1"
            yield [b"three"], mark

        async def intend(start: int) -> None:
            self.intents.append(start)

        return await producer.send(batches, mark, since=since, intend=intend)

    async def consume(self, last_acked: int | None = None) -> list[bytes]:
        found: list[bytes] = []
        async with Consumer(self.inner, ConsumerConfig(collect=False), last_acked, **self.doors) as consumer:
            while (batch := await consumer.next_batch()) is not None:
                found += [bytes(record) for record in batch.records]
                await consumer.ack(batch.sequence)
        return found

    async def beside(self) -> None:
        async with Producer(self.inner, CONFIG, **self.doors) as producer:
            await (await producer.produce([b"another's"], b"m2?")).durable()


def test_a_group_is_queued_whole_and_its_place_is_noted_before() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation)
        await scene.beside()
        assert await scene.send(scene.producer()) == OnceReceipt(2, is_new=True)
        assert scene.intents == [1]
        assert await scene.consume() == [b"another's", b"one", b"two", b"three"]

    simulate(main, 1)


def test_a_group_that_is_still_queued_is_found_and_not_uploaded_again() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation)
        await scene.send(scene.producer())
        await scene.beside()
        assert await scene.send(scene.producer(), since=0) == OnceReceipt(1, is_new=False)
        assert scene.uploads == 1

    simulate(main, 1)


def test_a_group_whose_attempt_never_landed_is_sent() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation)
        await scene.beside()
        assert (await scene.send(scene.producer(), since=1)).is_new

    simulate(main, 1)


def test_once_the_consumer_has_gone_past_nobody_can_tell() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation)
        await scene.send(scene.producer())
        await scene.consume()
        with pytest.raises(Unproved, match="gone past 0"):
            await scene.send(scene.producer(), since=0)
        assert issubclass(Unproved, OutcomeUnknown)

    simulate(main, 1)


def test_a_sender_that_is_alone_can_always_tell() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation)
        await scene.send(scene.producer(alone=True))
        await scene.consume()
        assert await scene.send(scene.producer(alone=True), since=0) == OnceReceipt(1, is_new=False)
        assert await scene.send(scene.producer(alone=True), since=2, mark=b"m3") == OnceReceipt(3, is_new=True)

    simulate(main, 1)


def test_a_sender_that_is_not_as_alone_as_it_was_told_says_so() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation)
        await scene.send(scene.producer(alone=True))
        await scene.consume()
        await scene.beside()
        with pytest.raises(InvalidInput, match="another producer"):
            await scene.send(scene.producer(alone=True), since=0)

    simulate(main, 1)


def test_a_write_that_lands_long_after_its_sender_died_is_found_by_the_next() -> None:
    """Between the look of the next one and its write: the condition fails, and the look is repeated."""

    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation)
        await scene.beside()
        scene.store.script("put_if", Fate.SERVED, Fate.ZOMBIE)
        scene.store.faults = FaultPlan(timeout_seconds=1.0, zombie_seconds_max=20.0)
        first = simulation.start("first", scene.send(scene.producer()))
        await simulation.clock.sleep(0.9)
        first.crash()
        receipt = await scene.send(scene.producer(), since=1)
        await scene.store.settle()
        assert receipt.sequence == 2
        assert await scene.consume() == [b"another's", b"one", b"two", b"three"]

    for seed in range(30):
        simulate(main, seed)


def test_objects_that_a_collector_may_have_taken_are_uploaded_anew() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation)
        producer = scene.producer()
        await scene.beside()

        async def slow() -> AsyncIterator[tuple[Sequence[bytes], bytes]]:
            scene.uploads += 1
            yield [b"one"], b"m"
            if scene.uploads == 1:
                await simulation.clock.sleep(40)

        async def intend(start: int) -> None: ...

        receipt = await producer.send(slow, b"m", since=None, intend=intend)
        assert receipt.is_new
        assert scene.uploads == 2
        assert await scene.consume() == [b"another's", b"one"]

    simulate(main, 1)


def test_a_definite_failure_has_enqueued_nothing() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation)
        await scene.beside()
        scene.store.faults = FaultPlan(error_before=1.0, verbs=frozenset({"put_if"}))
        producer = scene.producer()
        with pytest.raises(PenstockError) as failure:
            await scene.send(producer)
        assert not isinstance(failure.value, OutcomeUnknown)
        scene.store.faults = FaultPlan()
        assert (await scene.send(producer)).is_new
        assert await scene.consume() == [b"another's", b"one", b"two", b"three"]

    simulate(main, 1)
