"""Registering, deleting and swapping files: one conditional write each, once, and never half."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.catalog.samples import HOUR, CountingStore, data_file, run, small_catalog

from penstock.catalog import Catalog, CatalogConfig, ColumnStats, DataFile, column_stats
from penstock.catalog.format.head import time_index_of
from penstock.catalog.format.head_json import decode_head, stored_time_index
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Conflict, InvalidInput, OutcomeUnknown
from penstock.objects import MemoryStore
from penstock.testing import (
    Fate,
    FaultPlan,
    FaultyStore,
    ManualClock,
    SeededEntropy,
    Simulation,
    WitnessStore,
    simulate,
)

HEAD = "lake/metadata/catalog.json"


def merged(*sources: DataFile, name: str = "merged") -> DataFile:
    return data_file(
        path=f"acme/cpu/{name}.parquet",
        start=min(file.min_timestamp for file in sources),
        max_timestamp=max(file.max_timestamp for file in sources),
        row_count=sum(file.row_count for file in sources),
        level=1,
    )


def test_a_commit_is_one_get_and_one_put_and_no_get_while_the_cache_is_current() -> None:
    async def session() -> None:
        store = CountingStore()
        async with await small_catalog(store) as catalog:
            await catalog.register([data_file(0)])
            store.taken()
            await catalog.register([data_file(1)])
            await catalog.delete([data_file(0).path])
            assert store.taken() == {"put_if": 2}
        async with await small_catalog(store) as second:
            store.taken()
            await second.register([data_file(2)])
            assert store.taken() == {"get": 1, "put_if": 1}

    run(session())


def test_files_and_time_index_change_in_one_object() -> None:
    """Single-object atomicity: every body that was ever written holds each file with all of its hours."""

    async def session() -> None:
        store = WitnessStore(MemoryStore())
        catalog = await small_catalog(store, inline_files_max=1000)
        files = [data_file(number, max_timestamp=number * HOUR // 60 + 2 * HOUR) for number in range(20)]
        for file in files:
            await catalog.register([file])
        lease = await catalog.lease([file.path for file in files[:5]], "c")
        await catalog.complete_compaction(files[:5], merged(*files[:5]), lease)
        await catalog.delete([files[9].path])
        bodies = [body for body in store.history(HEAD) if body]
        assert len(bodies) == 23
        for body in bodies:
            expected = {hour: list(paths) for hour, paths in time_index_of(decode_head(body).chunks).items()}
            found = stored_time_index(body)
            assert {hour: sorted(paths) for hour, paths in found.items()} == {
                hour: sorted(paths) for hour, paths in expected.items()
            }
        await catalog.close()

    run(session())


def test_a_crash_between_load_and_save_leaves_the_catalog_as_it_was() -> None:
    async def session() -> None:
        inner = MemoryStore()
        catalog = await small_catalog(inner)
        await catalog.register([data_file(0)])
        before = (await inner.get(HEAD)).data
        faulty = FaultyStore(inner, FaultPlan.none(), entropy=SeededEntropy(1), clock=SYSTEM_CLOCK)
        other = await small_catalog(faulty)
        # The request never leaves: the caller dies while it waits.
        faulty.script("put_if", Fate.REQUEST_LOST)
        dying = asyncio.create_task(other.register([data_file(1)]))
        for _ in range(100):
            await asyncio.sleep(0)
        assert faulty.fates[Fate.REQUEST_LOST] == 1
        dying.cancel()
        await asyncio.wait((dying,))
        assert (await inner.get(HEAD)).data == before
        assert (await (await small_catalog(inner)).plan()).paths == [data_file(0).path]
        await catalog.close()
        await other.close()

    run(session())


@pytest.mark.slow
def test_fifty_writers_register_ten_files_each_and_none_is_lost() -> None:
    async def session() -> None:
        store = MemoryStore()
        # A busy machine may take its time: what is held here is that nothing is lost.
        catalogs = [await small_catalog(store, inline_files_max=100, commit_deadline_seconds=600.0) for _ in range(50)]

        async def write(number: int) -> None:
            for turn in range(10):
                await catalogs[number].register([data_file(number * 10 + turn)])

        await asyncio.gather(*(write(number) for number in range(50)))
        plan = await (await small_catalog(store)).plan()
        assert sorted(plan.paths) == sorted(data_file(number).path for number in range(500))
        for catalog in catalogs:
            await catalog.close()

    run(session())


def test_concurrent_compactions_of_different_files_both_land() -> None:
    async def session() -> None:
        store = MemoryStore()
        one, two = await small_catalog(store), await small_catalog(store)
        files = [data_file(number) for number in range(8)]
        await one.register(files)
        groups = [files[:4], files[4:]]
        leases = [
            await catalog.lease([file.path for file in group], "c")
            for catalog, group in zip((one, two), groups, strict=True)
        ]
        await asyncio.gather(
            one.complete_compaction(groups[0], merged(*groups[0], name="a"), leases[0]),
            two.complete_compaction(groups[1], merged(*groups[1], name="b"), leases[1]),
            one.register([data_file(99)]),
        )
        plan = await (await small_catalog(store)).plan()
        assert sorted(plan.paths) == sorted(["acme/cpu/a.parquet", "acme/cpu/b.parquet", data_file(99).path])

    run(session())


@pytest.mark.parametrize("spilled", [False, True])
def test_registering_a_path_again_changes_nothing(spilled: bool) -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        first = await catalog.register([data_file(0), data_file(0), data_file(1)])
        if spilled:
            await catalog.spill()
        seq = (await catalog.shard("").fresh()).seq
        assert (await catalog.register([data_file(0)])) == {"": seq}
        assert len(await catalog.plan()) == 2
        assert first == {"": 1}
        await catalog.close()

    run(session())


@pytest.mark.parametrize("spilled", [False, True])
def test_a_path_with_other_content_is_refused(spilled: bool) -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(0)])
        if spilled:
            await catalog.spill()
        with pytest.raises(Conflict, match="another file"):
            await catalog.register([data_file(0, row_count=7)])
        # Also with times that lie far from those of the first.
        with pytest.raises(Conflict, match="another file"):
            await catalog.register([data_file(0, min_timestamp=9 * HOUR, max_timestamp=10 * HOUR)])
        await catalog.close()

    run(session())


@pytest.mark.parametrize("buried", [False, True])
def test_a_file_that_was_merged_away_does_not_come_back_when_its_registration_is_repeated(buried: bool) -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), inline_files_max=3 if buried else 100)
        files = [data_file(number) for number in range(6)]
        await catalog.register(files)
        lease = await catalog.lease([file.path for file in files], "c")
        await catalog.complete_compaction(files, merged(*files), lease)
        assert bool((await catalog.shard("").fresh()).graves) is buried
        await catalog.register(files)
        assert (await catalog.plan()).paths == ["acme/cpu/merged.parquet"]
        await catalog.close()

    run(session())


def test_a_compaction_without_its_lease_or_with_a_source_gone_changes_nothing() -> None:
    async def session() -> None:
        clock = ManualClock()
        catalog = await small_catalog(MemoryStore(), clock)
        files = [data_file(number) for number in range(4)]
        await catalog.register(files)
        lease = await catalog.lease([file.path for file in files[:2]], "c", seconds=5)
        with pytest.raises(Conflict, match="not leased"):
            await catalog.lease([files[1].path, files[2].path], "d")
        clock.advance(6)
        taken = await catalog.lease([files[1].path, files[2].path], "d")
        with pytest.raises(Conflict, match="not held"):
            await catalog.complete_compaction(files[:2], merged(*files[:2]), lease)
        with pytest.raises(Conflict, match="cannot be renewed"):
            await catalog.renew(lease)
        with pytest.raises(Conflict, match="other files"):
            await catalog.complete_compaction(files[2:], merged(*files[2:]), taken)
        await catalog.delete([files[2].path])
        with pytest.raises(Conflict, match="no longer listed"):
            await catalog.complete_compaction(files[1:3], merged(*files[1:3]), taken)
        assert len(await catalog.plan()) == 3
        await catalog.close()

    run(session())


def test_a_compaction_whose_target_was_registered_before_changes_nothing() -> None:
    """Its rows would be visible twice: in the target, and in the sources that stay or in a second entry."""

    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        files = [data_file(number) for number in range(4)]
        await catalog.register(files)
        early, fresh = merged(*files[:2], name="early"), merged(*files[2:], name="fresh")
        await catalog.register([early])
        await catalog.spill()
        lease = await catalog.lease([file.path for file in files], "c")
        for targets in ([early], [early, fresh]):
            with pytest.raises(Conflict, match="registered before"):
                await catalog.complete_compaction(files, targets, lease)
        with pytest.raises(InvalidInput, match="no source"):
            await catalog.complete_compaction([], fresh, lease)
        assert len(await catalog.plan()) == 5
        await catalog.complete_compaction(files, [fresh], lease)
        # The same call again, as after a lost answer: nothing more happens.
        await catalog.complete_compaction(files, [fresh], lease)
        assert sorted((await catalog.plan()).paths) == sorted([early.path, fresh.path])

    run(session())


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_lease_or_pin_without_a_sensible_end_is_refused(seconds: float) -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(0)])
        with pytest.raises(InvalidInput):
            await catalog.lease([data_file(0).path], "c", seconds=seconds)
        with pytest.raises(InvalidInput):
            await catalog.pin(1, seconds=seconds)

    run(session())


def test_an_expired_lease_that_nobody_took_can_be_completed_and_renewed() -> None:
    async def session() -> None:
        clock = ManualClock()
        catalog = await small_catalog(MemoryStore(), clock)
        files = [data_file(number) for number in range(2)]
        await catalog.register(files)
        lease = await catalog.lease([file.path for file in files], "c", seconds=5)
        clock.advance(60)
        renewed = await catalog.renew(lease, seconds=5)
        assert renewed.expires_ms == clock.now_ms() + 5000
        clock.advance(60)
        await catalog.complete_compaction(files, merged(*files), lease)
        # The very same call again: it landed, and is not repeated.
        await catalog.complete_compaction(files, merged(*files), lease)
        assert (await catalog.plan()).paths == ["acme/cpu/merged.parquet"]
        await catalog.close()

    run(session())


def test_a_lease_that_ends_in_the_commit_of_its_renewal_is_a_conflict() -> None:
    """Changes that wait share one write: the head that comes back may have more changes than one's own."""

    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        await catalog.register([data_file(0), data_file(1)])
        lease = await catalog.lease([data_file(0).path, data_file(1).path], "c")
        found = await asyncio.gather(catalog.renew(lease, seconds=900), catalog.release(lease), return_exceptions=True)
        assert isinstance(found[0], Conflict)
        assert found[1] is None
        await catalog.close()

    run(session())


def test_a_released_lease_gives_its_files_back() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(0), data_file(1)])
        paths = [data_file(0).path, data_file(1).path]
        await catalog.release(await catalog.lease(paths, "c"))
        assert (await catalog.lease(paths, "d")).paths == tuple(paths)
        await catalog.close()

    run(session())


def test_expected_seq_refuses_what_changed_since_also_in_the_same_write() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        position = await catalog.register([data_file(0)])
        answers = await asyncio.gather(
            catalog.register([data_file(1)], expected_seq=position[""]),
            catalog.register([data_file(2)], expected_seq=position[""]),
            return_exceptions=True,
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["Conflict", "Registered"]
        with pytest.raises(Conflict, match="was expected"):
            await catalog.delete([data_file(0).path], expected_seq=position[""])
        assert len(await catalog.plan()) == 2
        await catalog.close()

    run(session())


def test_a_commit_that_landed_and_was_reported_lost_is_not_repeated() -> None:
    async def session() -> None:
        inner = WitnessStore(MemoryStore())
        faulty = FaultyStore(inner, FaultPlan.none(), entropy=SeededEntropy(1), clock=SYSTEM_CLOCK)
        catalog = await small_catalog(faulty)
        await catalog.register([data_file(0)])
        faulty.script("put_if", Fate.ERROR_AFTER)
        assert await catalog.register([data_file(1)]) == {"": 2}
        assert len(inner.history(HEAD)) == 2
        await catalog.close()

    run(session())


def test_callers_of_one_process_share_writes() -> None:
    async def session() -> None:
        store = CountingStore()
        catalog = await small_catalog(store, inline_files_max=1000)
        await catalog.register([data_file(0)])
        store.taken()
        await asyncio.gather(*(catalog.register([data_file(number)]) for number in range(1, 101)))
        assert store.taken()["put_if"] <= 3
        assert len(await catalog.plan()) == 101
        await catalog.close()

    run(session())


def test_one_file_or_one_path_instead_of_a_list_is_refused() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        with pytest.raises(InvalidInput):
            await catalog.register(data_file(0))  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await catalog.delete("abc")
        await catalog.register([])
        await catalog.delete([])
        with pytest.raises(InvalidInput, match="twice"):
            await catalog.register([data_file(0), data_file(0, row_count=1)])
        await catalog.close()

    run(session())


@pytest.mark.parametrize(
    "members",
    [
        {"path": "/a"},
        {"path": "a/../b"},
        {"path": ""},
        {"path": "a\x00b"},
        {"min_timestamp": 5, "max_timestamp": 4},
        {"max_timestamp": 2**63},
        {"min_timestamp": 0, "max_timestamp": 24 * 500 * HOUR},
        {"row_count": -1},
        {"level": 16},
        {"path": 7},
        {"tenant": None},
        {"tenant": "\ud800"},
        {"min_timestamp": "10"},
    ],
)
def test_a_file_that_cannot_be_listed_is_refused(members: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        data_file(0, **members)


@pytest.mark.parametrize(
    "members",
    [
        {"row_count": 1.5},
        {"size_bytes": True},
        {"level": 0.0},
        {"min_timestamp": 0.5},
        {"shard_id": 7},
        {"column_stats": {"h": column_stats("a\ud800", "b")}},
        {"column_stats": {"h": ColumnStats(min=[1])}},  # type: ignore[arg-type]
        {"column_stats": {"h": ColumnStats(has_nulls=None)}},  # type: ignore[arg-type]
    ],
)
def test_a_file_whose_entry_could_not_be_read_again_is_refused_and_disturbs_no_neighbour(
    members: dict[str, object],
) -> None:
    """Written once, it would have made the whole catalog unreadable."""

    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store)
        answers = await asyncio.gather(
            catalog.register([data_file(0)]),
            wrong(catalog, members),
            catalog.register([data_file(2)]),
            return_exceptions=True,
        )
        assert [isinstance(answer, InvalidInput) for answer in answers] == [False, True, False]
        assert len(await (await small_catalog(store)).plan()) == 2

    run(session())


async def wrong(catalog: Catalog, members: dict[str, object]) -> None:
    await catalog.register([data_file(1, **members)])


@pytest.mark.parametrize("label", ["", None, 7, "a\nb", "\ud800", "x" * 257])
def test_a_name_that_a_head_could_not_carry_is_refused(label: Any) -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store)
        await catalog.register([data_file(0)])
        with pytest.raises(InvalidInput):
            await catalog.lease([data_file(0).path], label)
        if label is not None:
            with pytest.raises(InvalidInput):
                await catalog.pin(1, seconds=5, name=label)
        for position in (1.0, "1", True, {"": 1.0}, None):
            with pytest.raises(InvalidInput):
                await catalog.pin(position, seconds=5)  # type: ignore[arg-type]
        assert len(await (await small_catalog(store)).plan()) == 1

    run(session())


def test_a_store_that_stays_away_is_told_as_such() -> None:
    async def session(simulation: Simulation) -> None:
        clock, writes = simulation.clock, frozenset({"put_if"})
        faulty = FaultyStore(
            MemoryStore(), FaultPlan(error_after=1.0, verbs=writes), entropy=SeededEntropy(1), clock=clock
        )
        catalog = await Catalog.open(faulty, "lake", CatalogConfig(commit_deadline_seconds=5.0), clock=clock)
        # It lands at once, and the register finds that out by reading.
        assert await catalog.register([data_file(0)]) == {"": 1}
        faulty.faults = FaultPlan(request_lost=1.0, verbs=writes)
        with pytest.raises(OutcomeUnknown):
            await catalog.register([data_file(1)])
        await catalog.close()

    simulate(session, 1)
