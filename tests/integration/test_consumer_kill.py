"""kill -9 of consumers at random: every batch that was produced is in the store once, in the order of the queue."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.integration import consumer_worker

from penstock.buffer import Producer
from penstock.objects import open_store
from penstock.timeseries import TimeSeriesStore
from penstock.timeseries.promql import parse_selector_text
from penstock.vector import VectorStore

KILLS = 3
BATCHES = 30
LIFE_SECONDS_MAX = 0.6
START_SECONDS_MAX = 120.0

WORLD = multiprocessing.get_context("forkserver")
WORLD.set_forkserver_preload(["tests.integration.consumer_worker"])

Batch = Callable[[int], tuple[bytes, list[bytes]]]


@pytest.mark.chaos(seeds=1, weight=1)
@pytest.mark.integration
def test_every_sample_of_the_queue_is_stored_once(seed: int, tmp_path: Path) -> None:
    """The ledger is the number of batches produced: each brings a sample of its own, and overwrites one of all."""
    url, queue, produced = _play(tmp_path, seed, consumer_worker.consume_samples, consumer_worker.sample_batch)
    asyncio.run(consumer_worker.drain(url, queue, "timeseries"))

    async def check() -> None:
        async with await TimeSeriesStore.open(url, "timeseries") as store:
            assert store.position(consumer_worker.SOURCE) == produced - 1
            own = await store.select_columns(parse_selector_text("own"))
            assert own.timestamps.tolist() == list(range(produced))
            assert own.values.tolist() == [float(number) for number in range(produced)]
            last = await store.select_columns(parse_selector_text("last"))
            assert last.values.tolist() == [float(produced - 1)]
        store_of_queue = await open_store(queue)
        kept = [meta.key async for page in store_of_queue.list("ingest-rejected/") for meta in page]
        assert len([key for key in kept if key.endswith(".json")]) == len(range(0, produced, 10))
        await store_of_queue.close()

    asyncio.run(check())


@pytest.mark.chaos(seeds=1, weight=1)
@pytest.mark.integration
def test_every_row_of_the_queue_is_stored_or_deleted_once(seed: int, tmp_path: Path) -> None:
    url, queue, produced = _play(tmp_path, seed, consumer_worker.consume_vectors, consumer_worker.vector_batch)
    asyncio.run(consumer_worker.drain(url, queue, "vector"))
    expected: dict[str, float] = {}
    for number in range(produced):
        ids = [f"{number - number % 2}-{row}" for row in range(consumer_worker.ROWS)]
        if number % 4 == 1:
            for one in ids:
                expected.pop(one, None)
        else:
            expected.update(dict.fromkeys(ids, float(number + 1)))

    async def check() -> None:
        async with await VectorStore.open(url, "vectors") as store:
            assert store.position(consumer_worker.SOURCE) == produced - 1
            collection = await store.collection("t", "i", "m")
            every = [f"{number}-{row}" for number in range(produced) for row in range(consumer_worker.ROWS)]
            held = await collection.get(every, ("id", "vector"))
            found = zip(held["id"].to_pylist(), np.array(held["vector"].to_pylist())[:, 0].tolist(), strict=True)
            assert dict(found) == expected
            assert (await collection.verify()).problems == []

    asyncio.run(check())


def _play(tmp_path: Path, seed: int, consume: Callable[[str, str], None], batch: Batch) -> tuple[str, str, int]:
    url, queue = f"file://{tmp_path}/store", f"file://{tmp_path}/queue"
    entropy = random.Random(seed)
    produced = 0
    for _ in range(KILLS):
        asyncio.run(_produce(queue, range(produced, produced + BATCHES), batch))
        produced += BATCHES
        _kill_one(consume, url, queue, tmp_path / "queue", entropy.uniform(0, LIFE_SECONDS_MAX))
    return url, queue, produced


async def _produce(queue: str, numbers: range, batch: Batch) -> None:
    store = await open_store(queue)
    async with Producer(store) as producer:
        for number in numbers:
            payload, records = batch(number)
            await producer.produce(records, payload)
            await producer.flush()
    await store.close()


def _kill_one(consume: Callable[[str, str], None], url: str, queue: str, folder: Path, seconds: float) -> None:
    """Let a consumer live for some time after it took the queue over, then kill it."""
    manifest = folder / "ingest" / "manifest"
    before = manifest.read_bytes()
    process = WORLD.Process(target=consume, args=(url, queue), daemon=True)
    process.start()
    try:
        end = time.monotonic() + START_SECONDS_MAX
        while manifest.read_bytes() == before:
            assert process.exitcode is None, f"the consumer ended by itself with {process.exitcode}"
            assert time.monotonic() < end, "the consumer did not start"
            time.sleep(0.01)
        time.sleep(seconds)
        assert process.exitcode is None, f"the consumer ended by itself with {process.exitcode}"
    finally:
        process.kill()
        process.join()
