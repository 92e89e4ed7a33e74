"""What merges promise, whichever engine does them: in this process, and on Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lake.lakes import Lake

from penstock.catalog import CompactionTask
from penstock.lake import CompactionConfig, Compactor, LocalMerging, MergePlace, MergeWork, Merging

Open = Callable[[MergePlace], Merging]


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.integration)])
def engine(request: pytest.FixtureRequest) -> Open:
    if request.param == "local":
        return lambda place: LocalMerging(place, 2)
    from penstock.pipelines import SparkMerging

    spark = request.getfixturevalue("spark")
    return lambda place: SparkMerging(spark, place)


def works_of(tasks: list[CompactionTask]) -> list[MergeWork]:
    return [
        MergeWork(sources=task.sources, target=f"compacted/{at}.parquet", level=1, config=CompactionConfig())
        for at, task in enumerate(tasks)
    ]


def test_every_work_has_one_result_and_a_failure_is_one(engine: Open, tmp_path: Path) -> None:
    async def session() -> None:
        async with Lake(tmp_path) as lake:
            await lake.write(3)
            await lake.write(2, hour=2)
            works = works_of(await lake.catalog.compaction_tasks("test"))
            broken = works[1].sources[0]
            await lake.store.put(lake.catalog.layout.key(broken.path), b"x" * broken.size_bytes)
            results = await asyncio.to_thread(lambda: list(engine(lake.place).merge(works)))
            found = {result.target: result for result in results}
            assert set(found) == {"compacted/0.parquet", "compacted/1.parquet"}
            good, bad = found["compacted/0.parquet"], found["compacted/1.parquet"]
            assert good.file is not None
            assert (good.file.row_count, good.file.level) == (300, 1)
            size = (await lake.store.head(lake.catalog.layout.key(good.file.path))).size
            assert size == good.file.size_bytes
            assert bad.failure is not None
            assert bad.failure.kind == "Corrupt"
            assert broken.path in bad.failure.what

    asyncio.run(session())


def test_a_compactor_on_it_leaves_the_rows_as_they_are(engine: Open, tmp_path: Path) -> None:
    async def session() -> None:
        async with Lake(tmp_path) as lake:
            for hour in range(3):
                await lake.write(3, hour=hour)
            done = await Compactor(lake.catalog, engine(lake.place)).run_available()
            assert done.merged >= 3
            assert (done.failed, done.lost) == (0, 0)
            assert await lake.numbers() == lake.all

    asyncio.run(session())


def test_nothing_to_do_is_no_result(engine: Open, tmp_path: Path) -> None:
    place: Any = Lake(tmp_path).place
    assert list(engine(place).merge([])) == []
