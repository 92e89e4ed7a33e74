"""Finding values of rows in blocks whose earlier rows have died or never had a value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.coordinator import CoordinatorConfig
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import VectorConfig, VectorStore

Make = Callable[..., pa.Table]


def test_a_row_before_the_first_value_of_its_bucket_has_none(rows: Make) -> None:
    """The bucket keeps its name when its first row dies: rows between have no value, and are no error."""

    async def run() -> None:
        config = VectorConfig(coordinator=CoordinatorConfig(flush_interval_seconds=900))
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), config) as store:
            collection = await store.collection("t", "i", "m", dimensions=2, metric="l2")
            names = [f"r{n}" for n in range(8)]
            stars = pa.array([1, *[None] * 5, 7, 8], pa.int64())
            await collection.upsert(rows(names, np.ones((8, 2)), stars=stars), durable=True)
            await collection.upsert(rows(["r0"], [[2, 2]]), durable=True)
            await store.compact()
            for asked in (["r1"], names):
                found = await collection.get(asked, ("id", "attributes"))
                expected = dict(zip(names, [None, *stars.to_pylist()[1:]], strict=True))
                assert {row["id"]: row["attributes"]["stars"] for row in found.to_pylist()} == {
                    name: expected[name] for name in asked
                }

    asyncio.run(run())


def test_few_and_many_rows_are_found_alike(rows: Make) -> None:
    async def run() -> None:
        config = VectorConfig(coordinator=CoordinatorConfig(flush_interval_seconds=900))
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), config) as store:
            collection = await store.collection("t", "i", "m", dimensions=2, metric="l2")
            names = [f"r{n}" for n in range(300)]
            texts = [f"text {n}" if n % 3 else None for n in range(300)]
            await collection.upsert(rows(names, np.random.default_rng(1).standard_normal((300, 2)), texts))
            await collection.delete(names[:40], durable=True)
            await store.compact()
            many = (await collection.get(names)).to_pylist()
            few = [row for name in names for row in (await collection.get([name])).to_pylist()]
            assert many == few
            assert [row["text"] for row in many] == texts[40:]

    asyncio.run(run())
