"""Plans: at most so old, as of an earlier state, by field, and without hiding what cannot be read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from tests.catalog.samples import DAY, HOUR, CountingStore, data_file, run, small_catalog

from penstock.catalog import HeldCatalog, Predicate
from penstock.catalog.split import split_shard
from penstock.errors import Corrupt, InvalidInput, NotFound, Unavailable
from penstock.objects import MemoryStore, Object
from penstock.testing import ManualClock
from penstock.testing.storage.hostile_stores import PassingStore


def test_nothing_is_asked_of_the_store_within_the_staleness_and_then_only_whether_it_changed() -> None:
    async def session() -> None:
        store, clock = CountingStore(), ManualClock()
        writer = await small_catalog(store, clock)
        reader = await small_catalog(store, clock, staleness_seconds=1.0)
        await writer.register([data_file(0)])
        assert len(await reader.plan()) == 1
        await writer.register([data_file(1)])
        store.taken()
        clock.advance(0.9)
        assert len(await reader.plan()) == 1
        assert not store.taken()
        clock.advance(0.2)
        assert len(await reader.plan()) == 2
        assert store.taken() == {"get_if_changed": 1}
        clock.advance(2)
        await reader.plan()
        assert store.taken() == {"get_if_changed": 1}

    run(session())


def test_a_committer_sees_its_own_commits_at_once() -> None:
    async def session() -> None:
        store, clock = CountingStore(), ManualClock()
        catalog = await small_catalog(store, clock, staleness_seconds=100.0)
        await catalog.plan()
        await catalog.register([data_file(0)])
        store.taken()
        assert (await catalog.plan()).paths == [data_file(0).path]
        assert not store.taken()

    run(session())


def test_a_time_range_is_half_open_and_a_file_includes_both_of_its_ends() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(path="a", min_timestamp=HOUR, max_timestamp=2 * HOUR)])
        for spill in (False, True):
            if spill:
                await catalog.spill()
            for start, end, found in [
                (0, HOUR, 0),
                (0, HOUR + 1, 1),
                (2 * HOUR, 3 * HOUR, 1),
                (2 * HOUR + 1, 3 * HOUR, 0),
                (HOUR, HOUR, 0),
                (None, None, 1),
            ]:
                assert len(await catalog.plan(start, end)) == found
        with pytest.raises(InvalidInput):
            await catalog.plan(5, 4)
        await catalog.close()

    run(session())


@pytest.mark.parametrize("spilled", [False, True])
def test_the_first_and_the_last_nanosecond_of_64_bits_are_found(spilled: bool) -> None:
    """Nanoseconds beside a bound that does not fit 64 bits must not be compared as floats."""

    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        edges = (-(2**63), -(2**63) + 1, -1, 0, 2**63 - 2, 2**63 - 1)
        files = [data_file(path=f"at/{at}", start=time, max_timestamp=time) for at, time in enumerate(edges)]
        await catalog.register(files)
        if spilled:
            await catalog.spill()
        assert len(await catalog.plan()) == 6
        for at, time in enumerate(edges):
            assert (await catalog.plan(time, time + 1)).paths == [f"at/{at}"]
            assert len(await catalog.plan(time, None)) == 6 - at
            assert len(await catalog.plan(None, time)) == at
        assert len(await catalog.plan(-(2**70), 2**70)) == 6
        assert len(await catalog.plan(2**70, None)) == len(await catalog.plan(None, -(2**70))) == 0

    run(session())


def test_a_long_file_behind_many_short_ones_is_found() -> None:
    """Rows are sorted by their first time; a file that began long ago and still lasts must not be searched past."""

    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), segment_rows_max=500)
        long = data_file(path="long", min_timestamp=0, max_timestamp=20 * HOUR)
        await catalog.register([long, *(data_file(number) for number in range(200))])
        await catalog.spill()
        assert "long" in (await catalog.plan(19 * HOUR, 20 * HOUR)).paths
        assert (await catalog.plan(20 * HOUR, 21 * HOUR)).paths == ["long"]
        await catalog.close()

    run(session())


def test_shards_tenants_and_tables_are_compared_by_field_and_never_as_a_part_of_a_path() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register(
            [
                data_file(1, path="x/shard-1/a.parquet", shard_id="shard-2"),
                data_file(2, path="x/b.parquet", shard_id="shard-1"),
                data_file(3, path="x/shard-1/c.parquet"),
                data_file(4, path="x/d.parquet", shard_id="shard-11"),
            ]
        )
        for _ in range(2):
            assert [file.path for file in await catalog.files_for_shard("shard-1")] == ["x/b.parquet"]
            assert [file.path for file in await catalog.files_for_shard("shard")] == []
            assert len(await catalog.plan(tenant="acme")) == 4
            assert len(await catalog.plan(tenant="acm")) == 0
            assert len(await catalog.plan(table="cpu", tenant="acme", shard="shard-2")) == 1
            await catalog.spill()
        await catalog.close()

    run(session())


def test_a_plan_gives_the_statistics_of_the_columns_that_were_asked_for() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(0)])
        for _ in range(2):
            assert (await catalog.plan(columns=["none"])).files[0].column_stats == {}
            assert (await catalog.plan(columns=["host"])).files == [data_file(0)]
            plan = await catalog.plan(predicates=[Predicate("host", "=", "h0000000")])
            assert (plan.row_count, plan.size_bytes, plan.total_files) == (1000, 1_000_000, 1)
            assert plan.table.num_rows == 1
            missed = await catalog.plan(predicates=[Predicate("host", ">", "h0000001")])
            assert (len(missed), missed.pruned_files, missed.files) == (0, 1, [])
            await catalog.spill()
        await catalog.close()

    run(session())


def test_candidates_of_a_level_leave_out_what_is_leased() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(0), data_file(1), data_file(2, level=1)])
        await catalog.lease([data_file(0).path], "c")
        assert [file.path for file in await catalog.level_candidates(0)] == [data_file(1).path]
        assert [file.path for file in await catalog.level_candidates(1)] == [data_file(2).path]
        await catalog.close()

    run(session())


def test_an_earlier_state_is_read_exactly_through_spills_merges_archives_and_retention() -> None:
    async def session() -> None:
        clock = ManualClock()
        catalog = await small_catalog(MemoryStore(), clock, inline_files_max=7, segment_rows_max=20)
        states: list[tuple[dict[str, int], list[str]]] = []
        kept: list[tuple[HeldCatalog, list[str]]] = []

        async def note() -> None:
            plan = await catalog.plan()
            states.append((plan.position, sorted(plan.paths)))
            kept.append((await catalog.hold(), sorted(plan.paths)))

        for number in range(40):
            await catalog.register([data_file(number * 50)])
            if number % 3 == 0:
                await note()
            if number % 5 == 4:
                await catalog.delete([data_file(number * 50 - 50).path])
                await note()
        await catalog.archive(before_ns=DAY)
        await note()
        await catalog.expire(DAY)
        await note()
        assert len(states) > 20
        for position, paths in states:
            past = await catalog.as_of(position)
            assert sorted((await past.plan()).paths) == paths
            assert sorted(file.path for file in await past.files()) == paths
            assert sorted((await (await catalog.hold(position)).plan()).paths) == paths
        for held, paths in kept:
            assert sorted((await held.plan()).paths) == paths
        with pytest.raises(NotFound, match="keeps sequences"):
            await catalog.as_of(10_000)
        with pytest.raises(NotFound, match="keeps sequences"):
            await catalog.hold(10_000)
        await catalog.close()

    run(session())


def test_a_missing_segment_is_named_and_the_rest_can_be_read() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store, inline_files_max=100)
        await catalog.register([data_file(number) for number in range(5)])
        await catalog.spill()
        await catalog.register([data_file(number) for number in range(600, 700)])
        await catalog.spill()
        first, last = (await catalog.shard("").fresh()).segments[0], data_file(650)
        await store.delete(f"lake/{first.key}")
        other = await small_catalog(store)
        with pytest.raises(Corrupt, match=first.sha256):
            await other.plan()
        assert len(await other.plan(last.min_timestamp, last.max_timestamp)) == 1
        partial = await other.plan(partial=True)
        assert (len(partial), partial.missing) == (100, (first.key,))
        # A commit that has nothing to do with it goes on.
        await other.register([data_file(900)])
        with pytest.raises(Corrupt, match=first.sha256):
            await other.register([data_file(3)])

    run(session())


def test_a_damaged_segment_is_refused_by_its_checksum() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store)
        await catalog.register([data_file(number) for number in range(5)])
        await catalog.spill()
        [entry] = (await catalog.shard("").fresh()).segments
        body = bytearray((await store.get(f"lake/{entry.key}")).data)
        body[len(body) // 2] ^= 1
        await store.put(f"lake/{entry.key}", bytes(body))
        with pytest.raises(Corrupt, match="SHA-256"):
            await (await small_catalog(store)).plan()

    run(session())


def test_a_catalog_that_was_deleted_and_made_again_is_seen_as_it_is() -> None:
    """Its sequence begins anew, below the one that a reader remembers."""

    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        reader, writer = await small_catalog(store, clock), await small_catalog(store, clock)
        for number in range(5):
            await writer.register([data_file(number)])
        assert len(await reader.plan()) == 5
        await store.delete("lake/metadata/catalog.json")
        await (await small_catalog(store, clock)).register([data_file(7)])
        clock.advance(2)
        assert (await reader.plan()).paths == [data_file(7).path]

    run(session())


def test_a_head_that_was_lost_is_told_and_never_taken_for_a_new_catalog() -> None:
    async def session() -> None:
        store = MemoryStore()
        writer = await small_catalog(store)
        await writer.register([data_file(number) for number in range(20)])
        body = (await store.get("lake/metadata/catalog.json")).data
        await store.delete("lake/metadata/catalog.json")
        late = await small_catalog(store)
        with pytest.raises(Corrupt, match="head of the catalog is missing"):
            await late.plan()
        with pytest.raises(Corrupt, match="head of the catalog is missing"):
            await late.register([data_file(50)])
        await store.put("lake/metadata/catalog.json", body)
        assert len(await late.plan()) == 20

    run(session())


def test_a_plan_that_cannot_read_a_segment_begins_anew_from_the_shards_as_they_are() -> None:
    """The shard was split while its segments could not be read: its own head is empty by then."""

    class Away(PassingStore):
        is_away = False

        async def get(self, key: str) -> Object:
            if self.is_away and "/seg/" in key and "/shards/" not in key:
                await split_shard(await small_catalog(self._inner), "", ["s1", "s2"])
                raise Unavailable("the store is away", "it is being restarted")
            return await super().get(key)

    async def session() -> None:
        store = Away(MemoryStore())
        writer = await small_catalog(store)
        await writer.register([data_file(number, tenant=f"t{number}") for number in range(20)])
        reader = await small_catalog(store, ManualClock(), staleness_seconds=1000.0)
        await reader.shard("").head()
        store.is_away = True
        clock = reader.clock
        assert isinstance(clock, ManualClock)
        planning = asyncio.create_task(reader.plan())
        while not planning.done():
            await clock.run_for(1)
        plan = await planning
        assert len(plan) == 20
        assert set(plan.position) == {"s1", "s2"}

    run(session())


@pytest.mark.parametrize("time", [1.5, "2026-02-06", datetime(2026, 2, 6, tzinfo=UTC)])
def test_a_time_that_is_no_number_of_nanoseconds_is_refused(time: Any) -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        with pytest.raises(InvalidInput, match="nanoseconds"):
            await catalog.plan(time, None)
        with pytest.raises(InvalidInput, match="nanoseconds"):
            await catalog.plan(None, time)
        first: Any = np.int64(0)
        assert len(await catalog.plan(first, first + 5)) == 0

    run(session())
