"""Spilling, archiving, retention and vacuum: rows move, history is kept as long as promised, and growth is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.catalog.samples import DAY, HOUR, CountingStore, data_file, run, small_catalog

from penstock.catalog import Catalog, CatalogConfig
from penstock.catalog.change.relocation import RelocationVoid, apply_relocation, draw_spill
from penstock.catalog.format.head_json import decode_head
from penstock.catalog.inspection import catalog_stats, verify_catalog
from penstock.catalog.vacuum import Vacuum
from penstock.errors import Corrupt, InvalidInput, NotFound
from penstock.objects import MemoryStore
from penstock.observability import names
from penstock.testing import ManualClock, RecordingObserver


def test_a_head_stays_small_and_segments_stay_few_however_many_files_there_are() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), inline_files_max=10, segment_rows_max=100)
        for number in range(600):
            await catalog.register([data_file(number)])
        head = await catalog.shard("").fresh()
        assert len(head.chunks) <= 14
        assert len(head.segments) <= 14
        assert max(entry.rows for entry in head.segments) <= 100
        assert sorted((await catalog.plan()).paths) == [data_file(number).path for number in range(600)]
        assert await verify_catalog(catalog) == []

    run(session())


def test_a_spill_that_races_a_removal_does_not_bring_the_file_back_and_one_that_races_an_insert_loses_nothing() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), inline_files_max=100)
        await catalog.register([data_file(number) for number in range(10)])
        await catalog.spill()
        await catalog.register([data_file(number) for number in range(10, 20)])
        head = await catalog.shard("").fresh()
        blocks = await catalog.shard("").load(head.segments)
        drawn = draw_spill(head, blocks, "metadata", "n", 50)
        assert drawn is not None
        await catalog.delete([data_file(3).path, data_file(13).path])
        await catalog.register([data_file(99)])
        for made in drawn.made:
            await catalog.segments.upload(made.entry, made.body, made.block)
        await catalog.shard("").commit(lambda now, _: apply_relocation(now, drawn, 0), "spill")
        expected = [data_file(number).path for number in [*range(20), 99] if number not in (3, 13)]
        assert sorted((await catalog.plan()).paths) == expected
        # Once more, on a head that has gone on: it is void, and nothing is doubled.
        with pytest.raises(RelocationVoid):
            apply_relocation(await catalog.shard("").fresh(), drawn, 0)

    run(session())


def test_a_reader_goes_on_after_a_concurrent_spill_and_vacuum() -> None:
    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        writer = await small_catalog(store, clock, grace_seconds=0.0)
        reader = await small_catalog(store, clock, staleness_seconds=100.0)
        await writer.register([data_file(number) for number in range(8)])
        await writer.spill()
        await reader.shard("").head()
        await writer.register([data_file(number) for number in range(8, 20)])
        await writer.spill()
        clock.advance(1)
        done = await Vacuum(writer).run()
        assert done.segments
        # The head that the reader has in its cache names a segment that is gone.
        assert len(await reader.plan()) == 20

    run(session())


def test_closed_days_are_archived_and_late_files_join_their_day_with_the_next_archive() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store, inline_files_max=100)
        days = [data_file(number, start=number * 6 * HOUR) for number in range(12)]
        across = data_file(path="across", min_timestamp=DAY - HOUR, max_timestamp=DAY + HOUR)
        await catalog.register([*days, across])
        assert await catalog.archive(before_ns=2 * DAY + HOUR) == 1
        head = await catalog.shard("").fresh()
        assert [(entry.day, entry.rows) for entry in head.archive] == [("1970-01-01", 4), ("1970-01-02", 5)]
        assert len(head.chunks) == 4
        assert all(f"/archive/{entry.day}-{entry.sha256}" in f"/{entry.key}" for entry in head.archive)
        late = data_file(path="late", start=5 * HOUR)
        await catalog.register([late])
        assert "late" in (await catalog.plan(5 * HOUR, 6 * HOUR)).paths
        assert await catalog.archive(before_ns=2 * DAY) == 1
        again = await catalog.shard("").fresh()
        assert [(entry.day, entry.rows) for entry in again.archive] == [("1970-01-01", 5), ("1970-01-02", 5)]
        # A day that nothing came for is not written again.
        assert again.archive[1] == head.archive[1]
        assert await catalog.archive(before_ns=2 * DAY) == 0
        assert len(await catalog.plan()) == 14
        assert await verify_catalog(catalog) == []
        assert (await store.get("lake/metadata/global-index.json")).data

    run(session())


def test_retention_drops_whole_days_without_reading_them_and_no_file_with_a_row_after_the_cutoff() -> None:
    async def session() -> None:
        store = CountingStore()
        catalog = await small_catalog(store, inline_files_max=100)
        await catalog.register([data_file(number, start=number * 6 * HOUR) for number in range(8)])
        edge = data_file(path="edge", min_timestamp=0, max_timestamp=DAY)
        await catalog.register([edge])
        await catalog.archive(before_ns=2 * DAY)
        other = await small_catalog(store)
        store.taken()
        store.calls.clear()
        await other.expire(DAY)
        assert not any("archive" in key for _, key in store.calls)
        left = sorted((await other.plan()).paths)
        assert left == sorted(["edge", *(data_file(number, start=number * 6 * HOUR).path for number in range(4, 8))])
        # Half of a day stays until all of it is past.
        await other.expire(DAY + 12 * HOUR)
        assert sorted((await other.plan()).paths) == left
        await other.expire(10 * DAY)
        assert (await other.plan()).paths == []

    run(session())


def test_retention_takes_single_files_out_of_inline_files_and_segments() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), inline_files_max=100)
        await catalog.register([data_file(number) for number in range(100)])
        await catalog.spill()
        await catalog.register([data_file(number) for number in range(100, 120)])
        await catalog.expire(data_file(110).min_timestamp)
        assert sorted((await catalog.plan()).paths) == [data_file(number).path for number in range(110, 120)]
        await catalog.expire(data_file(111).max_timestamp)
        assert sorted((await catalog.plan()).paths) == [data_file(number).path for number in range(111, 120)]

    run(session())


async def with_data(store: MemoryStore, *numbers: int) -> None:
    for number in numbers:
        await store.put(f"lake/{data_file(number).path}", b"x" * 10)


def test_vacuum_deletes_removed_files_after_the_grace_and_not_before() -> None:
    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        catalog = await small_catalog(store, clock, grace_seconds=100.0)
        await with_data(store, *range(6))
        await catalog.register([data_file(number) for number in range(6)])
        position = (await catalog.plan()).position
        await catalog.delete([data_file(0).path, data_file(1).path])
        clock.advance(99)
        assert (await Vacuum(catalog).run()).files == []
        assert len(await (await catalog.as_of(position)).plan()) == 6
        clock.advance(2)
        dry = await Vacuum(catalog).run(dry_run=True)
        assert dry.files == [data_file(0).path, data_file(1).path]
        assert (await store.head(f"lake/{data_file(0).path}")).size == 10
        assert len(await (await catalog.as_of(position)).plan()) == 6
        done = await Vacuum(catalog).run()
        assert done.files == dry.files
        left = [meta.key async for page in store.list("lake/acme/") for meta in page]
        assert left == [f"lake/{data_file(number).path}" for number in range(2, 6)]
        with pytest.raises(NotFound, match="keeps sequences"):
            await catalog.as_of(position)
        with pytest.raises(NotFound, match="cannot be pinned"):
            await catalog.pin(position, seconds=10)
        assert (await Vacuum(catalog).run()).files == []

    run(session())


def test_a_pin_holds_files_from_vacuum_until_it_is_left_or_expires() -> None:
    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        catalog = await small_catalog(store, clock, grace_seconds=1.0)
        await with_data(store, 0, 1)
        await catalog.register([data_file(0), data_file(1)])
        position = (await catalog.plan()).position
        pin = await catalog.pin(position, seconds=50)
        await catalog.delete([data_file(0).path])
        clock.advance(20)
        assert (await Vacuum(catalog).run()).files == []
        async with pin:
            assert len(await (await catalog.as_of(position)).plan()) == 2
        assert (await Vacuum(catalog).run()).files == [data_file(0).path]
        await catalog.pin((await catalog.plan()).position, seconds=50)
        await catalog.delete([data_file(1).path])
        clock.advance(51)
        assert (await Vacuum(catalog).run()).files == [data_file(1).path]

    run(session())


@pytest.mark.parametrize("how", ["spilled", "buried", "dropped"])
def test_vacuum_finds_removed_files_wherever_their_entries_went(how: str) -> None:
    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        catalog = await small_catalog(store, clock, grace_seconds=10.0, inline_files_max=4 if how == "buried" else 100)
        await with_data(store, *range(20))
        await catalog.register([data_file(number) for number in range(20)])
        if how == "dropped":
            await catalog.archive(before_ns=DAY)
            await catalog.delete([data_file(0).path])
            await catalog.expire(DAY)
        else:
            if how == "spilled":
                await catalog.spill()
            await catalog.delete([data_file(number).path for number in range(20)])
        head = await catalog.shard("").fresh()
        assert bool(head.graves) == (how == "buried")
        assert any(one.has_files for one in head.dropped) == (how == "dropped")
        clock.advance(11)
        done = await Vacuum(catalog).run()
        assert sorted(done.files) == [data_file(number).path for number in range(20)]
        assert [meta async for page in store.list("lake/acme/") for meta in page] == []
        after = await catalog.shard("").fresh()
        assert (after.tombstones, after.graves, after.dropped) == ((), (), ())

    run(session())


def test_a_vacuum_that_died_after_ending_history_is_finished_by_the_next() -> None:
    async def session() -> None:
        from penstock.catalog.change.burial import condemn

        store, clock = MemoryStore(), ManualClock()
        catalog = await small_catalog(store, clock, grace_seconds=1.0)
        await with_data(store, 0)
        await catalog.register([data_file(0)])
        await catalog.delete([data_file(0).path])
        clock.advance(2)
        await catalog.shard("").commit(lambda head, _: condemn(head, clock.now_ms(), 1000), "vacuum")
        assert (await Vacuum(catalog).run()).files == [data_file(0).path]
        assert [meta async for page in store.list("lake/acme/") for meta in page] == []

    run(session())


def test_unreferenced_objects_go_only_past_the_age_floor_and_only_what_no_head_knows() -> None:
    async def session() -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        catalog = await small_catalog(store, clock, age_floor_seconds=1000.0)
        await with_data(store, *range(15), 50)
        await catalog.register([data_file(number) for number in range(15)])
        await store.put("lake/metadata/seg/orphan.arrow", b"x")
        await store.put("lake/metadata/readme.txt", b"x")
        await store.put("elsewhere/metadata/seg/orphan.arrow", b"x")
        assert (await Vacuum(catalog).run(data_prefix="")).orphans == []
        clock.advance(1001)
        await store.put("lake/metadata/seg/young.arrow", b"x")
        dry = await Vacuum(catalog).run(dry_run=True, data_prefix="acme/")
        done = await Vacuum(catalog).run(data_prefix="acme/")
        assert done.orphans == dry.orphans == ["metadata/seg/orphan.arrow", data_file(50).path]
        keys = [meta.key async for page in store.list("") for meta in page]
        assert "lake/metadata/readme.txt" in keys
        assert "lake/metadata/seg/young.arrow" in keys
        assert "elsewhere/metadata/seg/orphan.arrow" in keys
        assert len(await catalog.plan()) == 15

    run(session())


def test_no_data_file_is_vacuumed_while_a_segment_that_may_list_it_cannot_be_read() -> None:
    async def session() -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        catalog = await small_catalog(store, clock, age_floor_seconds=1000.0)
        await with_data(store, *range(5))
        await catalog.register([data_file(number) for number in range(5)])
        await catalog.spill()
        [entry] = (await catalog.shard("").fresh()).segments
        await store.delete(f"lake/{entry.key}")
        clock.advance(5000)
        with pytest.raises(Corrupt, match="no data file is vacuumed"):
            await Vacuum(await small_catalog(store, clock, age_floor_seconds=1000.0)).run(data_prefix="acme/")

    run(session())


def test_a_relocation_whose_objects_have_grown_old_is_not_committed() -> None:
    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        catalog = await small_catalog(store, clock, age_floor_seconds=200.0)
        await catalog.register([data_file(number) for number in range(5)])
        upload = catalog.segments.upload

        async def slow(*arguments: object) -> None:
            await upload(*arguments)  # type: ignore[arg-type]
            clock.advance(101)

        catalog.segments.upload = slow  # type: ignore[assignment, method-assign]
        assert not await catalog.spill()
        assert len((await catalog.shard("").fresh()).chunks) == 5

    run(session())


def test_growth_is_told_by_metrics_figures_and_a_warning_that_says_what_to_do() -> None:
    async def session() -> None:
        observer = RecordingObserver()
        config = CatalogConfig(format=2, head_bytes_warn=5000)
        catalog = await Catalog.open(MemoryStore(), "lake", config, observer=observer)
        await catalog.register([data_file(0)])
        assert observer.events(names.CATALOG_GROWING) == []
        for number in range(1, 40):
            await catalog.register([data_file(number)])
        [warning] = observer.events(names.CATALOG_GROWING)
        assert warning["advice"] == ["move to format 3"]
        assert (observer.gauged(names.CATALOG_HEAD_BYTES, shard="") or 0) > 5000
        assert observer.gauged(names.CATALOG_INLINE_FILES, shard="") == 40
        assert len(observer.observed(names.CATALOG_COMMIT_SECONDS, change="register")) == 40
        assert observer.counted(names.REGISTER_COMMITS, register="catalog") == 40
        [stats] = (await catalog_stats(catalog)).shards
        assert (stats.files, stats.rows, stats.advice) == (40, 40_000, ["move to format 3"])

    run(session())


def test_a_contended_shard_is_advised_to_be_split() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalogs = [await small_catalog(store, conflict_rate_warn=0.01) for _ in range(5)]
        await asyncio.gather(
            *(one.register([data_file(number * 5 + at)]) for number in range(5) for at, one in enumerate(catalogs))
        )
        told = [stats.advice for one in catalogs for stats in (await catalog_stats(one)).shards]
        assert any("split the shard" in advice for one in told for advice in one)

    run(session())


def test_verify_names_what_does_not_hold() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store)
        await with_data(store, *range(4))
        await catalog.register([data_file(number, size_bytes=10) for number in range(5)])
        await catalog.spill()
        await catalog.register([data_file(number, size_bytes=11 if number == 6 else 10) for number in range(5, 8)])
        await with_data(store, 6, 7)
        faults = {finding.place: finding.fault for finding in await verify_catalog(catalog, data=True)}
        assert set(faults) == {data_file(number).path for number in (4, 5, 6)}
        assert "11" in faults[data_file(6).path]
        await store.put("lake/metadata/catalog.json", b"{")
        [finding] = await verify_catalog(await small_catalog(store))
        assert finding.place == "lake/metadata/catalog.json"
        await store.put("lake/metadata/shards.json", b"{")
        with pytest.raises(Corrupt):
            await small_catalog(store)

    run(session())


@pytest.mark.parametrize(
    "setting",
    [
        {"format": 4},
        {"legacy": "maybe"},
        {"inline_files_max": 0},
        {"staleness_seconds": -1.0},
        {"staleness_seconds": float("nan")},
        {"conflict_rate_warn": 0.0},
        {"commit_deadline_seconds": 30.0, "age_floor_seconds": 60.0},
        {"segment_rows_max": 1.5},
    ],
)
def test_a_setting_that_cannot_act_is_refused(setting: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        CatalogConfig(**setting)  # type: ignore[arg-type]


def test_every_body_that_was_written_can_be_read() -> None:
    async def session() -> None:
        from penstock.testing import WitnessStore

        store = WitnessStore(MemoryStore())
        catalog = await small_catalog(store, inline_files_max=3)
        for number in range(30):
            await catalog.register([data_file(number)])
            if number % 4 == 3:
                await catalog.delete([data_file(number - 1).path])
        bodies = [body for body in store.history("lake/metadata/catalog.json") if body]
        assert [decode_head(body).seq for body in bodies] == list(range(1, len(bodies) + 1))
        assert len(set(bodies)) == len(bodies)

    run(session())


def test_a_change_lands_however_often_its_segments_are_rewritten_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its turn and its deadline; sixteen rounds once were the end of it, and fifty busy writers need more."""

    async def session() -> None:
        store = MemoryStore()
        busy = await small_catalog(store, inline_files_max=1000, segment_rows_max=10_000)
        await busy.register([data_file(number) for number in range(0, 2000, 2)])
        await busy.spill()
        catalog = await small_catalog(store, inline_files_max=1000)
        shard, rounds = catalog.shard(""), iter(range(40))
        load = shard.load

        async def overtaken(entries: Any) -> Any:
            found = await load(entries)
            number = next(rounds, None)
            if number is not None:
                await busy.register([data_file(499 - 2 * number), data_file(503 + 2 * number)])
                await busy.spill()
            return found

        monkeypatch.setattr(shard, "load", overtaken)
        await catalog.register([data_file(501)])
        assert next(rounds, None) is None
        assert data_file(501).path in (await catalog.plan()).paths

    run(session())
