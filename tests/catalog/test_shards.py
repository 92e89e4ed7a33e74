"""Shards: every process routes alike, a split moves only its own tables, and the index never hides a shard."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.catalog.samples import HOUR, CountingStore, data_file, run, small_catalog

from penstock.catalog import Catalog, DataFile
from penstock.catalog.format.global_index import GlobalIndex, ShardTimes
from penstock.catalog.format.members import sealed
from penstock.catalog.format.shard_map import ShardMap, ShardMapFormat, ShardNode, ShardState, owner_of
from penstock.catalog.inspection import verify_catalog
from penstock.catalog.split import split_shard
from penstock.catalog.vacuum import Vacuum
from penstock.errors import Corrupt, DeadlineExceeded, InvalidInput, NotFound, Unsupported
from penstock.objects import MemoryStore
from penstock.testing import Fate, FaultPlan, FaultyStore, ManualClock, SeededEntropy, Simulation, simulate

TENANTS = [f"t{number}" for number in range(12)]


def files(start: int = 0) -> list[DataFile]:
    return [
        data_file(start + number, path=f"{tenant}/{start + number}.parquet", tenant=tenant)
        for number, tenant in enumerate(TENANTS)
    ]


def test_routing_is_recorded_and_the_same_in_every_process() -> None:
    """These very answers are in the format page; another process, or release, must give them too."""
    assert [owner_of(tenant, table, ["s1", "s2", "s3"]) for tenant, table in PAGE] == [PAGE[key] for key in PAGE]
    assert owner_of("acme", "cpu", ["s3", "s1", "s2"]) == owner_of("acme", "cpu", ["s1", "s2", "s3"])


PAGE = {("acme", "cpu"): "s2", ("acme", "logs"): "s1", ("initech", "cpu"): "s2"}


def test_a_split_moves_only_tables_of_the_shard_that_is_split() -> None:
    two = ShardMap().changed(ShardNode(id="", state=ShardState.SPLIT, children=(ShardNode(id="a"), ShardNode(id="b"))))
    three = two.changed(ShardNode(id="b", state=ShardState.SPLIT, children=(ShardNode(id="c"), ShardNode(id="d"))))
    before = {tenant: two.shard_of(tenant, "t") for tenant in map(str, range(1000))}
    after = {tenant: three.shard_of(tenant, "t") for tenant in before}
    assert all(after[tenant] == "a" for tenant, shard in before.items() if shard == "a")
    assert {after[tenant] for tenant, shard in before.items() if shard == "b"} == {"c", "d"}
    counts = [list(before.values()).count(shard) for shard in "ab"]
    assert all(400 < count < 600 for count in counts)
    assert three.shards() == ["a", "c", "d"]
    assert three.lineage("d") == ["d", "b", ""]
    with pytest.raises(InvalidInput, match="no shard"):
        three.find("x")


async def some_catalog(store: Any, clock: Any = None) -> Catalog:
    """Inline files, segments, archived days, tombstones spilled and not, a lease and a pin."""
    catalog = await small_catalog(store, clock, inline_files_max=6, segment_rows_max=20)
    for start in range(0, 120, 12):
        await catalog.register(files(start))
    await catalog.archive(before_ns=10**18)
    await catalog.register(files(1000))
    await catalog.delete([file.path for file in files(0)])
    await catalog.register(files(2000)[:4])
    await catalog.delete([files(2000)[0].path])
    return catalog


def test_a_split_keeps_files_history_leases_and_pins_and_readers_go_on() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await some_catalog(store)
        reader = await small_catalog(store, staleness_seconds=0.0)
        plan = await catalog.plan()
        leased = files(1000)[3]
        lease = await catalog.lease([leased.path], "c")
        old = {"": 3}
        past = sorted((await (await catalog.as_of(old)).plan()).paths)
        await catalog.pin(plan.position, seconds=1000, name="p")
        await reader.plan()
        shard_map = await split_shard(catalog, "", ["s1", "s2"])
        assert shard_map.shards() == ["s1", "s2"]
        for one in (catalog, reader, await small_catalog(store)):
            assert sorted((await one.plan()).paths) == sorted(plan.paths)
            assert sorted((await (await one.as_of(old)).plan()).paths) == past
            assert sorted((await (await one.as_of(plan.position)).plan()).paths) == sorted(plan.paths)
        assert await verify_catalog(catalog) == []
        by_shard = {shard: await catalog.files_for_shard(shard) for shard in ("s1", "s2")}
        assert {file.path for found in by_shard.values() for file in found} == set(plan.paths)
        assert all(
            catalog.shard_of(file.tenant, file.table) == shard for shard, found in by_shard.items() for file in found
        )
        target = data_file(path="merged", tenant=leased.tenant, level=1)
        await catalog.complete_compaction([leased], target, lease)
        await reader.register(files(3000))
        assert len(await catalog.plan()) >= len(plan)
        # Registered again, also by a process that still believes in the root: nothing comes back, nothing doubles.
        await reader.register([*files(0), *files(2000)[:4]])
        assert len(await reader.plan()) == len(plan) + 12

    run(session())


@pytest.mark.cases(quick=5)
@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER])
@pytest.mark.parametrize("verb", ["put_if", "put"])
@pytest.mark.parametrize("number", range(6))
def test_a_split_that_dies_at_any_write_is_finished_by_the_next_call(verb: str, number: int, fate: Fate) -> None:
    async def session(simulation: Simulation) -> None:
        inner = MemoryStore(clock=simulation.clock)
        catalog = await some_catalog(inner, simulation.clock)
        paths = sorted((await catalog.plan()).paths)
        faulty = FaultyStore(inner, FaultPlan.none(), entropy=SeededEntropy(number), clock=simulation.clock)
        dying = await small_catalog(faulty, simulation.clock, segment_rows_max=20)
        faulty.script(verb, *([Fate.SERVED] * number), fate)
        splitter = simulation.start("splitter", split_shard(dying, "", ["s1", "s2"]))
        await splitter.join()
        assert splitter.crashed or number > 3
        reader = await small_catalog(inner, simulation.clock)
        assert sorted((await reader.plan()).paths) == paths
        await split_shard(reader, "", ["s1", "s2"])
        assert sorted((await reader.plan()).paths) == paths
        assert (await reader.refresh_map()).shards() == ["s1", "s2"]
        assert await verify_catalog(reader) == []
        await reader.register(files(5000))
        assert len(await reader.plan()) == len(paths) + 12

    simulate(session, number)


def test_writers_wait_for_a_split_and_are_told_when_it_does_not_end() -> None:
    async def session() -> None:
        from penstock.catalog.change.division import closed

        store, clock = MemoryStore(), ManualClock()
        catalog = await small_catalog(store, clock)
        await catalog.register(files())
        await catalog.shard_map.update(
            lambda found: found.changed(
                ShardNode(id="", state=ShardState.SPLITTING, children=(ShardNode(id="a"), ShardNode(id="b")))
            )
        )
        await catalog.shard("").commit(lambda head, _: closed(head), "split")
        writer = asyncio.create_task(catalog.register(files(100)))
        await clock.until_sleeping()
        assert len(await catalog.plan()) == 12
        await clock.run_for(40)
        with pytest.raises(DeadlineExceeded, match="being split"):
            await writer
        writer = asyncio.create_task(catalog.register(files(100)))
        await clock.until_sleeping()
        await split_shard(await small_catalog(store, clock), "", [])
        await clock.run_for(1)
        assert set(await writer) == {"a", "b"}
        assert len(await catalog.plan()) == 24

    run(session())


def test_an_impossible_split_is_refused() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        for names in ([], ["one"], ["a", "a"], ["a", "b/c"], ["a", "A"], ["", "b"]):
            with pytest.raises(InvalidInput):
                await split_shard(catalog, "", names)
        with pytest.raises(InvalidInput):
            await split_shard(catalog, "x", ["a", "b"])
        await split_shard(catalog, "", ["a", "b"])
        with pytest.raises(InvalidInput):
            await split_shard(catalog, "a", ["b", "c"])
        with pytest.raises(Unsupported):
            await split_shard(await small_catalog(MemoryStore(), format=2), "", ["a", "b"])
        with pytest.raises(InvalidInput, match="belongs to"):
            await catalog.register([data_file(0, shard_id="elsewhere")])

    run(session())


def test_an_empty_catalog_can_begin_with_shards() -> None:
    async def session() -> None:
        store = MemoryStore()
        await split_shard(await small_catalog(store), "", ["s1", "s2", "s3"])
        catalog = await small_catalog(store)
        position = await catalog.register(files())
        assert set(position) == {"s1", "s2", "s3"}
        with pytest.raises(InvalidInput, match="several shards"):
            await catalog.register(files(100), expected_seq=1)
        with pytest.raises(InvalidInput, match="several shards"):
            await catalog.as_of(2)
        assert len(await catalog.plan()) == 12

    run(session())


def test_the_parent_of_a_split_leaves_nothing_behind_after_vacuum() -> None:
    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        catalog = await small_catalog(store, clock, inline_files_max=3)
        for start in range(0, 60, 12):
            await catalog.register(files(start))
        before = {meta.key async for page in store.list("lake/metadata/seg/") for meta in page}
        assert before
        await split_shard(catalog, "", ["s1", "s2"])
        clock.advance(2 * 86_400)
        await Vacuum(catalog).run()
        assert {meta.key async for page in store.list("lake/metadata/seg/") for meta in page} == set()
        assert len(await catalog.plan()) == 60

    run(session())


# The global index -----------------------------------------------------------------------------------


async def two_shards(store: Any, clock: ManualClock, staleness: float = 10.0) -> Catalog:
    catalog = await small_catalog(store, clock, staleness_seconds=staleness)
    await split_shard(catalog, "", ["s1", "s2"])
    # One shard has the morning, the other the evening.
    for tenant in TENANTS:
        hour = 1 if catalog.shard_of(tenant, "cpu") == "s1" else 20
        await catalog.register([data_file(path=f"{tenant}/x", tenant=tenant, start=hour * HOUR)])
    return catalog


def test_a_young_index_spares_asking_a_shard_that_holds_nothing() -> None:
    async def session() -> None:
        store, clock = CountingStore(), ManualClock()
        await (await two_shards(store, clock)).write_index()
        reader = await small_catalog(store, clock, staleness_seconds=10.0)
        store.taken()
        morning = await reader.plan(0, 2 * HOUR)
        assert {path.split("/")[0] for path in morning.paths} == {
            tenant for tenant in TENANTS if reader.shard_of(tenant, "cpu") == "s1"
        }
        assert not any("s2" in key for _, key in store.calls)
        # The position has every shard, so that it can be read again.
        assert set(morning.position) == {"s1", "s2"}
        assert sorted((await (await reader.as_of(morning.position)).plan(0, 2 * HOUR)).paths) == sorted(morning.paths)

    run(session())


@pytest.mark.parametrize("fault", ["old", "missing", "damaged", "other generation", "newer version", "empty"])
def test_an_index_that_is_not_sound_hides_no_shard(fault: str) -> None:
    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        writer = await two_shards(store, clock)
        index = await writer.write_index()
        key = "lake/metadata/global-index.json"
        body = json.loads((await store.get(key)).data)
        # An index that lies: by it, no shard holds anything.
        body["shards"] = {name: {"seq": 1, "ranges": []} for name in body["shards"]}
        if fault == "old":
            clock.advance(11)
        elif fault == "other generation":
            body["generation"] = index.generation + 1
        elif fault == "newer version":
            body["version"] = 2
        elif fault == "empty":
            body["shards"] = {}
        del body["crc32c"]
        if fault == "damaged":
            body["crc32c"] = "00000000"
        await store.put(key, json.dumps(body).encode() if fault == "damaged" else resealed(body))
        if fault == "missing":
            await store.delete(key)
        reader = await small_catalog(store, clock, staleness_seconds=10.0)
        assert len(await reader.plan(0, 24 * HOUR)) == 12

    run(session())


def resealed(json_object: dict[str, Any]) -> bytes:
    return sealed(json.dumps(json_object).encode()[:-1])


def test_an_index_with_any_byte_flipped_counts_as_none() -> None:
    """Most flips leave sound JSON with other times in it, by which a shard would be passed over."""
    times = ShardTimes(seq=3, ranges=((10 * HOUR, 11 * HOUR),))
    body = GlobalIndex(generation=1, made_ms=5, shards={"s1": times}).encode()
    assert GlobalIndex.decode(body) is not None
    for at in range(len(body)):
        for bit in (1, 2, 16):
            assert GlobalIndex.decode(body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :]) is None


def test_a_map_with_any_byte_flipped_is_refused() -> None:
    """A flipped state or id would send readers to a shard that is not there, or to one that is empty."""
    nodes = (ShardNode(id="s1"), ShardNode(id="s2"))
    body = ShardMapFormat().encode(ShardMap().changed(ShardNode(id="", state=ShardState.SPLIT, children=nodes)))
    for at in range(len(body)):
        for bit in (1, 2, 16):
            with pytest.raises((Corrupt, Unsupported)):
                ShardMapFormat().decode(body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :])


def test_members_of_a_later_release_stay_in_the_map_and_its_shards() -> None:
    async def session() -> None:
        store = MemoryStore()
        await split_shard(await small_catalog(store), "", ["s1", "s2"])
        key = "lake/metadata/shards.json"
        body = json.loads((await store.get(key)).data)
        del body["crc32c"]
        body["zones"] = {"eu": ["s1"]}
        body["root"]["note"] = "whole"
        body["root"]["children"][1]["weight"] = 3
        await store.put(key, resealed(body))
        await split_shard(await small_catalog(store), "s2", ["s3", "s4"])
        after = json.loads((await store.get(key)).data)
        assert after["zones"] == {"eu": ["s1"]}
        assert after["root"]["note"] == "whole"
        assert after["root"]["children"][1]["weight"] == 3
        assert [child["id"] for child in after["root"]["children"][1]["children"]] == ["s3", "s4"]

    run(session())


def test_a_shard_whose_head_is_lost_is_told_and_never_taken_for_an_empty_one() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store)
        await catalog.register(files())
        await split_shard(catalog, "", ["s1", "s2"])
        await store.delete("lake/metadata/shards/s2/catalog.json")
        late = await small_catalog(store)
        with pytest.raises(Corrupt, match="head of shard 's2' is missing"):
            await late.plan()
        with pytest.raises(Corrupt, match="missing"):
            await late.source_progress("queue")
        with pytest.raises(Corrupt, match="missing"):
            await late.register(files(100))
        with pytest.raises(Corrupt, match="missing"):
            await late.compaction_tasks("c")
        assert [finding.place for finding in await verify_catalog(late)] == ["lake/metadata/shards/s2/catalog.json"]
        with pytest.raises(NotFound):
            await store.head("lake/metadata/shards/s2/catalog.json")
        # What the other shard holds can still be planned by its name.
        assert {file.shard_id for file in await late.files_for_shard("s1")} == {"s1"}

    run(session())


@pytest.mark.slow
def test_hundreds_of_tenants_are_registered_by_one_write_a_commit_also_after_spills() -> None:
    """Their paths lie among those of every segment; what this process has written it need not read back."""

    async def session() -> None:
        store = CountingStore()
        catalog = await small_catalog(store, inline_files_max=100, segment_rows_max=1000)
        await catalog.register([data_file(0)])
        store.taken()
        for turn in range(12):
            await catalog.register(
                [
                    data_file(turn, path=f"tenant{number:03}/{turn:03}.parquet", tenant=f"tenant{number:03}")
                    for number in range(300)
                ]
            )
        taken = store.taken()
        assert (taken["get"], taken["get_if_changed"]) == (0, 0)
        plan = await catalog.plan(tenant="tenant123")
        assert len(plan) == 12
        tasks = await catalog.compaction_tasks("c", limit=1000)
        assert len({(task.tenant, task.table) for task in tasks}) == len(tasks) == 300

    run(session())


def test_a_writer_sees_its_own_commits_whatever_the_index_says() -> None:
    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        catalog = await two_shards(store, clock)
        await catalog.write_index()
        evening = next(tenant for tenant in TENANTS if catalog.shard_of(tenant, "cpu") == "s2")
        other = await small_catalog(store, clock, staleness_seconds=10.0)
        await other.register([data_file(path="late", tenant=evening, start=HOUR)])
        assert "late" in (await other.plan(HOUR, 2 * HOUR)).paths

    run(session())


def test_an_index_stays_small_and_covers_all_times() -> None:
    from penstock.catalog.format.global_index import times_of
    from penstock.catalog.format.head import CatalogHead, inline_file, with_inline

    scattered = [data_file(number, start=number * 5 * HOUR) for number in range(300)]
    head = with_inline(CatalogHead(version=3), [inline_file(file, 1) for file in scattered])
    times = times_of(head)
    assert len(times.ranges) == 64
    index = GlobalIndex(generation=0, made_ms=0, shards={"": times})
    for file in scattered:
        assert index.needed([""], file.min_timestamp, file.min_timestamp + 1) == [""]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        sealed(b'{"version":1,"root":{"id":"","children":[{"id":"a"},{"id":"a"}]}'),
        sealed(b'{"version":1,"root":7'),
        sealed(b'{"version":1'),
        b'{"version":1,"root":{"id":""}}',
    ],
)
def test_a_damaged_map_is_refused(body: bytes) -> None:
    with pytest.raises(Corrupt):
        ShardMapFormat().decode(body)


def test_a_map_of_a_later_release_is_refused() -> None:
    with pytest.raises(Unsupported):
        ShardMapFormat().decode(b'{"version":2,"rings":[]}')
