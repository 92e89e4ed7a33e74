"""A store or a reader behind a fork says so: it would answer from what it has in memory, and never see anything newer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.forks import in_a_fork

from penstock.timeseries import SampleBatch, SeriesReads, TimeSeriesStore


def test_a_store_and_a_reader_are_refused_behind_a_fork_and_go_on_where_they_were_opened(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"

    async def session() -> None:
        async with await TimeSeriesStore.open(url, "series") as store:
            await store.write(SampleBatch.of([{"__name__": "up"}], [0], [0], [1.0]), durable=True)
            async with await TimeSeriesStore.open_reader(url, "series") as reader:
                # The answer is in memory from here on.
                assert await answered(reader) == [1.0]
                for one in (store, reader):
                    assert "forked" in await asyncio.to_thread(in_a_fork, lambda one=one: asyncio.run(answered(one)))
                assert await answered(reader) == await answered(store) == [1.0]

    asyncio.run(session())


async def answered(reads: SeriesReads) -> list[Any]:
    result: Any = await reads.query("up", 0)
    return list(result.values)
