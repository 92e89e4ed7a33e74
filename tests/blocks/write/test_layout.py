"""Which bucket arriving rows go to, whatever has become of its neighbours, and when buckets are cut."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.blocks.meters import FORMAT, READINGS, MeterHead, ReadingBlock, TenantState

from penstock.blocks import FRAGMENT, BlockCache, BlockDraft, BlockReader, Directory, file, fill, stack
from penstock.blocks.write import layout
from penstock.keyvalue import MemoryKeyValue, MemoryVolume, WriteBatch


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four readings."""
    monkeypatch.setattr(layout, "BUCKET_BYTES", 64)
    monkeypatch.setattr(layout, "_BUCKET_BYTES_MAX", 128)


def block(keys: Any, value: int = 0) -> ReadingBlock:
    return ReadingBlock.of(list(keys), [value] * len(list(keys)))


class Shelved:
    """A shelf that is written to again and again."""

    def __init__(self) -> None:
        self.keyvalue = MemoryKeyValue(MemoryVolume())
        self.state = TenantState("t")

    async def blocks(self) -> BlockReader:
        return BlockReader(await self.keyvalue.snapshot(), FORMAT, BlockCache(1 << 20, store="meters"))

    async def file(self, rows: ReadingBlock) -> None:
        draft, blocks = BlockDraft(FORMAT, self.state), await self.blocks()
        await file(draft, blocks, READINGS, rows)
        await self.commit(draft, blocks)

    async def stack(self, rows: ReadingBlock) -> None:
        draft = BlockDraft(FORMAT, self.state)
        stack(draft, READINGS, rows, rows.keys)
        await self.commit(draft, await self.blocks())

    async def commit(self, draft: BlockDraft[TenantState], blocks: BlockReader) -> None:
        await draft.fold(blocks)
        done = draft.finish(self.state.head)
        batch = WriteBatch()
        fill(batch, done.operations)
        await self.keyvalue.write(batch)
        self.state = TenantState("t", done.head, done.directories)
        assert isinstance(done.head, MeterHead)

    async def found(self) -> dict[int, int]:
        lows = self.state.directory(READINGS).low_list
        stored = await (await self.blocks()).contents(self.state, READINGS, lows, ReadingBlock)
        found: dict[int, int] = {}
        for held in stored.values():
            found |= dict(zip(held.keys.tolist(), held.values.tolist(), strict=True))
        return found


def test_the_first_bucket_owns_what_lies_before_it() -> None:
    directory = Directory(np.array([(10, 1, 1, 1), (20, 2, 1, 1)], FRAGMENT), np.zeros(1, np.uint64))
    assert directory.owners(np.array([0, 9, 10, 19, 20, 2**64 - 1], np.uint64)).tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.usefixtures("small_buckets")
@given(st.lists(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=20), max_size=8))
def test_filed_rows_are_what_a_dictionary_would_hold_and_every_bucket_owns_its_own(writes: list[list[int]]) -> None:
    async def work() -> None:
        shelved, held = Shelved(), dict[int, int]()
        for value, keys in enumerate(writes):
            await shelved.file(block(keys, value))
            held |= dict.fromkeys(keys, value)
        assert await shelved.found() == held
        directory = shelved.state.directory(READINGS)
        blocks = await shelved.blocks()
        for place, low in enumerate(directory.low_list):
            (stored,) = (await blocks.contents(shelved.state, READINGS, [low], ReadingBlock)).values()
            assert set(directory.owners(stored.keys).tolist()) == {place}

    asyncio.run(work())


@pytest.mark.usefixtures("small_buckets")
def test_a_bucket_that_grows_too_large_is_cut_into_several_with_room_to_grow() -> None:
    async def work() -> None:
        shelved = Shelved()
        for first in range(0, 64, 4):
            await shelved.file(block(range(first, first + 4)))
        rows = shelved.state.directory(READINGS).rows
        assert len(rows) > 4
        assert rows.max() <= 10
        assert sorted(await shelved.found()) == list(range(64))

    asyncio.run(work())


@pytest.mark.usefixtures("small_buckets")
def test_buckets_that_grow_alike_are_cut_over_several_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_CUT_BYTES_MIN", 1)
    monkeypatch.setattr(layout, "_BUCKET_BYTES_WAITING_MAX", 384)
    monkeypatch.setattr(layout, "_BUCKET_BYTES_CUT_MAX", 512)

    async def work() -> None:
        shelved, rows = Shelved(), np.random.default_rng(1).integers(0, 1 << 64, 4_000, np.uint64)
        await shelved.file(block(rows[:1_000]))
        before, cuts = len(shelved.state.directory(READINGS).low_list), []
        for start in range(1_000, len(rows), 100):
            await shelved.file(block(rows[start : start + 100]))
            directory = shelved.state.directory(READINGS)
            cuts.append(len(directory.low_list) - before)
            before += cuts[-1]
        assert max(cuts) < before / 3
        assert max(int(directory.bucket(low)["bytes"].sum()) for low in directory.low_list) <= 512
        assert len(await shelved.found()) == len(rows)

    asyncio.run(work())


@pytest.mark.usefixtures("small_buckets")
def test_stacked_rows_fill_the_last_bucket_and_then_begin_others() -> None:
    async def work() -> None:
        shelved = Shelved()
        await shelved.stack(block(range(3)))
        await shelved.stack(block(range(3, 13)))
        assert shelved.state.directory(READINGS).low_list == [0, 4, 8, 12]
        assert sorted(await shelved.found()) == list(range(13))

    asyncio.run(work())


def test_rows_that_are_none_change_nothing() -> None:
    async def work() -> None:
        shelved = Shelved()
        await shelved.stack(block([]))
        await shelved.file(block([]))
        assert shelved.state.directories == {}

    asyncio.run(work())


@given(st.lists(st.integers(0, 5), min_size=1))
def test_rows_are_shared_out_whole_and_in_their_order(places: list[int]) -> None:
    content = block(range(len(places)))
    shares = {place: part.keys.tolist() for place, part in layout._shares(content, np.array(places))}
    assert shares == {
        place: [row for row, owner in enumerate(places) if owner == place] for place in sorted(set(places))
    }


def test_neighbours_are_joined_while_they_fit_into_one_bucket() -> None:
    half = layout.BUCKET_BYTES // 2
    assert layout.neighbours([1, 2, 3, 4], np.array([half, half, half, 10])) == [[1, 2], [3, 4]]
    assert layout.neighbours([], np.array([], np.int64)) == []
