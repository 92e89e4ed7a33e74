"""Repair: whatever value is damaged, the store is sound and takes writes afterwards, and what was lost is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import QUIET, found, opened
from tests.vector.test_aside import break_value, records
from tests.vector.test_damage import lived_in

from penstock.blocks import STORE
from penstock.blocks.format.keys import head_key, position_key
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.testing import ManualClock
from penstock.vector import CollectionName, DistanceMetric, RepairReport, VectorConfig, attribute
from penstock.vector.format.keys import COLLECTION_DATA, Family, collection_key, collection_prefix
from penstock.vector.upkeep.repair import Statements, repair_keyvalue

Make = Callable[..., pa.Table]
NAME = CollectionName("t", "i", "m")
_CONFIG = VectorConfig(list_rows=8, threads=1, coordinator=QUIET)
_DECIDED = Statements(metric=DistanceMetric.L2, keep_doubtful=True)
_VISIBLE = {f"r{n}" for n in range(1, 59)}


def run(work: Callable[[MemoryVolume], Awaitable[None]]) -> None:
    async def main() -> None:
        await work(MemoryVolume())

    asyncio.run(main())


def contents(volume: MemoryVolume) -> dict[bytes, bytes]:
    return dict(volume.table("keyvalue").entries(b"", None, reverse=False))


def restore(volume: MemoryVolume, before: dict[bytes, bytes]) -> None:
    volume.land("keyvalue", [*((key, None) for key in contents(volume)), *before.items()])


async def lived_on(volume: MemoryVolume, rows: Make) -> None:
    """As `lived_in`, with a row that was deleted and still lies in its blocks."""
    await lived_in(volume, rows)
    async with await opened(volume, _CONFIG) as store:
        await (await store.collection("t", "i", "m")).delete(["r59"], durable=True)


async def repaired(volume: MemoryVolume, statements: Statements = _DECIDED) -> list[RepairReport]:
    keyvalue = MemoryKeyValue(volume)
    try:
        return await repair_keyvalue(keyvalue, statements, ManualClock())
    finally:
        await keyvalue.close()


async def check_whole(volume: MemoryVolume, rows: Make, context: str) -> set[str]:
    """Nothing is wrong any more, and the collection is written to; returns the rows that are left of it."""
    assert await repaired(volume) == [], context
    async with await opened(volume, _CONFIG) as store:
        assert [report.problems for report in await store.verify()] == [[], []], context
        collection = await store.collection("t", "i", "m")
        left = set(await found(collection))
        await collection.flip("d", "v", durable=True)
        await collection.upsert(rows(["r5", "fresh"], [[50, 50], [51, 51]], ["a fresh word"] * 2), durable=True)
        await collection.delete(["r6"], durable=True)
        await store.compact()
        assert (await collection.verify()).problems == [], context
        assert await found(collection, (51, 51), 2) == ["fresh", "r5"], context
        assert "r6" not in await found(collection), context
    return left


# What a damaged value of each kind costs at most; everything that is not named here is brought back.
_COSTS = {
    "names": "rows whose ids, or vectors and texts, are gone",
    "texts": "some texts",
    "vectors": "the exact vectors",
    "column 1": "some values of attribute 'n'",
    "deleted": "which rows were deleted",
    "documents": "which rows belong to some documents",
    "head": "the names of 1 attributes",
}


@pytest.mark.slow
def test_whatever_value_is_damaged_the_store_is_sound_afterwards_and_losses_are_told(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_on(volume, rows)
        before = contents(volume)
        for name, (key, value) in records(volume).items():
            break_value(volume, key, value)
            (report,) = await repaired(volume)
            assert report.what == "t/i/m", name
            assert report.repaired, name
            kind = name.split(",")[0]
            costs = _COSTS.get(kind)
            assert bool(report.losses) == (costs is not None), (name, report)
            assert costs is None or any(costs in loss for loss in report.losses), (name, report)
            left = await check_whole(volume, rows, name)
            if kind == "names":
                assert left < _VISIBLE
            else:
                assert left - {"r59"} == _VISIBLE, name
                assert ("r59" in left) == (kind == "deleted"), name
            restore(volume, before)

    run(work)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_several_damaged_values_are_repaired_together(rows: Make, seed: int) -> None:
    """Any two kinds, so that what one is made of may be damaged too."""

    async def work(volume: MemoryVolume) -> None:
        await lived_on(volume, rows)
        before = contents(volume)
        pairs = list(combinations(records(volume).items(), 2))
        for place in np.random.default_rng(seed).permutation(len(pairs))[:12].tolist():
            damaged = pairs[place]
            for _, (key, value) in damaged:
                break_value(volume, key, value)
            context = " and ".join(name for name, _ in damaged)
            assert all(report.repaired for report in await repaired(volume)), context
            assert await check_whole(volume, rows, context) <= _VISIBLE | {"r59"}, context
            restore(volume, before)

    run(work)


@pytest.mark.slow
def test_blocks_that_are_gone_or_cut_short_are_repaired_as_damaged_ones_are(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_on(volume, rows)
        before = contents(volume)
        for name, (key, value) in records(volume).items():
            for broken in (None, value[: len(value) // 2]):
                if broken is None and name == "record":
                    continue
                volume.land("keyvalue", [(key, broken)])
                assert all(report.repaired for report in await repaired(volume)), name
                await check_whole(volume, rows, name)
                restore(volume, before)

    run(work)


def test_answers_of_what_was_brought_back_are_those_of_before(rows: Make) -> None:
    """Lists, centres, dictionary, words, hidden rows and every directory lost at once: all of it follows from rows."""

    async def ask(volume: MemoryVolume) -> list[Any]:
        async with await opened(volume, _CONFIG) as store:
            collection = await store.collection("t", "i", "m")
            near = await collection.search([[0.1, 0.2], [1.0, -1.0]], 60, probes=1000)
            texts = await collection.search(text="word1 word2", k=60)
            picked = await collection.search([[0.0, 0.0]], 60, filter=attribute("n") < 20, columns=["text"])
            return [near.to_pylist(), texts.to_pylist(), picked.to_pylist(), (await collection.get(["r7"])).to_pylist()]

    async def work(volume: MemoryVolume) -> None:
        await lived_on(volume, rows)
        expected = await ask(volume)
        kinds = ("the directory", "postings", "centroids", "dictionary", "terms", "column,", "hidden")
        for name, (key, value) in records(volume).items():
            if name.startswith(kinds):
                break_value(volume, key, value)
        (report,) = await repaired(volume, Statements())
        assert report.losses == ()
        assert await ask(volume) == expected

    run(work)


def test_what_only_one_value_held_is_left_until_somebody_states_it(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_on(volume, rows)
        volume.land("keyvalue", [(position_key("s"), b"damaged"), (collection_key(NAME), b"damaged")])
        before = contents(volume)
        position, record = await repaired(volume, Statements())
        assert "--position s=NUMBER" in position.undecided
        assert "--metric" in record.undecided
        assert contents(volume) == before
        reports = await repaired(volume, Statements({"s": 41}, DistanceMetric.L2))
        assert [report.repaired for report in reports] == [True, True]
        async with await opened(volume, _CONFIG) as store:
            assert store.position("s") == 41
            collection = await store.collection("t", "i", "m")
            assert set(await found(collection)) == _VISIBLE
            await collection.upsert(rows(["a"], [[1, 1]]), source="s", position=42, durable=True)
        volume.land("keyvalue", [(position_key("s"), b"damaged")])
        (report,) = await repaired(volume, Statements({"s": None}))
        assert report.losses == ("the position: the source begins anew",)

    run(work)


def test_rows_that_may_have_been_deleted_come_back_only_if_somebody_says_so(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_on(volume, rows)
        key, value = next(pair for name, pair in records(volume).items() if name.startswith("deleted, "))
        break_value(volume, key, value)
        before = contents(volume)
        (report,) = await repaired(volume, Statements())
        assert "59 rows may live, and how many do is 58" in report.undecided
        assert contents(volume) == before
        restore(volume, before | {key: value})
        async with await opened(volume, _CONFIG) as store:
            # Swept out, nothing of a dead row is left: there is nothing to doubt.
            await (await store.collection("t", "i", "m")).upsert(rows(["r1"], [[1, 1]]), durable=True)
            await store.compact()
        for key, value in contents(volume).items():
            if key.startswith(collection_prefix(0)) and key[5] == 2 and key[6] == Family.DELETED:
                break_value(volume, key, value)
        (report,) = await repaired(volume, Statements())
        assert (report.repaired, report.losses) == (True, ())
        assert await check_whole(volume, rows, "swept") == _VISIBLE

    run(work)


def test_records_that_cannot_be_told_apart_are_left_and_their_data_goes_with_the_last_of_them(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        await lived_on(volume, rows)
        other = CollectionName("t", "i", "untouched")
        before = contents(volume)
        volume.land("keyvalue", [(collection_key(name), b"damaged") for name in (NAME, other)])
        reports = await repaired(volume)
        assert [report.repaired for report in reports] == [False, False]
        record = before[collection_key(other)]
        async with await opened(volume, _CONFIG) as store:
            assert await store.drop(NAME)
        volume.land("keyvalue", [(collection_key(other), record)])
        (report,) = await repaired(volume)
        assert report.what == "data of no collection"
        assert not [key for key in contents(volume) if key.startswith(collection_prefix(0))]
        async with await opened(volume, _CONFIG) as store:
            assert [report.problems for report in await store.verify()] == [[]]
        restore(volume, before)
        volume.land("keyvalue", [(collection_key(name), b"damaged") for name in (NAME, other)])
        async with await opened(volume, _CONFIG) as store:
            assert await store.drop(NAME)
            assert await store.drop(other)
            assert await store.collections() == []
        assert not [key for key in contents(volume) if key.startswith(COLLECTION_DATA)]
        assert await repaired(volume) == []

    run(work)


def test_a_sound_store_and_an_empty_one_need_no_repair(rows: Make) -> None:
    async def work(volume: MemoryVolume) -> None:
        assert await repaired(volume) == []
        await lived_on(volume, rows)
        before = contents(volume)
        assert await repaired(volume) == []
        assert contents(volume) == before
        volume.land("keyvalue", [(STORE, b"damaged"), (head_key(collection_prefix(1)), None)])
        assert [report.what for report in await repaired(volume)] == ["the store's record", "t/i/untouched"]
        await check_whole(volume, rows, "the store's record and a head")

    run(work)
