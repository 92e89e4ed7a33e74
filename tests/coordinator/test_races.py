"""The races that the stores before this one had, each held as a test: they must not come back.

A cache evicted deltas that were not flushed; two caches held different snapshots; ids were seen before the
entry that explains them. (The fourth, `write` then `flush` during a running flush, is in test_coordinator.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from tests.coordinator.stores import Samples, Upserts, WillingHandler

from penstock.coordinator import Coordinator, CoordinatorConfig, Epochs, Flushed, Mark
from penstock.testing import Simulation, simulate


def test_no_delta_is_evicted_before_it_is_flushed_however_little_memory_there_is() -> None:
    async def main(simulation: Simulation) -> None:
        handler = WillingHandler(Samples, land_seconds=0.5, settle_seconds=0.5)
        config = CoordinatorConfig(max_pending_bytes=20, max_buffered_bytes=40, max_unsettled_flushes=2)
        coordinator = Coordinator(handler, {}, config, clock=simulation.clock)

        async def write(series: str) -> None:
            for number in range(20):
                await coordinator.write(Samples(**{series: number}))
                view = coordinator.view()
                state = view.snapshot
                for delta in view.deltas:
                    state = delta.onto(state)
                assert state[series] == tuple(range(number + 1)), "what was accepted is no longer there"

        await asyncio.gather(write("cpu"), write("memory"))
        await coordinator.shutdown()
        assert coordinator.current.snapshot == {"cpu": tuple(range(20)), "memory": tuple(range(20))}

    for seed in range(10):
        simulate(main, seed)


def test_all_readers_see_one_snapshot() -> None:
    """Subscribers, polls and views at one moment never differ, whatever each has seen before."""

    async def main(simulation: Simulation) -> None:
        coordinator = Coordinator(WillingHandler(Upserts), {}, clock=simulation.clock)
        subscriptions = [coordinator.subscribe() for _ in range(3)]
        compared = 0

        async def read(index: int) -> None:
            nonlocal compared
            async for published in subscriptions[index]:
                latest = {id(subscription.latest.snapshot) for subscription in subscriptions}
                assert latest == {id(coordinator.current.snapshot)} == {id(coordinator.view().snapshot)}
                assert published.epoch <= coordinator.current.epoch
                compared += 1
                await simulation.clock.sleep(simulation.entropy.uniform(0, 0.1) * index)

        readers = [asyncio.create_task(read(index)) for index in range(3)]
        for number in range(20):
            await coordinator.write(Upserts(a=number, b=number))
            await coordinator.flush(until=Mark.FLUSHED)
        await coordinator.shutdown()
        await asyncio.gather(*readers)
        assert compared > 20

    for seed in range(10):
        simulate(main, seed)


@dataclass(frozen=True)
class Series:
    """A store's state: names to ids, and samples by id."""

    dictionary: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def orphans(self) -> set[int]:
        return set(self.samples) - set(self.dictionary.values())


class SeriesHandler:
    """Gives a new series its id when it is flushed, so that id, entry and samples land in one write."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.states = [Series()]
        self.durable = 0

    def empty(self) -> Samples:
        return Samples()

    async def flush(self, delta: Samples, snapshot: Series, epochs: Epochs) -> Flushed[Series]:
        await self._pass_time()
        dictionary, samples = dict(snapshot.dictionary), dict(snapshot.samples)
        for name, added in delta.series.items():
            number = dictionary.setdefault(name, len(dictionary))
            samples[number] = (*samples.get(number, ()), *added)
        self.states.append(Series(dictionary, samples))
        return Flushed(self.states[-1], partial(self._settle, len(self.states) - 1))

    async def _settle(self, upto: int) -> None:
        await self._pass_time()
        self.durable = max(self.durable, upto)

    async def _pass_time(self) -> None:
        await self._simulation.clock.sleep(self._simulation.entropy.uniform(0, 0.2))


def test_no_id_is_visible_or_durable_before_the_entry_that_explains_it() -> None:
    """Concurrent writers of the same new series: readers and a crash at any moment find no orphan samples."""

    async def main(simulation: Simulation) -> None:
        handler = SeriesHandler(simulation)
        coordinator = Coordinator(handler, Series(), CoordinatorConfig(max_pending_writes=3), clock=simulation.clock)

        async def write(writer: int) -> None:
            for number in range(10):
                await coordinator.write(Samples(**{f"series {number}": writer}))
                await simulation.clock.sleep(simulation.entropy.uniform(0, 0.1))
                survives_a_crash_now = handler.states[handler.durable]
                assert survives_a_crash_now.orphans() == coordinator.current.snapshot.orphans() == set()

        await asyncio.gather(*(write(writer) for writer in range(3)))
        await coordinator.shutdown()
        final = handler.states[handler.durable]
        assert len(final.dictionary) == 10
        assert all(sorted(samples) == [0, 1, 2] for samples in final.samples.values())

    for seed in range(20):
        simulate(main, seed)
