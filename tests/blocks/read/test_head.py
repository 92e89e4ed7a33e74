"""Records: judged by their version first, and a state that is all of one moment though the view moves."""

from __future__ import annotations

import asyncio

import pytest
from tests.blocks.meters import FORMAT, MeterHead, MeterRecord, MeterStore, Write, read_tenant, tenant_prefix

from penstock.blocks import STORE, BlockCache, BlockReader, RecordKind, StateMoved, read_store_record, read_under_head
from penstock.blocks.format.keys import head_key
from penstock.errors import Corrupt, Unavailable, Unsupported
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume


async def followed(volume: MemoryVolume) -> BlockReader:
    return BlockReader(MemoryFollower(volume), FORMAT, BlockCache(1 << 20, store="meters"), moving=True)


def test_a_store_without_a_record_has_none_and_one_of_a_newer_format_is_refused() -> None:
    async def work() -> None:
        volume = MemoryVolume()
        assert await read_store_record(MemoryKeyValue(volume), FORMAT, MeterRecord) is None
        volume.land("keyvalue", [(STORE, FORMAT.encode_record(RecordKind.STORE, MeterRecord(2)))])
        with pytest.raises(Unsupported, match="the store of meters has format 2"):
            await read_store_record(MemoryKeyValue(volume), FORMAT, MeterRecord)

    asyncio.run(work())


def test_a_record_with_fields_of_the_future_is_read() -> None:
    body = b'{"format":1,"flushes":3,"colour":"red"}'
    value = FORMAT.envelope.seal(RecordKind.STORE, body)
    assert FORMAT.decode_record(RecordKind.STORE, value, MeterRecord) == MeterRecord(1, 3)


def test_a_state_that_changes_while_it_is_read_is_read_again() -> None:
    async def work() -> None:
        volume = MemoryVolume()
        store = await MeterStore.over(MemoryKeyValue(volume))
        await store.write(Write("a", ((1, 1, 1),)))
        seen: list[int] = []

        async def read(head: MeterHead) -> int:
            seen.append(head.commit)
            if len(seen) == 1:
                await store.write(Write("a", ((2, 1, 1),)))
            if len(seen) == 2:
                raise StateMoved("a block is gone", "", "")
            return head.commit

        found = await read_under_head(await followed(volume), tenant_prefix("a"), "a", MeterHead, read)
        assert (found, seen) == (2, [1, 2, 2])
        await store.close()

    asyncio.run(work())


def test_what_does_not_fit_together_because_the_state_changed_is_read_again_and_else_raised() -> None:
    """A block of the next moment may name what the head of this one does not know."""

    async def work() -> None:
        volume = MemoryVolume()
        store = await MeterStore.over(MemoryKeyValue(volume))
        await store.write(Write("a", ((1, 1, 1),)))
        seen: list[int] = []

        async def read(head: MeterHead) -> int:
            seen.append(head.commit)
            if len(seen) == 1:
                await store.write(Write("a", ((2, 1, 1),)))
            if len(seen) in (1, 3):
                raise IndexError("out of bounds")
            return head.commit

        blocks = await followed(volume)
        assert await read_under_head(blocks, tenant_prefix("a"), "a", MeterHead, read) == 2
        with pytest.raises(IndexError):
            await read_under_head(blocks, tenant_prefix("a"), "a", MeterHead, read)
        assert seen == [1, 2, 2]
        await store.close()

    asyncio.run(work())


def test_a_state_that_always_changes_is_given_up_with_an_error() -> None:
    async def work() -> None:
        volume = MemoryVolume()
        store = await MeterStore.over(MemoryKeyValue(volume))
        await store.write(Write("a", ((1, 1, 1),)))

        async def read(head: MeterHead) -> int:
            await store.write(Write("a", ((1, 1, head.commit),)))
            return head.commit

        with pytest.raises(Unavailable, match="changes faster"):
            await read_under_head(await followed(volume), tenant_prefix("a"), "a", MeterHead, read)
        await store.close()

    asyncio.run(work())


def test_a_damaged_head_is_named() -> None:
    async def work() -> None:
        volume = MemoryVolume()
        volume.land("keyvalue", [(head_key(tenant_prefix("a")), b"damaged")])
        with pytest.raises(Corrupt, match="the head of a"):
            await read_tenant(await followed(volume), "a")

    asyncio.run(work())
