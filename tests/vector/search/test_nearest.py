"""Exact when all lists are probed, whatever the codes lose; native, however many lists and waves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import ALL_LISTS, DistanceMetric, VectorConfig, VectorStore, attribute

Make = Callable[..., pa.Table]


def exact(metric: DistanceMetric, rows: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    prepared, asked = metric.prepare(rows).astype(np.float64), metric.prepare(queries).astype(np.float64)
    scores = (
        -np.linalg.norm(asked[:, None] - prepared[None], axis=2) if metric is DistanceMetric.L2 else asked @ prepared.T
    )
    return -np.sort(-scores, axis=1)[:, :k]


def searched(
    rows: Make, metric: DistanceMetric, vectors: np.ndarray, queries: np.ndarray, k: int, **options: Any
) -> np.ndarray:
    async def run() -> np.ndarray:
        config = VectorConfig(list_rows=32, **options)
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), config) as store:
            collection = await store.collection("t", "i", "m", dimensions=vectors.shape[1], metric=metric)
            await collection.upsert(rows([f"r{n}" for n in range(len(vectors))], vectors), durable=True)
            answer = await collection.search(queries, k, probes=ALL_LISTS)
            return answer["score"].to_numpy().reshape(len(queries), k)

    return asyncio.run(run())


@pytest.mark.parametrize("metric", list(DistanceMetric))
@pytest.mark.parametrize(
    ("spread", "offset"),
    [(1.0, 0.0), (1e-4, 3.0), (1e6, 0.0), (1e-6, 0.0)],
    ids=["plain", "nearly-equal", "large", "small"],
)
def test_all_probes_are_exact_even_where_codes_cannot_tell_rows_apart(
    rows: Make, metric: DistanceMetric, spread: float, offset: float
) -> None:
    """Rows that differ far below the codes' resolution: the search must fetch until no doubt is left."""
    random = np.random.default_rng(7)
    vectors = (random.standard_normal((900, 12)) * spread + offset).astype(np.float32)
    queries = (random.standard_normal((20, 12)) * spread + offset).astype(np.float32)
    found = searched(rows, metric, vectors, queries, 10)
    expected = exact(metric, vectors, queries, 10)
    assert np.allclose(found, expected, rtol=2e-5, atol=2e-5 * spread * max(spread, 1.0) + 1e-6 * offset)


def test_waves_of_lists_that_do_not_fit_together_find_the_same(rows: Make) -> None:
    random = np.random.default_rng(8)
    vectors = random.standard_normal((2000, 8)).astype(np.float32)
    queries = random.standard_normal((50, 8)).astype(np.float32)
    whole = searched(rows, DistanceMetric.COSINE, vectors, queries, 7)
    waves = searched(rows, DistanceMetric.COSINE, vectors, queries, 7, cache_bytes=8000)
    assert np.allclose(whole, waves)
    assert np.allclose(whole, exact(DistanceMetric.COSINE, vectors, queries, 7), atol=1e-5)


def test_more_queries_than_one_kernel_call_takes(rows: Make) -> None:
    random = np.random.default_rng(9)
    vectors = random.standard_normal((300, 4)).astype(np.float32)
    queries = random.standard_normal((2500, 4)).astype(np.float32)
    found = searched(rows, DistanceMetric.L2, vectors, queries, 3)
    assert np.allclose(found, exact(DistanceMetric.L2, vectors, queries, 3), rtol=1e-4, atol=1e-5)


def test_rows_that_are_all_equal_are_all_found(rows: Make) -> None:
    found = searched(rows, DistanceMetric.L2, np.ones((500, 4), np.float32), np.ones((1, 4), np.float32), 400)
    assert (found == 0).all()


@pytest.mark.cases(quick=2)
@pytest.mark.parametrize("metric", list(DistanceMetric))
@pytest.mark.parametrize("queried", [1, 40])
def test_a_filter_that_leaves_few_rows_finds_exactly_the_best_of_them(
    rows: Make, metric: DistanceMetric, queried: int
) -> None:
    """One query looks into lists, many are compared with every row that is left: the answers are the same."""
    random = np.random.default_rng(11)
    vectors = random.standard_normal((3000, 8)).astype(np.float32)
    queries = random.standard_normal((queried, 8)).astype(np.float32)
    rare = np.arange(3000) % 30 == 7

    async def run() -> None:
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), VectorConfig(list_rows=32)) as store:
            collection = await store.collection("t", "i", "m", dimensions=8, metric=metric)
            table = rows([f"r{n}" for n in range(3000)], vectors, rare=rare)
            await collection.upsert(table)
            await collection.delete(["r7"], durable=True)
            left = np.flatnonzero(rare)[1:]
            expected = exact(metric, vectors[left], queries, 99)
            for k in (10, 99, 500):
                answer = await collection.search(queries, k, filter=attribute("rare") == True)  # noqa: E712
                found = answer["score"].to_numpy().reshape(queried, min(k, len(left)))
                assert np.allclose(found, expected[:, :k], rtol=2e-5, atol=2e-5)
                assert {int(name[1:]) for name in answer["id"].to_pylist()} <= set(left.tolist())

    asyncio.run(run())


@pytest.mark.cases(quick=4)
@pytest.mark.parametrize("metric", list(DistanceMetric))
@pytest.mark.parametrize("scale", [1.0, 1e-18], ids=["usual", "tiny"])
def test_a_query_alone_has_the_answer_to_the_last_bit_that_it_has_among_many(
    rows: Make, metric: DistanceMetric, scale: float
) -> None:
    """Few candidates are compared as a copy and many where they lie, in blocks with and without gaps."""
    random = np.random.default_rng(12)
    vectors = (random.standard_normal((1500, 8)) * scale).astype(np.float32)
    queries = (random.standard_normal((30, 8)) * scale).astype(np.float32)

    async def run() -> None:
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), VectorConfig(list_rows=32)) as store:
            collection = await store.collection("t", "i", "m", dimensions=8, metric=metric)
            names = [f"r{n}" for n in range(1500)]
            await collection.upsert(rows(names, vectors, [f"text of {name}" for name in names], n=list(range(1500))))
            await collection.delete(names[::7], durable=True)
            await store.compact()
            for probes in (3, ALL_LISTS):
                options: dict[str, Any] = {"probes": probes, "columns": ("text", "vector", "attributes")}
                together = await collection.search(queries, 10, **options)
                alone = [await collection.search(query, 10, **options) for query in queries]
                assert [row | {"query": place} for place, part in enumerate(alone) for row in part.to_pylist()] == (
                    together.to_pylist()
                )

    asyncio.run(run())
