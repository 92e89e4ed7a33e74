"""The short way of one query over what is in memory: the answer of the general way, to the last bit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import QUIET

from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.vector import VectorConfig, VectorStore
from penstock.vector.search import search as search_module
from penstock.vector.search.search import Searcher

Make = Callable[..., pa.Table]

CONFIG = VectorConfig(list_rows=16, threads=1, upkeep_pause_seconds=float("inf"), coordinator=QUIET)
RANDOM = np.random.default_rng(21)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each query that tried the short way, whether it was answered there."""
    seen: list[bool] = []
    short = search_module.answer_warm  # type: ignore[attr-defined]

    def watched(*asked: Any) -> Any:
        answer = short(*asked)
        seen.append(answer is not None)
        return answer

    monkeypatch.setattr(search_module, "answer_warm", watched)
    return seen


async def loaded(rows: Make, store: VectorStore, metric: str, vectors: np.ndarray) -> Any:
    collection = await store.collection("t", "i", metric, dimensions=vectors.shape[1], metric=metric)
    await collection.upsert(rows([f"r{place}ü" for place in range(len(vectors))], vectors))
    await store.flush()
    await store.tend()
    return collection


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("dead", [0, 3], ids=["all-alive", "some-dead"])
def test_the_short_way_and_the_general_way_agree_to_the_last_bit(
    rows: Make, metric: str, dead: int, answered: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the rows are equal ones, which both ways put in the order of their age."""
    vectors = RANDOM.standard_normal((1200, 8)).astype(np.float32)
    vectors[600:700] = vectors[:100]

    async def run() -> None:
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), CONFIG) as store:
            collection = await loaded(rows, store, metric, vectors)
            if dead:
                await collection.delete([f"r{place}ü" for place in range(0, 1200, dead)])
                await store.compact()
            for options in ({"probes": 5}, {"recall_target": 0.9}, {}):
                await collection.search(vectors, 10, **options)
                queries = np.concatenate([vectors[:60], RANDOM.standard_normal((60, 8)).astype(np.float32)])
                warm = [await collection.search(query, 10, **options) for query in queries]
                with monkeypatch.context() as general:
                    general.setattr(Searcher, "_warm", lambda *_: None)
                    slow = [await collection.search(query, 10, **options) for query in queries]
                assert [answer.to_pylist() for answer in warm] == [answer.to_pylist() for answer in slow]
                assert warm[0].schema.equals(slow[0].schema, check_metadata=True)
        assert sum(answered) > 0.8 * len(answered)

    asyncio.run(run())


def test_what_is_not_in_memory_or_not_there_is_left_to_the_general_way(rows: Make, answered: list[bool]) -> None:
    vectors = RANDOM.standard_normal((200, 4)).astype(np.float32)

    async def run() -> None:
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), CONFIG) as store:
            collection = await loaded(rows, store, "cosine", vectors)
            cold = await collection.search(vectors[0], 5, probes=3)
            assert answered == [False]
            again = [await collection.search(vectors[0], 5, probes=3) for _ in range(2)]
            assert answered[-1]
            assert all(answer.equals(cold) for answer in again)
            # More rows than the probed lists have.
            assert (await collection.search(vectors[0], 200, probes=3)).num_rows == 200
            assert not answered[-1]

    asyncio.run(run())


def test_a_search_after_a_write_answers_from_the_new_moment(rows: Make, answered: list[bool]) -> None:
    vectors = RANDOM.standard_normal((300, 4)).astype(np.float32)

    async def run() -> None:
        async with await VectorStore.over(MemoryKeyValue(MemoryVolume()), CONFIG) as store:
            collection = await loaded(rows, store, "l2", vectors)
            for _ in range(3):
                assert (await collection.search(vectors[7], 1, probes=3))["id"].to_pylist() == ["r7ü"]
            assert answered[-1]
            await collection.delete(["r7ü"])
            await store.flush()
            for _ in range(3):
                assert (await collection.search(vectors[7], 1, probes=3))["id"].to_pylist() != ["r7ü"]

    asyncio.run(run())
