"""A flush: one write batch, the same again when it is repeated, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.blocks.meters import FORMAT, READINGS, MeterStore, Write, readings_in, tenant_prefix

from penstock.blocks import STORE, read_positions
from penstock.blocks.format.keys import position_key
from penstock.coordinator import Epochs
from penstock.errors import InvalidInput, OutcomeUnknown, Unavailable
from penstock.keyvalue import MemoryKeyValue, MemoryVolume, WriteBatch
from penstock.keyvalue.memory import MemoryWriteHandle


class ForgetfulKeyValue(MemoryKeyValue):
    """Applies writes and then says that it did not, as often as told. Keeps all batches."""

    def __init__(self, volume: MemoryVolume) -> None:
        super().__init__(volume)
        self.batches: list[dict[bytes, bytes | None]] = []
        self.denied = 0

    async def write(self, batch: WriteBatch) -> MemoryWriteHandle:
        self.batches.append(dict(batch.operations()))
        handle = await super().write(batch)
        if self.denied:
            self.denied -= 1
            raise OutcomeUnknown("the reply was lost", "the write landed", "")
        return handle


def with_store(work: Callable[[ForgetfulKeyValue, MeterStore], Awaitable[None]]) -> None:
    async def run() -> None:
        keyvalue = ForgetfulKeyValue(MemoryVolume())
        store = await MeterStore.over(keyvalue)
        await work(keyvalue, store)
        await store.close()

    asyncio.run(run())


def test_data_position_and_record_lie_in_one_batch() -> None:
    async def work(keyvalue: ForgetfulKeyValue, store: MeterStore) -> None:
        await store.write(Write("a", ((1, 1, 5),), "queue", 7), Write("b", ((1, 1, 6),), "other", 2))
        (batch,) = keyvalue.batches
        assert {STORE, position_key("queue"), position_key("other")} < batch.keys()
        for tenant in ("a", "b"):
            assert len([key for key in batch if key.startswith(tenant_prefix(tenant))]) == 3

    with_store(work)


def test_a_repeat_after_a_lost_reply_sends_the_very_same_batch() -> None:
    async def work(keyvalue: ForgetfulKeyValue, store: MeterStore) -> None:
        await store.write(Write("a", ((1, 1, 5),), "queue", 1))
        keyvalue.denied = 2
        await store.write(Write("a", ((1, 2, 6), (2, 1, 7)), "queue", 2))
        assert keyvalue.batches[1] == keyvalue.batches[2] == keyvalue.batches[3]
        assert store.planner.plans == 2
        assert await store.readings("a") == {(1, 1): 5, (1, 2): 6, (2, 1): 7}

    with_store(work)


def test_a_repeat_after_the_second_batch_was_lost_makes_neither_anew() -> None:
    async def work(keyvalue: ForgetfulKeyValue, store: MeterStore) -> None:
        await store.write(Write("a", ((1, 1, 5),)))
        store.planner.tidied = {"a"}

        async def lose_the_second(batch: WriteBatch) -> MemoryWriteHandle:
            if len(keyvalue.batches) == 2:
                keyvalue.denied = 1
            return await ForgetfulKeyValue.write(keyvalue, batch)

        keyvalue.write = lose_the_second  # type: ignore[method-assign]
        await store.write(Write("a", ((1, 2, 6),)))
        data, tidy, data_again, tidy_again = keyvalue.batches[1:]
        assert (data, tidy) == (data_again, tidy_again)
        state = store.snapshot.states["a"]
        assert len(state.directory(READINGS).fragments) == 1
        assert await store.readings("a") == {(1, 1): 5, (1, 2): 6}

    with_store(work)


def test_a_flush_that_landed_and_is_not_durable_yet_writes_no_data_again() -> None:
    async def work(keyvalue: ForgetfulKeyValue, store: MeterStore) -> None:
        delta, first = store.planner.empty(), store.snapshot
        delta.writes.append(Write("a", ((1, 1, 5),)))
        epochs = _epochs(1)
        flushed = await store.handler.flush(delta, first, epochs)
        again = await store.handler.flush(delta, flushed.snapshot, epochs)
        assert again.snapshot is flushed.snapshot
        assert list(keyvalue.batches[1]) == [STORE]
        await again.durable()
        assert store.planner.plans == 1

    with_store(work)


def _epochs(last: int) -> Epochs:
    return Epochs(1, last)


def test_what_a_source_sends_again_after_a_crash_is_taken_once() -> None:
    async def work() -> None:
        volume = MemoryVolume()
        keyvalue = MemoryKeyValue(volume)
        store = await MeterStore.over(keyvalue)
        await store.write(Write("a", ((1, 1, 5),), "queue", 1))
        keyvalue.crash()
        again = MemoryKeyValue(volume)
        store = await MeterStore.over(again)
        assert (await read_positions(again, FORMAT)).of("queue") == 1
        await store.write(Write("a", ((1, 1, 99),), "queue", 1), Write("a", ((1, 2, 6),), "queue", 2))
        assert await store.readings("a") == {(1, 1): 5, (1, 2): 6}
        await store.close()

    asyncio.run(work())


def test_hours_are_forgotten_in_one_write_and_their_keys_with_them() -> None:
    async def work(keyvalue: ForgetfulKeyValue, store: MeterStore) -> None:
        await store.write(*(Write("a", tuple((hour, meter, hour) for meter in range(20))) for hour in range(6)))
        await store.write(Write("a", ((9, 1, 1),), forget_before=5))
        deleted = [key for key, value in keyvalue.batches[1].items() if value is None]
        assert len(deleted) == 5
        assert {hour for hour, _ in await store.readings("a")} == {5, 9}

    with_store(work)


def test_a_tenant_that_leaves_is_gone_whole_in_one_write_and_the_others_stay() -> None:
    async def work(keyvalue: ForgetfulKeyValue, store: MeterStore) -> None:
        await store.write(Write("a", ((1, 1, 5), (2, 1, 5))), Write("ab", ((1, 1, 6),)))
        await store.write(Write("a", leave=True))
        left = [key async for entries in keyvalue.scan_prefix(tenant_prefix("a")) for key, _ in entries]
        assert left == []
        assert await store.readings("a") == {}
        assert await store.readings("ab") == {(1, 1): 6}
        await store.write(Write("a", ((3, 3, 3),)))
        assert await store.readings("a") == {(3, 3): 3}

    with_store(work)


def test_a_plan_that_fails_writes_nothing_and_the_next_one_does() -> None:
    async def work(keyvalue: ForgetfulKeyValue, store: MeterStore) -> None:
        with pytest.raises(InvalidInput, match="tenant"):
            await store.write(Write("", ((1, 1, 1),)))
        assert keyvalue.batches == []
        store.coordinator.abort()

    async def run() -> None:
        keyvalue = ForgetfulKeyValue(MemoryVolume())
        await work(keyvalue, await MeterStore.over(keyvalue))

    asyncio.run(run())


def test_readers_see_a_flush_whole_before_anybody_is_told_of_it() -> None:
    async def work(keyvalue: ForgetfulKeyValue, store: MeterStore) -> None:
        seen: list[dict[tuple[int, int], int]] = []
        store.handler.landed = lambda state: seen.append(dict.fromkeys([(len(state.directories), 0)], 1))
        with store.snapshot.held() as before:
            await store.write(Write("a", ((1, 1, 5), (2, 1, 6))))
            assert await readings_in(before, "a") == {}
        assert await store.readings("a") == {(1, 1): 5, (2, 1): 6}
        assert len(seen) == 1

    with_store(work)


def test_a_store_that_stays_away_keeps_what_was_planned_for_it() -> None:
    async def work(keyvalue: ForgetfulKeyValue, store: MeterStore) -> None:
        whole = ForgetfulKeyValue.write
        calls = 0

        async def away_twice(batch: WriteBatch) -> MemoryWriteHandle:
            nonlocal calls
            calls += 1
            if calls <= 2:
                raise Unavailable("the store is away", "", "")
            return await whole(keyvalue, batch)

        keyvalue.write = away_twice  # type: ignore[method-assign]
        await store.write(Write("a", ((1, 1, 5),)))
        assert (store.planner.plans, calls) == (1, 3)

    with_store(work)
