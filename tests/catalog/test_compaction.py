"""Planning of merges: which files, when, and never the same ones twice."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.catalog.samples import DAY, HOUR, data_file, run, small_catalog

from penstock.catalog import CompactionPolicy, CompactionTask, DataFile
from penstock.catalog.change.compaction import due_tasks
from penstock.catalog.change.selection import PlanPiece
from penstock.catalog.format.block import FileBlock, Row
from penstock.errors import InvalidInput
from penstock.objects import MemoryStore
from penstock.testing import Simulation, simulate

MIB = 1024 * 1024
# Nothing is closed yet.
EARLY = 0
LATE = 100 * DAY


def due(files: list[DataFile], now_ns: int = EARLY, taken: Any = (), **policy: Any) -> list[CompactionTask]:
    block = FileBlock.of([Row(file) for file in files])
    pieces = [PlanPiece(block, np.arange(len(files)))]
    return due_tasks(pieces, CompactionPolicy(**policy), shard="s", now_ns=now_ns, taken=taken)


def in_hour(count: int, **members: Any) -> list[DataFile]:
    members = {"size_bytes": MIB, **members}
    return [data_file(number, **members) for number in range(count)]


def in_day(count: int, level: int, size: int) -> list[DataFile]:
    return [data_file(number, start=number * HOUR // 2, level=level, size_bytes=size) for number in range(count)]


def test_an_hour_is_merged_at_eight_files_or_64_megabytes_or_when_it_is_closed() -> None:
    assert due(in_hour(7)) == []
    [task] = due(in_hour(8))
    assert (task.level, task.target_level, len(task.sources), task.start, task.end) == (0, 1, 8, 0, HOUR)
    assert (task.tenant, task.table, task.shard, task.size_bytes) == ("acme", "cpu", "s", 8 * MIB)
    assert len(due(in_hour(2, size_bytes=32 * MIB))) == 1
    assert due(in_hour(2, size_bytes=32 * MIB - 1)) == []
    closed_at = HOUR + 900 * 10**9
    assert due(in_hour(2), now_ns=closed_at - 1) == []
    assert len(due(in_hour(2), now_ns=closed_at)) == 1
    assert due(in_hour(1, size_bytes=100 * MIB), now_ns=LATE) == []


def test_partitions_are_not_mixed() -> None:
    files = [
        *in_hour(4),
        *(data_file(path=f"other/{number}", tenant="initech") for number in range(4)),
        *(data_file(path=f"logs/{number}", table="logs") for number in range(4)),
        *(data_file(path=f"next/{number}", start=HOUR + number) for number in range(4)),
    ]
    assert due(files) == []
    tasks = due(files, now_ns=LATE)
    assert sorted((task.start, task.tenant, task.table, len(task.sources)) for task in tasks) == [
        (0, "acme", "cpu", 4),
        (0, "acme", "logs", 4),
        (0, "initech", "cpu", 4),
        (HOUR, "acme", "cpu", 4),
    ]


def test_a_day_of_level_1_is_merged_at_four_files_or_256_megabytes() -> None:
    assert due(in_day(3, 1, 10 * MIB)) == []
    [task] = due(in_day(4, 1, 10 * MIB))
    assert (task.level, task.target_level, task.end) == (1, 2, DAY)
    assert len(due(in_day(2, 1, 128 * MIB))) == 1
    # A closed day alone is no reason: it would be written again for every late hour.
    assert due(in_day(3, 1, MIB), now_ns=LATE) == []


def test_level_2_is_merged_towards_files_of_512_megabytes_to_1_gigabyte() -> None:
    assert due(in_day(3, 2, 100 * MIB)) == []
    [task] = due(in_day(6, 2, 100 * MIB))
    assert (task.level, task.target_level, task.size_bytes) == (2, 3, 600 * MIB)
    tasks = due(in_day(20, 2, 100 * MIB))
    assert [len(task.sources) for task in tasks] == [10, 10]
    assert all(512 * MIB <= task.size_bytes <= 1024 * MIB for task in tasks)
    assert len(due(in_day(3, 2, 100 * MIB), now_ns=LATE)) == 1
    assert due(in_day(5, 3, 100 * MIB), now_ns=LATE) == []
    # A file that is large enough is left alone.
    assert due([*in_day(2, 2, 2000 * MIB)], now_ns=LATE) == []


def test_all_bounds_are_settings() -> None:
    assert len(due(in_hour(2), hour_files=2)) == 1
    assert len(due(in_hour(2), hour_bytes=2 * MIB)) == 1
    assert len(due(in_day(2, 1, MIB), day_files=2)) == 1
    assert len(due(in_day(2, 1, MIB), day_bytes=2 * MIB)) == 1
    assert len(due(in_day(2, 2, MIB), file_bytes_min=2 * MIB)) == 1
    assert [len(task.sources) for task in due(in_hour(9), task_files_max=4)] == [4, 4]
    for wrong in ({"task_files_max": 1}, {"hour_files": 0}, {"file_bytes_min": 5, "file_bytes_max": 4}):
        with pytest.raises(InvalidInput):
            CompactionPolicy(**wrong)


def test_files_that_are_leased_are_left_out() -> None:
    files = in_hour(8)
    assert due(files, taken={files[0].path}) == []
    [task] = due(files, now_ns=LATE, taken={files[0].path})
    assert files[0] not in task.sources


@pytest.mark.slow
def test_two_planners_never_hand_out_the_same_files() -> None:
    async def session(simulation: Simulation) -> None:
        store, clock = MemoryStore(), simulation.clock
        planners = [await small_catalog(store, clock, inline_files_max=30) for _ in range(3)]
        await planners[0].register([data_file(number) for number in range(100)])
        found = await asyncio.gather(*(one.compaction_tasks(f"p{at}") for at, one in enumerate(planners)))
        tasks = [task for one in found for task in one]
        paths = [path for task in tasks for path in task.paths]
        assert len(paths) == len(set(paths)) == 100
        assert all(task.lease is not None and task.lease.paths == task.paths for task in tasks)
        assert await planners[1].compaction_tasks("again") == []
        await clock.sleep(601)
        assert len(await planners[1].compaction_tasks("again")) == len(tasks)

    for seed in range(5):
        simulate(session, seed)


def test_appends_never_conflict_with_a_compaction() -> None:
    async def session() -> None:
        store = MemoryStore()
        compactor, writer = await small_catalog(store), await small_catalog(store)
        await writer.register([data_file(number) for number in range(8)])
        [task] = await compactor.compaction_tasks("c")
        for number in range(100, 140):
            await writer.register([data_file(number)])
        assert task.lease is not None
        target = data_file(path="merged", level=1, max_timestamp=HOUR - 1, row_count=8000)
        await compactor.complete_compaction(task.sources, target, task.lease)
        assert (await compactor.plan()).row_count == 48_000
        assert len(await compactor.plan()) == 41

    run(session())


def test_a_limit_of_tasks_is_kept_and_the_oldest_come_first() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore())
        await catalog.register([data_file(number) for number in range(240)])
        first = await catalog.compaction_tasks("c", limit=1)
        second = await catalog.compaction_tasks("c", limit=1)
        assert [task.start for task in (*first, *second)] == [0, HOUR]
        assert await catalog.compaction_tasks("c", limit=0) == []

    run(session())
