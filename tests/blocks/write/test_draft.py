"""Drafts: changes that end as one list of writes, and small fragments that become one."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
from tests.blocks.meters import FORMAT, READINGS, MeterHead, ReadingBlock, TenantState, key_of

from penstock.blocks import BlockCache, BlockDraft, BlockReader, Directory, fill, fragments_prefix
from penstock.blocks.format.keys import head_key
from penstock.blocks.format.tiers import FRAGMENT_BYTES_MAX
from penstock.blocks.write import draft as module
from penstock.keyvalue import MemoryKeyValue, MemoryVolume, WriteBatch


def block(count: int, value: int = 0, first: int = 0) -> ReadingBlock:
    return ReadingBlock(np.arange(first, first + count, dtype=np.uint64), np.full(count, value, np.int64))


def test_a_draft_that_is_not_finished_leaves_its_base_alone_and_writes_nothing() -> None:
    base = TenantState("a")
    draft = BlockDraft(FORMAT, base)
    draft.append(READINGS, 0, block(3))
    assert base == TenantState("a")


def test_a_finished_draft_has_the_next_commit_and_a_serial_for_every_fragment() -> None:
    draft = BlockDraft(FORMAT, TenantState("a", MeterHead(4, 9)))
    draft.append(READINGS, 0, block(3))
    draft.append(READINGS, key_of(1, 0), block(3, first=key_of(1, 0)))
    done = draft.finish(MeterHead(4, 9))
    assert done.head == MeterHead(5, 11)
    assert done.directories[READINGS].fragments["serial"].tolist() == [9, 10]
    assert head_key(TenantState("a").prefix) in dict(done.operations)


def test_what_replaces_a_bucket_drops_its_fragments_and_what_was_about_to_be_added() -> None:
    known = Directory(np.array([(0, 1, 3, 50), (0, 2, 3, 50)], [*_DTYPE]), np.zeros(1, np.uint64))
    draft = BlockDraft(FORMAT, TenantState("a", MeterHead(1, 3), {READINGS: known}))
    draft.append(READINGS, 0, block(1))
    draft.replace(READINGS, 0, None)
    assert draft.arriving(READINGS, 0) == []
    done = draft.finish(MeterHead(1, 3))
    assert len(done.directories[READINGS]) == 0
    assert [value for key, value in done.operations if key.startswith(fragments_prefix(draft.base.prefix))] == [
        None
    ] * 2


def test_a_block_larger_than_a_value_should_be_is_written_in_pieces() -> None:
    draft = BlockDraft(FORMAT, TenantState("a"))
    draft.append(READINGS, 0, block(3 * FRAGMENT_BYTES_MAX // 16))
    pieces = draft.finish(MeterHead()).directories[READINGS].fragments
    assert len(pieces) == 3
    assert int(pieces["bytes"].max()) < FRAGMENT_BYTES_MAX * 1.1
    assert int(pieces["rows"].sum()) == 3 * FRAGMENT_BYTES_MAX // 16


def test_blocks_that_are_packed_are_measured_by_what_they_will_take_in_the_store() -> None:
    packed = dataclasses.replace(FORMAT, packing={READINGS.family: 8})
    draft = BlockDraft(packed, TenantState("a"))
    draft.append(READINGS, 0, block(3 * FRAGMENT_BYTES_MAX // 16))
    assert len(draft.finish(MeterHead()).directories[READINGS].fragments) == 1


def test_small_fragments_fold_so_that_a_bucket_never_has_many() -> None:
    async def work() -> None:
        keyvalue = MemoryKeyValue(MemoryVolume())
        state, most = TenantState("a"), 0
        for value in range(100):
            blocks = BlockReader(await keyvalue.snapshot(), FORMAT, BlockCache(1 << 20, store="meters"))
            draft = BlockDraft(FORMAT, state)
            draft.append(READINGS, 0, block(3, value, first=value))
            await draft.fold(blocks)
            done = draft.finish(state.head)
            batch = WriteBatch()
            fill(batch, done.operations)
            await keyvalue.write(batch)
            state = TenantState("a", done.head, done.directories)
            most = max(most, len(state.directory(READINGS).fragments))
        assert most <= 8
        (stored,) = (await blocks.over(keyvalue).contents(state, READINGS, [0], ReadingBlock)).values()
        assert stored.keys.tolist() == list(range(102))
        # The youngest write of a reading wins, however often it was folded.
        assert stored.values.tolist() == [min(key, 99) for key in range(102)]
        lying = [key async for entries in keyvalue.scan_prefix(fragments_prefix(state.prefix)) for key, _ in entries]
        assert len(lying) == len(state.directory(READINGS).fragments)

    asyncio.run(work())


def test_buckets_that_are_due_alike_fold_over_several_commits_and_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FOLD_BYTES_MIN", 0)
    monkeypatch.setattr(module, "GROUP_BYTES", 256)

    async def work() -> None:
        keyvalue, state = MemoryKeyValue(MemoryVolume()), TenantState("a")
        lows, most = [100 * number for number in range(20)], 0
        for value in range(40):
            blocks = BlockReader(await keyvalue.snapshot(), FORMAT, BlockCache(1 << 20, store="meters"))
            draft = BlockDraft(FORMAT, state)
            for low in lows:
                draft.append(READINGS, low, block(3, value, first=low + value))
            await draft.fold(blocks)
            arriving = 20 * FORMAT.stored_bytes(READINGS.family, block(3))
            *folded, last = [0, *(int(folds["bytes"].sum()) for folds in draft._folds.values())]
            assert last >= 0
            assert sum(folded) < arriving
            done = draft.finish(state.head)
            batch = WriteBatch()
            fill(batch, done.operations)
            await keyvalue.write(batch)
            state = TenantState("a", done.head, done.directories)
            most = max(most, *(len(state.directory(READINGS).bucket(low)) for low in lows))
        assert most <= 20
        stored = await blocks.over(keyvalue).contents(state, READINGS, lows, ReadingBlock)
        for low, held in stored.items():
            assert held.keys.tolist() == list(range(low, low + 42))
            assert held.values.tolist() == [min(key, 39) for key in range(42)]

    asyncio.run(work())


_DTYPE = [("low", "<u8"), ("serial", "<u8"), ("rows", "<u4"), ("bytes", "<u4")]
