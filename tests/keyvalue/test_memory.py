"""The double's own knobs: what a test of another room relies on when it makes the medium misbehave."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import Closed, Fenced, OutcomeUnknown, Unavailable
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume, WriteBatch
from penstock.testing import ManualClock, Simulation, simulate


async def settle() -> None:
    """Let every timer that is due fire."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_held_durability_keeps_waiters_waiting_until_released() -> None:
    async def scenario() -> None:
        volume = MemoryVolume()
        store = MemoryKeyValue(volume)
        volume.hold()
        handle = await store.write(WriteBatch().put(b"key", b"value"))
        wait = asyncio.ensure_future(handle.durable())
        await settle()
        assert not wait.done()
        assert await store.get(b"key") == b"value"
        assert await MemoryFollower(volume).get(b"key") is None
        volume.release()
        await wait
        assert await MemoryFollower(volume).get(b"key") == b"value"

    asyncio.run(scenario())


def test_a_write_becomes_durable_without_being_waited_for() -> None:
    async def scenario() -> None:
        volume = MemoryVolume()
        store = MemoryKeyValue(volume)
        await store.write(WriteBatch().put(b"key", b"value"))
        assert await MemoryFollower(volume).get(b"key") is None
        await settle()
        assert await MemoryFollower(volume).get(b"key") == b"value"

    asyncio.run(scenario())


def test_failing_durability_reaches_every_waiter_and_heals() -> None:
    async def scenario() -> None:
        volume = MemoryVolume()
        store = MemoryKeyValue(volume)
        volume.fail(Unavailable("the medium is away"))
        handles = [await store.write(WriteBatch().put(b"k%d" % i, b"v")) for i in range(3)]
        outcomes = await asyncio.gather(*(handle.durable() for handle in handles), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
        assert await MemoryFollower(volume).get(b"k0") is None
        volume.heal()
        await asyncio.gather(*(handle.durable() for handle in handles))
        assert await MemoryFollower(volume).get(b"k2") == b"v"

    asyncio.run(scenario())


def test_a_lost_reply_fails_the_waiter_of_a_write_that_landed() -> None:
    async def scenario() -> None:
        volume = MemoryVolume()
        store = MemoryKeyValue(volume)
        volume.fail(OutcomeUnknown("the reply was lost"), landed=True)
        handle = await store.write(WriteBatch().put(b"key", b"value"))
        with pytest.raises(OutcomeUnknown):
            await handle.durable()
        assert await MemoryKeyValue(volume).get(b"key") == b"value"

    asyncio.run(scenario())


def test_a_crash_loses_exactly_what_was_not_durable() -> None:
    async def scenario() -> None:
        volume = MemoryVolume()
        store = MemoryKeyValue(volume)
        await (await store.write(WriteBatch().put(b"durable", b"1"))).durable()
        volume.hold()
        handle = await store.write(WriteBatch().put(b"pending", b"1"))
        wait = asyncio.ensure_future(handle.durable())
        await settle()
        store.crash()
        volume.release()
        with pytest.raises(OutcomeUnknown, match="crashed"):
            await wait
        reopened = MemoryKeyValue(volume)
        assert await reopened.get_many([b"durable", b"pending"]) == [b"1", None]

    asyncio.run(scenario())


def test_a_fenced_writer_that_was_held_back_never_lands() -> None:
    async def scenario() -> None:
        volume = MemoryVolume()
        first = MemoryKeyValue(volume)
        volume.hold()
        handle = await first.write(WriteBatch().put(b"key", b"first"))
        second = MemoryKeyValue(volume)
        volume.release()
        with pytest.raises(Fenced):
            await handle.durable()
        assert await second.get(b"key") is None

    asyncio.run(scenario())


def test_paths_of_one_volume_are_separate_stores() -> None:
    async def scenario() -> None:
        volume = MemoryVolume()
        left, right = MemoryKeyValue(volume, "left"), MemoryKeyValue(volume, "right")
        await (await left.write(WriteBatch().put(b"key", b"left"))).durable()
        await (await right.write(WriteBatch().put(b"key", b"right"))).durable()
        assert (await left.get(b"key"), await right.get(b"key")) == (b"left", b"right")

    asyncio.run(scenario())


def test_a_follower_looks_again_only_when_its_view_is_old() -> None:
    async def scenario() -> None:
        volume, clock = MemoryVolume(), ManualClock()
        store = MemoryKeyValue(volume)
        follower = MemoryFollower(volume, poll_interval_ms=100, clock=clock)
        await (await store.write(WriteBatch().put(b"key", b"value"))).durable()
        clock.advance(0.0625)
        assert await follower.get(b"key") is None
        clock.advance(0.0625)
        assert await follower.get(b"key") == b"value"

    asyncio.run(scenario())


def test_a_close_that_cannot_persist_says_so_and_still_closes() -> None:
    async def scenario() -> None:
        volume = MemoryVolume()
        store = MemoryKeyValue(volume)
        volume.fail(Unavailable("the medium is away"))
        await store.write(WriteBatch().put(b"key", b"value"))
        with pytest.raises(Unavailable):
            await store.close()
        with pytest.raises(Closed):
            await store.get(b"key")

    asyncio.run(scenario())


def test_a_store_used_from_one_loop_after_another_still_becomes_durable() -> None:
    store = MemoryKeyValue()
    handle = asyncio.run(store.write(WriteBatch().put(b"key", b"value")))
    asyncio.run(handle.durable())


@pytest.mark.simulation(seeds=100)
def test_a_process_that_crashes_at_any_step_leaves_what_was_durable_and_no_gap(seed: int) -> None:
    async def main(simulation: Simulation) -> None:
        volume, durable = MemoryVolume(), list[int]()

        async def write() -> None:
            store = MemoryKeyValue(volume, flush_interval_ms=5)
            for number in range(1, 100):
                handle = await store.write(WriteBatch().put(b"%03d" % number, b"x").put(b"newest", b"%d" % number))
                if number % 3 == 0:
                    await handle.durable()
                    durable.append(number)
                await simulation.clock.sleep(0.001)

        writer = simulation.start("writer", write())
        await simulation.clock.sleep(simulation.entropy.uniform(0, 0.2))
        simulation.crash(writer)
        store = MemoryKeyValue(volume)
        newest = int(await store.get(b"newest") or 0)
        assert newest >= max(durable, default=0)
        present = [key async for block in store.scan(b"0", b"9") for key, _ in block]
        assert present == [b"%03d" % number for number in range(1, newest + 1)]

    simulate(main, seed)


@pytest.mark.simulation(seeds=100)
def test_of_writers_that_take_over_from_each_other_each_keeps_what_it_was_told_is_durable(seed: int) -> None:
    async def main(simulation: Simulation) -> None:
        volume, told = MemoryVolume(), list[bytes]()

        async def take_over(name: int) -> None:
            await simulation.clock.sleep(simulation.entropy.uniform(0, 0.05))
            store = MemoryKeyValue(volume, flush_interval_ms=2)
            try:
                for number in range(20):
                    key = b"%d/%d" % (name, number)
                    await (await store.write(WriteBatch().put(key, b"x"))).durable()
                    told.append(key)
            except Fenced:
                return

        await asyncio.gather(*(take_over(name) for name in range(5)))
        survivor = MemoryKeyValue(volume)
        assert await survivor.get_many(told) == [b"x"] * len(told)

    simulate(main, seed)
