"""Reading buckets: whole, merged in their order, kept in memory, and with damage named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.blocks.meters import FORMAT, READINGS, MeterStore, ReadingBlock, TenantState, Write, key_of, readings_of

from penstock.blocks import Address, BlockCache, BlockReader, Damage, StateMoved, fragment_key
from penstock.errors import Corrupt
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.observability import names
from penstock.testing import RecordingObserver

HOUR = key_of(1, 0)


def with_two_fragments(work: Callable[[MemoryVolume, MeterStore, TenantState], Awaitable[None]]) -> None:
    """A tenant whose first hour has two fragments, the second of which replaces a reading of the first."""

    async def run() -> None:
        volume = MemoryVolume()
        store = await MeterStore.over(MemoryKeyValue(volume))
        await store.write(Write("a", ((1, 1, 1), (1, 2, 2), (2, 1, 3))))
        await store.write(Write("a", ((1, 1, 9),)))
        state = await store.snapshot.state("a")
        assert state is not None
        await work(volume, store, state)
        store.coordinator.abort()

    asyncio.run(run())


def reader_of(volume: MemoryVolume, *, moving: bool = False, observer: RecordingObserver | None = None) -> BlockReader:
    cache = BlockCache(1 << 20, store="meters", observer=observer or RecordingObserver())
    view = MemoryKeyValue(volume)
    return BlockReader(view, FORMAT, cache, moving=moving, observer=observer or RecordingObserver())


def serials(state: TenantState, low: int = HOUR) -> list[int]:
    return [int(serial) for serial in state.directory(READINGS).bucket(low)["serial"]]


def test_a_bucket_is_its_fragments_oldest_first() -> None:
    async def work(volume: MemoryVolume, store: MeterStore, state: TenantState) -> None:
        assert len(serials(state)) == 2
        assert await readings_of(reader_of(volume), state) == {(1, 1): 9, (1, 2): 2, (2, 1): 3}

    with_two_fragments(work)


def test_what_was_read_once_is_held_and_what_is_read_is_counted() -> None:
    async def work(volume: MemoryVolume, store: MeterStore, state: TenantState) -> None:
        observer = RecordingObserver()
        blocks = reader_of(volume, observer=observer)
        lows = state.directory(READINGS).low_list
        assert blocks.held(state, READINGS, lows, ReadingBlock) is None
        stored = await blocks.contents(state, READINGS, lows, ReadingBlock)
        held = blocks.held(state, READINGS, lows, ReadingBlock)
        assert held is not None
        assert all(block is stored[low] for low, block in zip(lows, held, strict=True))
        assert await blocks.contents(state, READINGS, lows, ReadingBlock) == stored
        assert observer.counted(names.BLOCKS_CACHE_READS, store="meters", outcome="miss") == 2
        assert observer.counted(names.BLOCKS_CACHE_READS, store="meters", outcome="hit") == 2

    with_two_fragments(work)


def test_buckets_come_in_the_order_asked_for_and_unknown_ones_not_at_all() -> None:
    async def work(volume: MemoryVolume, store: MeterStore, state: TenantState) -> None:
        lows = [key_of(7, 0), *reversed(state.directory(READINGS).low_list)]
        stored = await reader_of(volume).contents(state, READINGS, lows, ReadingBlock)
        assert list(stored) == lows[1:]

    with_two_fragments(work)


@pytest.mark.parametrize("value", [b"damaged", None])
def test_a_damaged_or_missing_fragment_is_named_and_the_rest_is_answered(value: bytes | None) -> None:
    async def work(volume: MemoryVolume, store: MeterStore, state: TenantState) -> None:
        address = Address(READINGS, HOUR, serials(state)[0])
        volume.land("keyvalue", [(fragment_key(state.prefix, address), value)])
        observer = RecordingObserver()
        blocks, damage = reader_of(volume, observer=observer), Damage()
        stored = await blocks.contents(state, READINGS, state.directory(READINGS).low_list, ReadingBlock, damage)
        assert {low: len(block) for low, block in stored.items()} == {HOUR: 1, key_of(2, 0): 1}
        assert damage.blocks == [f"{address} of a"]
        assert observer.events(names.BLOCKS_CORRUPT)[0]["store"] == "meters"
        # A bucket that lacks something is read again: it may have been restored.
        assert blocks.held(state, READINGS, [HOUR], ReadingBlock) is None
        with pytest.raises(Corrupt, match="fragment"):
            await blocks.contents(state, READINGS, [HOUR], ReadingBlock)

    with_two_fragments(work)


def test_for_a_follower_a_missing_fragment_means_that_its_state_is_old() -> None:
    async def work(volume: MemoryVolume, store: MeterStore, state: TenantState) -> None:
        address = Address(READINGS, HOUR, serials(state)[0])
        volume.land("keyvalue", [(fragment_key(state.prefix, address), None)])
        with pytest.raises(StateMoved):
            await reader_of(volume, moving=True).contents(state, READINGS, [HOUR], ReadingBlock, Damage())

    with_two_fragments(work)


def test_a_block_that_its_checksum_vouches_for_and_that_makes_no_sense_is_damage_too() -> None:
    async def work(volume: MemoryVolume, store: MeterStore, state: TenantState) -> None:
        address = Address(READINGS, HOUR, serials(state)[0])
        forged = FORMAT.envelope.seal(READINGS.family, b"\x09\x00\x00\x00")
        volume.land("keyvalue", [(fragment_key(state.prefix, address), forged)])
        with pytest.raises(Corrupt, match="cut short"):
            await reader_of(volume).contents(state, READINGS, [HOUR], ReadingBlock)

    with_two_fragments(work)


def test_equal_reads_are_made_once_and_each_form_is_kept_apart() -> None:
    async def work(volume: MemoryVolume, store: MeterStore, state: TenantState) -> None:
        blocks = reader_of(volume)
        first, second = await asyncio.gather(
            blocks.contents(state, READINGS, [HOUR], ReadingBlock),
            blocks.contents(state, READINGS, [HOUR], ReadingBlock),
        )
        assert first[HOUR] is second[HOUR]
        sums = await blocks.built(state, READINGS, [HOUR], ReadingBlock, Total.of, Total)
        assert sums[HOUR].total == 11
        assert (await blocks.built(state, READINGS, [HOUR], ReadingBlock, Total.of, Total))[HOUR] is sums[HOUR]

    with_two_fragments(work)


class Total:
    size_bytes = 8

    def __init__(self, total: int) -> None:
        self.total = total

    @classmethod
    def of(cls, parts):  # type: ignore[no-untyped-def]
        return cls(int(ReadingBlock.merge(parts).values.sum()))
