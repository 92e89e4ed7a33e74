"""Most rows of a collection go away and others come: lists are shaped for the rows that are there now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import QUIET, collection_of, opened

from penstock.keyvalue import MemoryVolume
from penstock.vector import Collection, VectorConfig

ROWS, GONE, DIMENSIONS = 1200, 1080, 16


def clustered(seed: int, count: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(40, DIMENSIONS))
    vectors: np.ndarray = (centres[np.arange(count) % 40] + 0.3 * random.normal(size=(count, DIMENSIONS))).astype("f4")
    return vectors


async def placed(collection: Collection, vectors: np.ndarray) -> float:
    """The share of rows that lie in the list of their nearest centre: a search of one list finds them."""
    found = await collection.search(vectors, 1, probes=1)
    answers = zip(found["query"].to_pylist(), found["id"].to_pylist(), strict=True)
    return sum(str(query) == name for query, name in answers) / len(vectors)


@pytest.mark.parametrize("tends_between", [True, False])
def test_rows_that_take_the_place_of_deleted_ones_end_in_their_nearest_lists(
    rows: Callable[..., pa.Table], tends_between: bool
) -> None:
    """Recall is measured on the rule that they do: where they did not, a search for 0.95 found two thirds."""

    async def run() -> None:
        config = VectorConfig(list_rows=16, threads=1, coordinator=QUIET)
        async with await opened(MemoryVolume(), config) as store:
            collection = await collection_of(store, dimensions=DIMENSIONS, metric="cosine")
            names, vectors = [str(number) for number in range(ROWS)], clustered(1, ROWS)
            await collection.upsert(rows(names, vectors), durable=True)
            await store.tend()
            await collection.delete(names[:GONE], durable=True)
            if tends_between:
                await store.tend()
            vectors[:GONE] = clustered(2, GONE)
            await collection.upsert(rows(names[:GONE], vectors[:GONE]), durable=True)
            await store.tend()
            assert await placed(collection, vectors) > 0.95
            assert not (await collection.verify()).problems

    asyncio.run(run())
