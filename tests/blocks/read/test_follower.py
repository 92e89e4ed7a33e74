"""Followers: late by a bound, of one moment, and never wrong when the writer moves on under them."""

from __future__ import annotations

import asyncio

import pytest
from tests.blocks.meters import FORMAT, DurableTenants, MeterStore, TenantState, Write, readings_of

from penstock.blocks import BlockCache, BlockReader, FollowedStates, StateMoved
from penstock.errors import NotFound, Unavailable
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.testing import ManualClock


class CountingTenants(DurableTenants):
    """Counts how often a state was read whole."""

    def __init__(self) -> None:
        self.reads = 0

    async def read(self, blocks: BlockReader, name: str) -> TenantState:
        self.reads += 1
        return await super().read(blocks, name)


class Pair:
    """A writer and a follower on one volume, whose view is always the newest."""

    def __init__(self, store: MeterStore, volume: MemoryVolume, staleness: float = 2.0, states_max: int = 8) -> None:
        self.store = store
        self.clock = ManualClock()
        self.tenants = CountingTenants()
        # A cache too small for any block: everything is read from the store.
        blocks = BlockReader(MemoryFollower(volume), FORMAT, BlockCache(1, store="meters"), moving=True)
        self.states: FollowedStates[str, TenantState] = FollowedStates(
            blocks, self.tenants, staleness_seconds=staleness, states_max=states_max, clock=self.clock
        )

    @classmethod
    async def opened(cls, **options: int) -> Pair:
        volume = MemoryVolume()
        return cls(await MeterStore.over(MemoryKeyValue(volume)), volume, **options)

    async def readings(self, tenant: str) -> dict[tuple[int, int], int]:
        return await self.states.read(tenant, readings_of)


def test_a_state_is_used_until_it_may_be_too_old_and_is_looked_at_before_it_is_read_again() -> None:
    async def work() -> None:
        pair = await Pair.opened()
        await pair.store.write(Write("a", ((1, 1, 1),)))
        first = await pair.states.state("a")
        await pair.store.write(Write("a", ((2, 1, 2),)))
        assert await pair.states.state("a") is first
        pair.clock.advance(1.0)
        second = await pair.states.state("a")
        assert second.head.commit == 2
        pair.clock.advance(1.0)
        # Nothing was written: a look at the head is enough.
        assert await pair.states.state("a") is second
        assert pair.tenants.reads == 2
        await pair.store.close()

    asyncio.run(work())


def test_a_refresh_shows_what_was_durable_before_it() -> None:
    async def work() -> None:
        pair = await Pair.opened()
        await pair.store.write(Write("a", ((1, 1, 1),)))
        await pair.states.state("a")
        await pair.store.write(Write("a", ((1, 1, 2),)))
        pair.states.refresh()
        assert await pair.readings("a") == {(1, 1): 2}
        await pair.store.close()

    asyncio.run(work())


def test_work_begins_again_on_the_newer_state_when_a_block_is_gone() -> None:
    async def work() -> None:
        pair = await Pair.opened()
        await pair.store.write(Write("a", ((1, 1, 1),)))
        seen: list[int] = []

        async def slowly(blocks: BlockReader, state: TenantState) -> dict[tuple[int, int], int]:
            seen.append(state.head.commit)
            if len(seen) == 1:
                await pair.store.write(Write("a", ((3, 1, 3),), forget_before=2))
            return await readings_of(blocks, state)

        assert await pair.states.read("a", slowly) == {(3, 1): 3}
        assert seen == [1, 2]
        await pair.store.close()

    asyncio.run(work())


def test_a_writer_that_is_always_faster_makes_an_error_and_no_endless_reading() -> None:
    async def work() -> None:
        pair = await Pair.opened()
        await pair.store.write(Write("a", ((0, 1, 1),)))
        hours = iter(range(1, 100))

        async def never(blocks: BlockReader, state: TenantState) -> dict[tuple[int, int], int]:
            hour = next(hours)
            await pair.store.write(Write("a", ((hour, 1, 1),), forget_before=hour))
            return await readings_of(blocks, state)

        with pytest.raises(Unavailable, match="8 times in a row"):
            await pair.states.read("a", never)
        await pair.store.close()

    asyncio.run(work())


def test_a_held_moment_says_that_it_is_over_and_is_not_given_out_again() -> None:
    async def work() -> None:
        pair = await Pair.opened()
        await pair.store.write(Write("a", ((1, 1, 1),)))
        with pytest.raises(StateMoved):
            async with pair.states.held("a") as state:
                await pair.store.write(Write("a", ((3, 1, 3),), forget_before=2))
                await readings_of(pair.states.blocks, state)
        assert (await pair.states.state("a")).head.commit == 2
        await pair.store.close()

    asyncio.run(work())


def test_many_who_ask_at_once_look_once() -> None:
    async def work() -> None:
        pair = await Pair.opened()
        await pair.store.write(Write("a", ((1, 1, 1),)))
        states = await asyncio.gather(*(pair.states.state("a") for _ in range(20)))
        assert all(state is states[0] for state in states)
        assert pair.tenants.reads == 1
        await pair.store.close()

    asyncio.run(work())


def test_no_more_states_are_kept_than_allowed() -> None:
    async def work() -> None:
        pair = await Pair.opened(states_max=2)
        for tenant in "abc":
            await pair.store.write(Write(tenant, ((1, 1, 1),)))
            await pair.states.state(tenant)
            pair.clock.advance(0.1)
        await pair.states.state("a")
        assert pair.tenants.reads == 4
        await pair.states.state("c")
        assert pair.tenants.reads == 4
        await pair.store.close()

    asyncio.run(work())


def test_a_name_that_nothing_durable_was_written_for_is_not_found() -> None:
    async def work() -> None:
        pair = await Pair.opened()
        with pytest.raises(NotFound):
            await pair.states.state("nobody")
        await pair.store.close()

    asyncio.run(work())
