"""The failures that the design exists to rule out, each by name."""

from __future__ import annotations

import asyncio

from tests.timeseries.stores import HOUR, QUIET, SMALL, batch, everything, one, opened, series, with_store

from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume, WriteBatch
from penstock.timeseries import TimeSeriesConfig, TimeSeriesReader, TimeSeriesStore


def test_what_is_not_flushed_is_never_evicted() -> None:
    """A cache that holds one block at most loses nothing of what waits for a flush."""
    config = TimeSeriesConfig(cache_bytes=1, coordinator=QUIET)

    async def work(store: TimeSeriesStore) -> None:
        for number in range(12):
            await store.write(one(float(number), number * HOUR, job=str(number)))
            with store.view() as view:
                assert len(await everything(view)) == number + 1
        await store.flush()
        assert len(await everything(store)) == 12

    with_store(work, config=config)


def test_no_sample_is_stored_before_its_series() -> None:
    """Dictionary, labels, index and samples are one batch: at every moment of the log all of them are there or none."""

    class Recording(MemoryKeyValue):
        batches: list[WriteBatch]

        async def write(self, batch: WriteBatch):  # type: ignore[no-untyped-def]
            self.batches.append(batch)
            return await super().write(batch)

    async def run() -> None:
        keyvalue = Recording(MemoryVolume())
        keyvalue.batches = []
        async with await TimeSeriesStore.over(keyvalue, SMALL) as store:
            for number in range(8):
                await store.write(batch(*((series(job=f"{number}-{each}"), [each], [0.0]) for each in range(20))))
                await store.write(one(1.0, HOUR, job=str(number)), tenant="other")
                await store.flush()
        replica = MemoryVolume()
        for written in keyvalue.batches:
            replica.land("keyvalue", tuple(written.operations()))
            follower = TimeSeriesReader(MemoryFollower(replica), SMALL)
            for tenant in await follower.tenants():
                assert (await follower.verify(tenant=tenant)).problems == []

    asyncio.run(run())


def test_ids_are_those_of_the_store_and_not_of_a_memory_before_a_crash() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        keyvalue = MemoryKeyValue(volume)
        store = await TimeSeriesStore.over(keyvalue, SMALL)
        await store.write(one(1.0, job="a"), durable=True)
        volume.hold()
        await store.write(one(2.0, job="lost"))
        await store.flush(durable=False)
        keyvalue.crash()
        store._coordinator.abort()
        volume.release()
        async with await opened(volume) as after:
            await after.write(one(3.0, job="b"), durable=True)
            assert {dict(labels)["job"]: rows for labels, rows in (await everything(after)).items()} == {
                "a": [(0, 1.0)],
                "b": [(0, 3.0)],
            }
            assert (await after.verify()).problems == []

    asyncio.run(run())


def test_all_hours_of_a_query_are_of_one_snapshot() -> None:
    """A query that began before a flush sees nothing of it in any hour, however long it reads."""

    async def work(store: TimeSeriesStore) -> None:
        pair = lambda value: batch((series(), [0, HOUR, 2 * HOUR], [value] * 3))  # noqa: E731
        await store.write(pair(1.0), durable=True)

        async def slowly(moment: object) -> list[float]:
            from penstock.timeseries.read.selection import select_columns

            await store.write(pair(2.0), durable=True)
            await store.compact()
            columns = await select_columns(moment, (), 0, 3 * HOUR, store._config.engine)  # type: ignore[arg-type]
            return columns.values.tolist()

        assert await store.read("default", slowly) == [1.0] * 3
        assert (await store.select_columns([])).values.tolist() == [2.0] * 3

    with_store(work)


def test_a_flush_covers_a_write_that_was_accepted_during_an_earlier_flush() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(one(1.0))
        earlier = asyncio.create_task(store.flush())
        await asyncio.sleep(0)
        await store.write(one(2.0, 1))
        await store.flush()
        assert await everything(store) == {(("__name__", "up"),): [(0, 1.0), (1, 2.0)]}
        await earlier

    with_store(work)


def test_one_flush_writes_one_index_record_for_a_label_and_not_one_for_a_series() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch(*((series(job="same", host=str(number)), [0], [0.0]) for number in range(500))))
        await store.flush()

        async def rows(moment: object) -> int:
            from penstock.timeseries.format.state import INDEX

            return int(moment.state.directory(INDEX).rows.sum())  # type: ignore[attr-defined]

        assert await store.read("default", rows) == 500 + 2

    with_store(work)
