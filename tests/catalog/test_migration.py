"""From the legacy pair to one object and back: nothing is lost, nothing is hidden, and every fault has a name."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest
from tests.catalog.samples import HOUR, CountingStore, data_file, run, small_catalog

from penstock.catalog import DataFile
from penstock.catalog.format.data_file import file_json
from penstock.catalog.format.head_json import decode_head
from penstock.catalog.migration import downgrade, migrate, rebuild_index, split_catalog
from penstock.catalog.split import split_shard
from penstock.errors import Conflict, Corrupt, InvalidInput, NotFound, PermissionDenied
from penstock.objects import MemoryStore, Object
from penstock.testing import ManualClock, WitnessStore
from penstock.testing.storage.hostile_stores import PassingStore

CHUNKS = "lake/metadata/chunks/metadata.json"
INDEX = "lake/metadata/time-index.json"
HEAD = "lake/metadata/catalog.json"
FILES = [data_file(number * 60, max_timestamp=number * HOUR + HOUR) for number in range(4)]


def index_of(files: list[DataFile]) -> dict[str, list[str]]:
    index: dict[str, list[str]] = {}
    for file in files:
        for hour in (file.min_timestamp // HOUR, file.max_timestamp // HOUR):
            index.setdefault(str(hour * HOUR), []).append(file.path)
    return index


async def write_pair(store: Any, files: list[DataFile], index: dict[str, list[str]] | None = None) -> None:
    await store.put(CHUNKS, json.dumps({file.path: file_json(file) for file in files}).encode())
    await store.put(INDEX, json.dumps(index_of(files) if index is None else index).encode())


def broken_index() -> dict[str, list[str]]:
    """The second file is missing from one of its hours, the third from all; one path has no metadata; one is twice."""
    index = index_of(FILES)
    index[str(2 * HOUR)].remove(FILES[1].path)
    for paths in index.values():
        while FILES[2].path in paths:
            paths.remove(FILES[2].path)
    index["0"] += ["acme/ghost.parquet", FILES[0].path]
    return index


def test_the_pair_is_read_where_there_is_no_catalog_and_the_first_write_upgrades() -> None:
    async def session() -> None:
        store = MemoryStore()
        await write_pair(store, FILES, broken_index())
        catalog = await small_catalog(store)
        assert sorted((await catalog.plan()).paths) == sorted(file.path for file in FILES)
        assert len(await catalog.plan(2 * HOUR, 2 * HOUR + 1)) == 2
        with pytest.raises(NotFound):
            await store.head(HEAD)
        await catalog.register([data_file(999)])
        assert len(json.loads((await store.get(HEAD)).data)["chunks"]) == 5
        # From now on the pair is not looked at.
        await store.put(CHUNKS, b"damaged")
        other = await small_catalog(store)
        assert len(await other.plan()) == 5
        await other.register([FILES[0]])
        assert len(await other.plan()) == 5

    run(session())


def test_the_first_write_takes_over_the_pair_as_it_is_then_and_not_as_it_was_planned() -> None:
    """An old writer goes on for a while after the first new reader has started."""

    async def session() -> None:
        store, clock = MemoryStore(), ManualClock()
        await write_pair(store, FILES[:2])
        catalog = await small_catalog(store, clock, staleness_seconds=1000.0)
        assert len(await catalog.plan()) == 2
        await write_pair(store, FILES)
        await catalog.register([data_file(999)])
        assert len(await catalog.plan()) == 5

    run(session())


@pytest.mark.parametrize("deleted", [(CHUNKS, INDEX), (CHUNKS,)])
def test_a_reader_that_meets_a_migration_between_its_reads_does_not_find_an_empty_catalog(
    deleted: tuple[str, ...],
) -> None:
    """It found no catalog; then the catalog was written and the pair deleted; then it found no pair."""

    class Migrating(PassingStore):
        async def get(self, key: str) -> Object:
            if key == CHUNKS and deleted:
                await migrate(await small_catalog(self._inner))
                for gone in deleted:
                    await self._inner.delete(gone)
            return await super().get(key)

    async def session() -> None:
        store = MemoryStore()
        await write_pair(store, FILES)
        assert len(await (await small_catalog(Migrating(store))).plan()) == len(FILES)

    run(session())


def test_two_migrations_at_once_make_one_catalog_whose_sequence_only_grows() -> None:
    async def session() -> None:
        store = WitnessStore(MemoryStore())
        await write_pair(store, FILES)
        one, two = await small_catalog(store), await small_catalog(store)
        reports = await asyncio.gather(migrate(one), migrate(two))
        assert {report.files for report in reports} == {len(FILES)}
        seqs = [decode_head(body).seq for body in store.history(HEAD) if body]
        assert seqs == sorted(set(seqs))
        assert not (await migrate(one)).pair_changed_since

    run(session())


def test_registering_what_the_pair_lists_writes_nothing() -> None:
    async def session() -> None:
        store = MemoryStore()
        await write_pair(store, FILES)
        catalog = await small_catalog(store)
        await catalog.register(FILES)
        with pytest.raises(NotFound):
            await store.head(HEAD)

    run(session())


class ForbiddenStore(PassingStore):
    """Refuses to say whether the catalog is there."""

    async def get(self, key: str) -> Object:
        if key == HEAD:
            raise PermissionDenied(f"get {key!r}", "no")
        return await self._inner.get(key)


def test_an_error_other_than_not_found_is_raised_and_the_pair_is_not_read() -> None:
    async def session() -> None:
        inner = MemoryStore()
        await write_pair(inner, FILES)
        catalog = await small_catalog(ForbiddenStore(inner))
        for call in (catalog.plan(), catalog.register([data_file(1)])):
            with pytest.raises(PermissionDenied):
                await call

    run(session())


def test_a_damaged_pair_is_refused_and_left_alone() -> None:
    async def session() -> None:
        store = MemoryStore()
        await write_pair(store, FILES)
        await store.put(INDEX, b'{"0": 7}')
        catalog = await small_catalog(store)
        with pytest.raises(Corrupt):
            await catalog.plan()
        with pytest.raises(Corrupt):
            await catalog.register([data_file(1)])
        with pytest.raises(NotFound):
            await store.head(HEAD)

    run(session())


def test_refusing_the_pair_ends_dual_reading() -> None:
    async def session() -> None:
        store = CountingStore()
        catalog = await small_catalog(store, legacy="refuse")
        assert len(await catalog.plan()) == 0
        await write_pair(store, FILES)
        other = await small_catalog(store, legacy="refuse")
        for call in (other.plan(), other.register([data_file(1)])):
            with pytest.raises(InvalidInput, match="legacy pair is turned off"):
                await call

    run(session())


def test_an_inconsistent_pair_is_told_by_name_and_only_migrated_with_repair() -> None:
    async def session() -> None:
        store = MemoryStore()
        await write_pair(store, FILES, broken_index())
        before = {key: (await store.get(key)).data for key in (CHUNKS, INDEX)}
        catalog = await small_catalog(store)
        report = await migrate(catalog, dry_run=True)
        assert report.missing_from_index == tuple(sorted([FILES[1].path, FILES[2].path]))
        assert report.missing_from_metadata == ("acme/ghost.parquet",)
        assert report.misplaced == (FILES[0].path,)
        assert not report.is_consistent
        with pytest.raises(InvalidInput, match="ghost"):
            await migrate(catalog)
        with pytest.raises(NotFound):
            await store.head(HEAD)
        done = await migrate(catalog, repair=True, backup=True)
        assert set(done.read) == {CHUNKS, INDEX}
        assert set(done.written) == {HEAD}
        assert all(digest and len(digest) == 64 for digest in (*done.read.values(), *done.written.values()))
        assert [(await store.get(key)).data for key in done.backups] == [before[CHUNKS], before[INDEX]]
        written = json.loads((await store.get(HEAD)).data)
        assert {hour: sorted(paths) for hour, paths in written["time_index"].items()} == {
            hour: sorted(paths) for hour, paths in index_of(FILES).items()
        }
        assert written["chunks"] == json.loads(before[CHUNKS])

    run(session())


@pytest.mark.parametrize("missing", [CHUNKS, INDEX])
def test_half_of_a_pair_is_read_and_told(missing: str) -> None:
    async def session() -> None:
        store = MemoryStore()
        await write_pair(store, FILES)
        await store.delete(missing)
        catalog = await small_catalog(store)
        assert len(await catalog.plan()) == (0 if missing == CHUNKS else 4)
        report = await migrate(catalog, dry_run=True)
        assert report.read[missing] is None
        assert len(report.missing_from_index) == (0 if missing == CHUNKS else 4)
        assert len(report.missing_from_metadata) == (4 if missing == CHUNKS else 0)

    run(session())


def test_an_old_writer_that_still_runs_is_noticed_and_its_pair_is_not_deleted() -> None:
    async def session() -> None:
        store = MemoryStore()
        await write_pair(store, FILES)
        catalog = await small_catalog(store)
        assert not (await migrate(catalog)).pair_changed_since
        again = await migrate(catalog)
        assert again.was_migrated
        assert not again.pair_changed_since
        # The catalog goes on by itself; that is no sign of an old writer.
        await catalog.register([data_file(999)])
        assert not (await migrate(catalog)).pair_changed_since
        await write_pair(store, [*FILES, data_file(777)])
        assert (await migrate(catalog)).pair_changed_since
        with pytest.raises(Conflict, match="after the migration"):
            await migrate(catalog, delete_legacy=True)
        assert (await store.head(CHUNKS)).size

    run(session())


def test_the_pair_is_deleted_when_asked_and_unchanged() -> None:
    async def session() -> None:
        store = MemoryStore()
        await write_pair(store, FILES)
        catalog = await small_catalog(store)
        report = await migrate(catalog, delete_legacy=True)
        assert report.deleted == (CHUNKS, INDEX)
        assert len(await (await small_catalog(store, legacy="refuse")).plan()) == 4
        with pytest.raises(NotFound, match="nothing to migrate"):
            await migrate(await small_catalog(MemoryStore()))

    run(session())


def test_the_pair_is_written_back_and_reads_as_the_catalog_did() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store)
        await catalog.register(FILES[:2])
        await catalog.spill()
        await catalog.register(FILES[2:])
        report = await split_catalog(catalog)
        assert report.files == 4
        assert json.loads((await store.get(CHUNKS)).data) == {file.path: file_json(file) for file in FILES}
        found = json.loads((await store.get(INDEX)).data)
        assert {hour: sorted(paths) for hour, paths in found.items()} == {
            hour: sorted(paths) for hour, paths in index_of(FILES).items()
        }
        # Old code goes on from there.
        await store.delete(HEAD)
        assert (await migrate(await small_catalog(store), dry_run=True)).is_consistent

    run(session())


def test_a_downgrade_keeps_files_history_and_tombstones_and_refuses_a_running_writer() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store, inline_files_max=3)
        for number in range(20):
            await catalog.register([data_file(number)])
        position = (await catalog.plan()).position
        await catalog.delete([data_file(number).path for number in range(0, 20, 2)])
        await catalog.archive(before_ns=10**18)
        report = await downgrade(catalog)
        assert report.files == 10
        older = await small_catalog(store, format=2)
        assert sorted((await older.plan()).paths) == [data_file(number).path for number in range(1, 20, 2)]
        assert len(await (await older.as_of(position)).plan()) == 20
        await older.register([data_file(number) for number in range(30)])
        # What was deleted is not brought back by a repeated registration.
        assert len(await older.plan()) == 20
        assert json.loads((await store.get(HEAD)).data)["version"] == 2
        with pytest.raises(InvalidInput):
            await downgrade(catalog, to=1)

    run(session())


def test_rebuilding_the_index_mends_a_file_that_another_program_left_inconsistent() -> None:
    async def session() -> None:
        from penstock.catalog.inspection import verify_catalog

        store = MemoryStore()
        body = {"version": 2, "chunks": {file.path: file_json(file) for file in FILES}, "time_index": broken_index()}
        await store.put(HEAD, json.dumps(body).encode())
        catalog = await small_catalog(store, format=2)
        assert len(await catalog.plan()) == 4
        faults = [finding.fault for finding in await verify_catalog(catalog)]
        assert len(faults) == 4
        assert any("ghost" in fault and "no metadata" in fault for fault in faults)
        await rebuild_index(catalog)
        assert await verify_catalog(catalog) == []

    run(session())


def test_rebuilding_reaches_every_shard_and_reports_what_was_read_and_written() -> None:
    async def session() -> None:
        store = MemoryStore()
        catalog = await small_catalog(store)
        await catalog.register([data_file(number, tenant=f"t{number}") for number in range(8)])
        before = hashlib.sha256((await store.get(HEAD)).data).hexdigest()
        assert (await split_catalog(catalog)).read == {HEAD: before}
        await split_shard(catalog, "", ["s1", "s2"])
        heads = [f"lake/metadata/shards/{name}/catalog.json" for name in ("s1", "s2")]
        digests = {key: hashlib.sha256((await store.get(key)).data).hexdigest() for key in heads}
        report = await rebuild_index(catalog)
        assert report.files == 8
        assert report.read == digests
        assert report.written == {key: hashlib.sha256((await store.get(key)).data).hexdigest() for key in heads}
        assert len(await catalog.plan()) == 8

    run(session())
