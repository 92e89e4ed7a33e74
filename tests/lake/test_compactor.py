"""The compactor: rows stay what they are, whatever dies, and whoever else works on the same files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.catalog.parquet_files import HOUR, add, rows
from tests.lake.lakes import Lake

from penstock.catalog import Lease
from penstock.errors import Conflict, Corrupt, Unavailable
from penstock.lake import CompactionConfig, Compactor, LocalMerging, MergeFailure, MergeResult, MergeWork, merge_one
from penstock.observability import names
from penstock.testing import ManualClock, RecordingObserver


def on(folder: Path, work: Callable[[Lake], Coroutine[Any, Any, None]], **config: Any) -> None:
    async def session() -> None:
        async with Lake(folder, **config) as lake:
            await work(lake)

    asyncio.run(session())


def compactor(lake: Lake, merging: Any = None, **options: Any) -> Compactor:
    doors = {name: options.pop(name) for name in ("clock", "observer") if name in options}
    return Compactor(lake.catalog, merging or LocalMerging(lake.place, 2), CompactionConfig(**options), **doors)


def test_files_become_one_and_every_position_keeps_its_rows(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(5)
        before = (await lake.catalog.plan()).position
        done = await compactor(lake).run_available()
        assert (done.merged, done.failed, done.files_before, done.files_after, done.rows) == (1, 0, 5, 1, 500)
        assert len(await lake.catalog.plan()) == 1
        assert await lake.numbers() == await lake.numbers(as_of=before) == lake.all
        for sequence in range(before[""], (await lake.catalog.plan()).position[""] + 1):
            assert await lake.numbers(as_of=sequence) == lake.all

    on(tmp_path, work)


def test_columns_that_are_new_are_kept_and_null_where_they_were_missing(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(1)
        await lake.write(1, zone=pa.array(["z"] * 100))
        await compactor(lake).run_available()
        async with lake.catalog.scan(columns=["zone"]) as scan:
            assert (await scan.to_table())["zone"].null_count == 100

    on(tmp_path, work)


@pytest.mark.parametrize("name", ["t" * 1024, "ß" * 500, "..", "a/b", "_"])
def test_files_of_a_table_with_a_long_or_odd_name_are_merged_like_any_others(tmp_path: Path, name: str) -> None:
    async def work(lake: Lake) -> None:
        for number in range(2):
            content = rows(10, n=pa.array(range(10 * number, 10 * number + 10)))
            await add(lake.catalog, f"odd/{number}.parquet", content, tenant=name, table=name)
        done = await compactor(lake).run_available()
        assert (done.merged, done.failed) == (1, 0)
        assert (await lake.numbers(table=name, tenant=name)).total() == 20

    on(tmp_path, work)


def test_a_merge_that_fails_changes_nothing_and_takes_no_other_with_it(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(2)
        await lake.write(2, hour=3)
        broken = (await lake.catalog.plan(3 * HOUR)).files[0]
        await lake.store.put(lake.catalog.layout.key(broken.path), b"x" * broken.size_bytes)
        done = await compactor(lake).run_available()
        assert (done.merged, done.failed) == (1, 1)
        assert len(await lake.catalog.plan()) == 3
        # Its lease is left to expire, so that it is not tried again and again.
        assert await compactor(lake).run_available() == type(done)()

    on(tmp_path, work)


class Interfering:
    """Does something to the catalog between a merge and its commit."""

    def __init__(self, lake: Lake, deed: Callable[[Lake], Coroutine[Any, Any, Any]]) -> None:
        self._lake, self._deed = lake, deed
        self._loop = asyncio.get_running_loop()
        self.targets: list[str] = []

    def merge(self, works: Sequence[MergeWork]) -> Iterator[MergeResult]:
        for work in works:
            self.targets.append(work.target)
            result = merge_one(self._lake.place, work)
            asyncio.run_coroutine_threadsafe(self._deed(self._lake), self._loop).result()
            yield result

    def cancel(self) -> None:
        pass


def test_a_source_that_goes_away_meanwhile_loses_the_merge_and_its_target_is_deleted(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(3)

        async def delete_one(lake: Lake) -> None:
            await lake.catalog.delete([(await lake.catalog.plan()).paths[0]])

        merging = Interfering(lake, delete_one)
        done = await compactor(lake, merging).run_once()
        assert (done.merged, done.lost) == (0, 1)
        assert sum((await lake.numbers()).values()) == 200
        listed = [meta.key async for page in lake.store.list("lake/compacted") for meta in page]
        assert not listed

    on(tmp_path, work)


def test_appends_meanwhile_neither_lose_nor_are_lost(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(3)
        done = await compactor(lake, Interfering(lake, lambda lake: lake.write(1))).run_once()
        assert done.merged == 1
        assert await lake.numbers() == lake.all

    on(tmp_path, work)


def test_two_compactors_share_the_work_and_neither_loses(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        for hour in range(6):
            await lake.write(2, hour=hour)
        # A day's files are left alone, so that each hour is one merge.
        both = await asyncio.gather(*(compactor(lake, tasks_per_pass=1).run_available() for _ in range(2)))
        assert sum(one.lost + one.failed for one in both) == 0
        assert await lake.numbers() == lake.all

    on(tmp_path, work)


def test_a_lease_is_renewed_while_a_merge_goes_on_and_a_twin_keeps_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()

    async def work(lake: Lake) -> None:
        await lake.write(2)

        renewed, renew = asyncio.Event(), lake.catalog.renew

        async def renew_and_tell(lease: Lease) -> Lease:
            later = await renew(lease)
            renewed.set()
            return later

        async def outlive(lake: Lake) -> None:
            """Twice as long as the lease lasts."""
            for _ in range(6):
                renewed.clear()
                clock.advance(10.0)
                await asyncio.wait_for(renewed.wait(), 60)
                assert not await lake.catalog.compaction_tasks("twin")

        monkeypatch.setattr(lake.catalog, "renew", renew_and_tell)
        done = await compactor(lake, Interfering(lake, outlive), clock=clock).run_once()
        assert (done.merged, done.lost) == (1, 0)

    on(tmp_path, work, clock=clock, lease_seconds=30.0)


def test_a_zombie_that_lost_its_lease_changes_nothing(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(2)
        tasks = await lake.catalog.compaction_tasks("zombie", lease_seconds=0.0)
        late = MergeWork(sources=tasks[0].sources, target="compacted/late.parquet", level=1, config=CompactionConfig())
        assert (await compactor(lake).run_available()).merged == 1
        result = merge_one(lake.place, late)
        assert result.file is not None
        assert tasks[0].lease is not None
        with pytest.raises(Conflict):
            await lake.catalog.complete_compaction(tasks[0].sources, result.file, tasks[0].lease)
        assert await lake.numbers() == lake.all
        os.utime(tmp_path / "lake/compacted/late.parquet", (0, 0))
        swept = await compactor(lake).upkeep()
        assert swept.vacuumed.orphans == ["compacted/late.parquet"]

    on(tmp_path, work)


class Refusing:
    """Gives no result at all, as an engine that went away."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def merge(self, works: Sequence[MergeWork]) -> Iterator[MergeResult]:
        if self._error is not None:
            raise self._error
        yield from ()

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("error", [None, Unavailable("gone")])
def test_work_that_never_came_back_is_given_back_at_once(tmp_path: Path, error: Exception | None) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(2)
        if error is None:
            await compactor(lake, Refusing()).run_once()
        else:
            with pytest.raises(Unavailable):
                await compactor(lake, Refusing(error)).run_once()
        assert (await compactor(lake).run_available()).merged == 1

    on(tmp_path, work)


def test_retention_drops_whole_files_and_removed_ones_are_deleted(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(2)
        upkept = await compactor(lake, retention_seconds=3600.0).upkeep()
        assert upkept.expired_files == 2
        assert len(await lake.catalog.plan()) == 0
        assert len(upkept.vacuumed.files) == 2

    on(tmp_path, work, grace_seconds=0.0)


def test_following_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(2)
        stop = asyncio.Event()
        following = asyncio.create_task(compactor(lake, pause_seconds=0.01, upkeep_seconds=0.0).follow(stop))
        await lake.until_files(1)
        await lake.write(2, hour=2)
        await lake.until_files(2)
        stop.set()
        assert (await following).merged >= 2

    on(tmp_path, work)


def test_what_is_done_is_counted(tmp_path: Path) -> None:
    async def work(lake: Lake) -> None:
        await lake.write(2)
        observer = RecordingObserver()
        await compactor(lake, observer=observer).run_available()
        assert observer.counted(names.COMPACTION_TASKS, outcome="merged") == 1
        assert observer.counted(names.COMPACTION_ROWS) == 200

    on(tmp_path, work)


def test_an_error_travels_as_what_it_is() -> None:
    error = MergeFailure.of(Corrupt("a", "b", "c")).error()
    assert (type(error), error.what, error.why, error.remedy) == (Corrupt, "a", "b", "c")
