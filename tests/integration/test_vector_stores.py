"""The vector store on real media: fences and followers across processes, on a directory and on S3."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.integration import vector_worker

from penstock.errors import Fenced, NotFound
from penstock.testing.servers.object_stores import S3Server
from penstock.vector import ALL_LISTS, VectorConfig, VectorStore, partial_blocks

pytestmark = pytest.mark.integration

WORLD = multiprocessing.get_context("forkserver")
WORLD.set_forkserver_preload(["tests.integration.vector_worker"])
STALENESS_SECONDS = 1.0
# On top of the staleness: a busy machine's pauses, and the read itself.
GRACE_SECONDS = 60.0
Place = tuple[str, dict[str, Any]]


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return f"file://{tmp_path}/store", {}
    server: S3Server = request.getfixturevalue("s3_server")
    return f"s3://penstock/vector-stores/{tmp_path.name}", server.options


def rows(ids: list[str], vectors: Any) -> pa.Table:
    matrix = np.asarray(vectors, np.float32)
    vector = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])
    return pa.table({"id": ids, "vector": vector, "text": [f"text of {name}" for name in ids]})


def test_a_follower_in_another_process_is_late_by_a_bounded_time(place: Place, tmp_path: Path) -> None:
    """A writer process writes and compacts for ever; each durable change is seen here in time, whole and alone."""
    url, options = place
    journal = tmp_path / "journal"
    process = WORLD.Process(target=vector_worker.write, args=(url, options, journal), daemon=True)
    process.start()
    try:
        wait_for(lambda: len(lines(journal)) > 3)
        asyncio.run(follow(url, options, journal))
    finally:
        process.kill()
        process.join()


async def follow(url: str, options: dict[str, Any], journal: Path) -> None:
    config = VectorConfig(staleness_seconds=STALENESS_SECONDS)
    async with await VectorStore.open_reader(url, "vectors", config, **options) as reader:
        collection = await reader.collection("tenant", "index", "model")
        for _ in range(8):
            durable = int(lines(journal)[-1])
            seen, end = -1, time.monotonic() + STALENESS_SECONDS + GRACE_SECONDS
            while seen < durable:
                assert time.monotonic() < end, f"change {durable} was durable and {seen} is seen"
                found = await collection.search(np.zeros((1, 16)), 1000, probes=ALL_LISTS, columns=("attributes",))
                assert partial_blocks(found) == []
                assert len(set(found["id"].to_pylist())) == found.num_rows
                seen = await reader.position(vector_worker.SOURCE) or -1
            await asyncio.sleep(0.1)


def test_a_second_writer_fences_the_first(place: Place) -> None:
    url, options = place

    async def run() -> None:
        first = await VectorStore.open(url, "vectors", **options)
        collection = await first.collection("t", "i", "m", dimensions=2)
        await collection.upsert(rows(["a"], [[1, 0]]), durable=True)
        async with await VectorStore.open(url, "vectors", **options) as second:
            with pytest.raises(Fenced):
                await collection.upsert(rows(["b"], [[0, 1]]), durable=True)
            held = await (await second.collection("t", "i", "m")).search([[1.0, 1.0]], 5)
            assert held["id"].to_pylist() == ["a"]
        with pytest.raises(Fenced):
            await first.close()

    asyncio.run(run())


def test_what_is_written_is_found_after_reopening(place: Place) -> None:
    url, options = place
    vectors = np.random.default_rng(1).standard_normal((3000, 24)).astype(np.float32)
    ids = [f"r{n}" for n in range(3000)]

    async def run() -> None:
        async with await VectorStore.open(url, "vectors", **options) as store:
            collection = await store.collection("t", "i", "m", dimensions=24)
            for start in range(0, 3000, 700):
                await collection.upsert(rows(ids[start : start + 700], vectors[start : start + 700]))
            await collection.delete(ids[:100])
        async with await VectorStore.open(url, "vectors", **options) as store:
            collection = await store.collection("t", "i", "m")
            unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            best = np.argsort(-(unit[100:] @ unit[:20].T), axis=0)[:5].T + 100
            found = await collection.search(vectors[:20], 5, probes=ALL_LISTS)
            assert found["id"].to_numpy().reshape(20, 5).tolist() == [[f"r{n}" for n in line] for line in best]
            assert (await collection.search(text="r2999", k=1))["id"].to_pylist() == ["r2999"]
            assert [report.problems for report in await store.verify()] == [[]]

    asyncio.run(run())


def test_a_store_that_is_not_there_cannot_be_followed(place: Place) -> None:
    url, options = place

    async def run() -> None:
        with pytest.raises(NotFound):
            async with await VectorStore.open_reader(url, "nothing", **options) as reader:
                await reader.collection("t", "i", "m")

    asyncio.run(run())


def lines(journal: Path) -> list[str]:
    return journal.read_text().split("\n")[:-1] if journal.exists() else []


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
