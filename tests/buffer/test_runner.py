"""The runner: many fetches, one sink fed in order, and every record there once whatever ends a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from tests.buffer.consumers import MANIFEST, consumer, fill, filled, queued
from tests.buffer.simulated import simulated

from penstock.buffer import (
    ConsumedBatch,
    ConsumerConfig,
    DeadLetterPolicy,
    DeadLetters,
    Manifest,
    Runner,
    RunnerConfig,
)
from penstock.errors import Fenced, InvalidInput, NotFound
from penstock.objects import Object, ObjectStore
from penstock.testing import FaultyStore, Simulation
from penstock.testing.storage.hostile_stores import PassingStore


class ListSink:
    """Stores batches and the position together, as a transaction would."""

    def __init__(self, keeps_position: bool = True) -> None:
        self.records: list[bytes] = []
        self.runs: list[int] = []
        self.last: int | None = None
        self.before_store: Callable[[Sequence[ConsumedBatch]], object] = lambda _: None
        self._keeps_position = keeps_position

    async def position(self) -> int | None:
        return self.last if self._keeps_position else None

    async def store(self, batches: Sequence[ConsumedBatch]) -> None:
        self.before_store(batches)
        for batch in batches:
            if self.last is None or batch.sequence > self.last:
                self.records += [bytes(record) for record in batch.records]
                self.last = batch.sequence
        self.runs.append(len(batches))


class SlowStore(PassingStore):
    """Batches take a second each, a later one less than the one before it; keeps how many were under way at once."""

    def __init__(self, inner: ObjectStore, simulation: Simulation) -> None:
        super().__init__(inner)
        self._clock = simulation.clock
        self.under_way = self.most = self.fetched = 0

    async def get(self, key: str) -> Object:
        if not key.endswith(".batch"):
            return await super().get(key)
        self.under_way += 1
        self.fetched += 1
        self.most = max(self.most, self.under_way)
        await self._clock.sleep(1.0 - 0.001 * self.fetched)
        self.under_way -= 1
        return await super().get(key)


def runner(simulation: Simulation, store: ObjectStore, sink: ListSink, **knobs: object) -> Runner:
    policy = knobs.pop("dead_letter", DeadLetterPolicy.HALT)
    config = ConsumerConfig(collect=False, dead_letter=policy)  # type: ignore[arg-type]
    entropy = simulation.entropy.fork("runner")
    return Runner(store, sink, RunnerConfig(**knobs), config, clock=simulation.clock, entropy=entropy)  # type: ignore[arg-type]


def expected(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def destroy(store: FaultyStore, sequence: int) -> None:
    location = Manifest((await store.get(MANIFEST)).data).location_of(sequence)
    assert location is not None
    await store.delete(location)


@simulated
async def test_everything_queued_reaches_the_sink_in_order_and_leaves_the_queue(simulation: Simulation) -> None:
    store, sink = await filled(simulation, 30), ListSink()
    await runner(simulation, store, sink).run(until_empty=True)
    assert sink.records == expected(30)
    assert sink.last == 29
    assert await queued(store) == []


@simulated
async def test_so_many_batches_are_fetched_at_once_and_no_more_though_the_first_ends_last(
    simulation: Simulation,
) -> None:
    sink = ListSink()
    store = SlowStore(await filled(simulation, 40), simulation)
    began = simulation.clock.monotonic()
    await runner(simulation, store, sink, fetch_concurrency=8).run(until_empty=True)
    assert store.most == 8
    assert simulation.clock.monotonic() - began < 8.0, "40 batches of a second, eight at a time, the first alone"
    assert sink.records == expected(40)


@simulated
async def test_neighbours_that_are_ready_together_are_stored_together(simulation: Simulation) -> None:
    sink = ListSink()
    store = SlowStore(await filled(simulation, 33), simulation)
    await runner(simulation, store, sink, fetch_concurrency=16).run(until_empty=True)
    assert sum(sink.runs) == 33
    assert max(sink.runs) > 4


@simulated
async def test_a_sink_that_stores_nothing_yet_holds_up_the_fetches_at_the_bound_on_bytes(
    simulation: Simulation,
) -> None:
    store, sink, gate = await filled(simulation, 0), ListSink(), asyncio.Event()
    made = consumer(simulation, store)
    await fill(simulation, store, range(100, 150))  # records of three bytes: 15 with what lies beside them
    watched = SlowStore(store, simulation)

    class GatedSink(ListSink):
        async def store(self, batches: Sequence[ConsumedBatch]) -> None:
            await gate.wait()
            await super().store(batches)

    sink = GatedSink()
    running = asyncio.create_task(
        runner(simulation, watched, sink, in_flight_bytes_max=150, fetch_concurrency=4).run(until_empty=True)
    )
    await simulation.clock.sleep(60.0)
    assert watched.fetched == 10
    gate.set()
    await running
    assert sink.records == [b"%d" % number for number in range(100, 150)]
    await made.close()


@simulated
async def test_a_batch_larger_than_the_bound_goes_through_alone(simulation: Simulation) -> None:
    sink = ListSink()
    store = SlowStore(await filled(simulation, 5), simulation)
    await runner(simulation, store, sink, in_flight_bytes_max=1).run(until_empty=True)
    assert (store.most, sink.records) == (1, expected(5))


@simulated
async def test_a_sink_that_fails_ends_the_run_and_the_next_one_goes_on_behind_what_it_has(
    simulation: Simulation,
) -> None:
    store, sink = await filled(simulation, 20), ListSink()

    def fail(batches: Sequence[ConsumedBatch]) -> None:
        if batches[-1].sequence >= 7:
            raise ZeroDivisionError("the sink is broken")

    sink.before_store = fail
    made = runner(simulation, store, sink, fetch_concurrency=2)
    with pytest.raises(ZeroDivisionError):
        await made.run(until_empty=True)
    assert sink.records == expected(len(sink.records))
    sink.before_store = lambda _: None
    await made.run(until_empty=True)
    assert sink.records == expected(20)
    assert await queued(store) == []


@simulated
async def test_a_run_that_is_cut_off_anywhere_is_followed_by_another_and_nothing_is_there_twice(
    simulation: Simulation,
) -> None:
    sink, entropy = ListSink(), simulation.entropy.fork("cuts")
    store = SlowStore(await filled(simulation, 25), simulation)
    for _ in range(8):
        running = asyncio.create_task(runner(simulation, store, sink, fetch_concurrency=3).run())
        await simulation.clock.sleep(entropy.uniform(0.0, 3.0))
        running.cancel()
        await asyncio.wait((running,))
    await runner(simulation, store, sink).run(until_empty=True)
    assert sink.records == expected(25)


@simulated
async def test_a_sink_without_a_position_gets_everything_at_least_once(simulation: Simulation) -> None:
    store, sink = await filled(simulation, 5), ListSink(keeps_position=False)
    await runner(simulation, store, sink).run(until_empty=True)
    await fill(simulation, store, range(5, 8))
    await runner(simulation, store, sink).run(until_empty=True)
    assert sink.records == expected(8)


@simulated
async def test_a_runner_that_was_taken_over_is_fenced(simulation: Simulation) -> None:
    store, sink = await filled(simulation, 3), ListSink()
    running = asyncio.create_task(runner(simulation, store, sink).run())
    await simulation.clock.sleep(5.0)
    successor = consumer(simulation, store, last_acked=sink.last)
    await successor.start()
    with pytest.raises(Fenced):
        await running
    assert sink.records == expected(3)


@simulated
async def test_an_unreadable_batch_halts_the_run_behind_what_lies_before_it(simulation: Simulation) -> None:
    store, sink = await filled(simulation, 10), ListSink()
    await destroy(store, 6)
    with pytest.raises(NotFound, match="batch 6"):
        await runner(simulation, store, sink).run(until_empty=True)
    assert sink.records == expected(6)


@simulated
async def test_an_unreadable_batch_is_set_aside_in_its_turn_if_the_policy_says_so(simulation: Simulation) -> None:
    store, sink = await filled(simulation, 10), ListSink()
    for gone in (0, 4, 5):
        await destroy(store, gone)
    await runner(simulation, store, sink, dead_letter=DeadLetterPolicy.SET_ASIDE).run(until_empty=True)
    assert sink.records == [record for record in expected(10) if record not in (b"0", b"4", b"5")]
    assert await DeadLetters(store, "ingest").sequences(0, 10) == {0, 4, 5}
    assert await queued(store) == []


@simulated
async def test_a_runner_waits_for_what_comes_and_stops_when_it_is_told(simulation: Simulation) -> None:
    store, sink = await filled(simulation, 2), ListSink()
    made = runner(simulation, store, sink)
    running = asyncio.create_task(made.run())
    await simulation.clock.sleep(10.0)
    assert sink.records == expected(2)
    await fill(simulation, store, range(2, 4))
    await simulation.clock.sleep(10.0)
    assert sink.records == expected(4)
    with pytest.raises(InvalidInput, match="is already running"):
        await made.run()
    made.stop()
    await running
    assert await queued(store) == []


@simulated
async def test_a_runner_that_is_stopped_in_the_middle_leaves_the_rest_to_the_next(simulation: Simulation) -> None:
    sink = ListSink()
    store = SlowStore(await filled(simulation, 30), simulation)
    made = runner(simulation, store, sink, fetch_concurrency=2)
    running = asyncio.create_task(made.run())
    await simulation.clock.sleep(4.5)
    made.stop()
    await running
    assert sink.records == expected(len(sink.records))
    assert 0 < len(sink.records) < 30
    await made.run(until_empty=True)
    assert sink.records == expected(30)


@simulated
async def test_a_stop_that_comes_before_the_run_has_begun_is_not_lost(simulation: Simulation) -> None:
    store, sink = await filled(simulation, 3), ListSink()
    made = runner(simulation, store, sink)
    running = asyncio.create_task(made.run())
    made.stop()
    async with asyncio.timeout(60.0):
        await running
    assert not sink.records
    assert await queued(store) == [0, 1, 2]
    await made.run(until_empty=True)
    assert sink.last == 2, "it held for one run"
