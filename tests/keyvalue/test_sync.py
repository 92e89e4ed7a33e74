"""Waiters share syncs, and none is told of a sync that began before it asked."""

from __future__ import annotations

import asyncio

import pytest

from penstock.keyvalue.sync import SyncGroup
from penstock.testing import simulate


class StepSync:
    """A sync that ends when told, and counts."""

    def __init__(self) -> None:
        self.started = 0
        self._gates: list[asyncio.Future[None]] = []

    async def __call__(self) -> None:
        self.started += 1
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        await gate

    def finish(self, error: Exception | None = None) -> None:
        gate = self._gates.pop(0)
        gate.set_result(None) if error is None else gate.set_exception(error)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_those_who_ask_together_share_one_sync() -> None:
    async def scenario() -> None:
        sync = StepSync()
        group = SyncGroup(sync)
        waits = [asyncio.ensure_future(group.wait()) for _ in range(50)]
        await settle()
        assert sync.started == 1
        sync.finish()
        await asyncio.gather(*waits)
        assert sync.started == 1

    asyncio.run(scenario())


def test_one_who_asks_during_a_sync_waits_for_the_next() -> None:
    """The sync under way may have passed over its write already."""

    async def scenario() -> None:
        sync = StepSync()
        group = SyncGroup(sync)
        first = asyncio.ensure_future(group.wait())
        await settle()
        late = [asyncio.ensure_future(group.wait()) for _ in range(10)]
        await settle()
        sync.finish()
        await first
        await settle()
        assert not any(wait.done() for wait in late)
        assert sync.started == 2
        sync.finish()
        await asyncio.gather(*late)

    asyncio.run(scenario())


def test_a_failed_sync_reaches_all_who_shared_it_and_no_other() -> None:
    async def scenario() -> None:
        sync = StepSync()
        group = SyncGroup(sync)
        waits = [asyncio.ensure_future(group.wait()) for _ in range(3)]
        await settle()
        later = asyncio.ensure_future(group.wait())
        await settle()
        sync.finish(OSError("the disk is gone"))
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["the disk is gone"] * 3
        await settle()
        sync.finish()
        await later

    asyncio.run(scenario())


def test_a_waiter_that_gives_up_leaves_the_sync_to_the_others() -> None:
    async def scenario() -> None:
        sync = StepSync()
        group = SyncGroup(sync)
        impatient, patient = asyncio.ensure_future(group.wait()), asyncio.ensure_future(group.wait())
        await settle()
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        sync.finish()
        await patient

    asyncio.run(scenario())


@pytest.mark.simulation(seeds=50)
def test_in_any_order_of_events_a_wait_is_covered_by_a_sync_that_began_after_it(seed: int) -> None:
    async def scenario() -> None:
        clock = 0
        last_completed_start = -1

        async def sync() -> None:
            nonlocal clock, last_completed_start
            clock += 1
            began = clock
            await asyncio.sleep(0.002)
            last_completed_start = began

        group = SyncGroup(sync)

        async def waiter(number: int) -> None:
            nonlocal clock
            await asyncio.sleep(number % 7 / 1000)
            clock += 1
            asked = clock
            await group.wait()
            assert last_completed_start > asked

        await asyncio.gather(*(waiter(number) for number in range(20)))

    simulate(lambda _: scenario(), seed)
