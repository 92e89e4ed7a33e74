"""Snapshots: open as long as somebody reads them, closed soon after, and one reading of what many ask for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.blocks.meters import MeterStore, Write, readings_in

from penstock.errors import Closed
from penstock.keyvalue import MemoryKeyValue, MemoryVolume


async def opened(**options: Any) -> MeterStore:
    return await MeterStore.over(MemoryKeyValue(MemoryVolume()), **options)


def test_a_held_snapshot_answers_of_its_moment_however_much_is_written_meanwhile() -> None:
    async def work() -> None:
        store = await opened()
        await store.write(Write("a", ((1, 1, 0),)))
        with store.snapshot.held() as held:
            for value in range(1, 6):
                await store.write(Write("a", ((1, 1, value),)))
            assert await readings_in(held, "a") == {(1, 1): 0}
        assert await store.readings("a") == {(1, 1): 5}
        await store.close()

    asyncio.run(work())


def test_snapshots_that_nobody_reads_are_closed_though_an_older_one_is_held() -> None:
    async def work() -> None:
        store = await opened()
        await store.write(Write("a", ((1, 1, 0),)))
        with store.snapshot.held() as held:
            unread = []
            for value in range(1, 20):
                await store.write(Write("a", ((1, 1, value),)))
                unread.append(store.snapshot)
            assert len(store.handler._open) <= 4
            with pytest.raises(Closed):
                await unread[0].reader.get(b"\x00")
            assert await held.reader.get(b"\x00") is not None
        for value in range(3):
            await store.write(Write("a", ((1, 1, value),)))
        assert len(store.handler._open) <= 3
        with pytest.raises(Closed):
            await held.reader.get(b"\x00")
        await store.close()

    asyncio.run(work())


def test_a_snapshot_keeps_the_states_used_last_and_reads_the_others_again() -> None:
    async def work() -> None:
        store = await opened(states_max=2)
        for tenant in "abc":
            await store.write(Write(tenant, ((1, 1, ord(tenant)),)))
        assert list(store.snapshot.states) == ["b", "c"]
        assert await store.readings("a") == {(1, 1): ord("a")}
        await store.close()

    asyncio.run(work())


def test_a_state_that_many_ask_for_at_once_is_read_once_and_shared() -> None:
    async def work() -> None:
        store = await opened()
        await store.write(Write("a", ((1, 1, 1),)))
        snapshot = store.snapshot
        snapshot.states.clear()
        reads, whole = 0, snapshot.read

        async def counted(blocks, name):  # type: ignore[no-untyped-def]
            nonlocal reads
            reads += 1
            await asyncio.sleep(0)
            return await whole(blocks, name)

        snapshot.read = counted
        states = await asyncio.gather(*(snapshot.state("a") for _ in range(10)))
        assert reads == 1
        assert all(state is states[0] for state in states)
        assert await snapshot.state("nobody") is None
        await store.close()

    asyncio.run(work())
