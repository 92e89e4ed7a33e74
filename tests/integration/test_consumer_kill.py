"""kill -9 of consumers at random: every batch that was produced is in the store once, in the order of the queue."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration import consumer_worker

from penstock.buffer import Producer
from penstock.objects import open_store
from penstock.testing.servers.object_stores import S3Server
from penstock.timeseries import TimeSeriesStore
from penstock.timeseries.promql import parse_selector_text
from penstock.vector import VectorStore

KILLS = 3
BATCHES = 30
LIFE_SECONDS_MAX = 0.6
START_SECONDS_MAX = 120.0

WORLD = multiprocessing.get_context("forkserver")
WORLD.set_forkserver_preload(["tests.integration.consumer_worker"])

MANIFEST = "ingest/manifest"

Batch = Callable[[int], tuple[bytes, list[bytes]]]
Consume = Callable[[str, str, dict[str, Any]], None]


@dataclass(frozen=True)
class Place:
    """Where a store and its queue lie."""

    url: str
    queue: str
    options: dict[str, Any] = field(default_factory=dict)


def in_directory(folder: Path) -> Place:
    return Place(f"file://{folder}/store", f"file://{folder}/queue")


def in_bucket(folder: Path, server: S3Server) -> Place:
    base = f"s3://penstock/consumer-kill/{folder.parent.name}/{folder.name}"
    return Place(f"{base}/store", f"{base}/queue", server.options)


@pytest.mark.chaos(seeds=1, weight=1)
@pytest.mark.integration
def test_every_sample_of_the_queue_is_stored_once(seed: int, tmp_path: Path) -> None:
    check_samples(in_directory(tmp_path), seed)


@pytest.mark.chaos(seeds=1, weight=1)
@pytest.mark.integration
def test_on_s3_every_sample_of_the_queue_is_stored_once(seed: int, tmp_path: Path, s3_server: S3Server) -> None:
    check_samples(in_bucket(tmp_path, s3_server), seed)


@pytest.mark.chaos(seeds=1, weight=1)
@pytest.mark.integration
def test_every_row_of_the_queue_is_stored_or_deleted_once(seed: int, tmp_path: Path) -> None:
    check_rows(in_directory(tmp_path), seed)


@pytest.mark.chaos(seeds=1, weight=1)
@pytest.mark.integration
def test_on_s3_every_row_of_the_queue_is_stored_or_deleted_once(seed: int, tmp_path: Path, s3_server: S3Server) -> None:
    check_rows(in_bucket(tmp_path, s3_server), seed)


def check_samples(place: Place, seed: int) -> None:
    """The ledger is the number of batches produced: each brings a sample of its own, and overwrites one of all."""
    produced = _play(place, seed, consumer_worker.consume_samples, consumer_worker.sample_batch)
    asyncio.run(consumer_worker.drain(place.url, place.queue, place.options, "timeseries"))

    async def check() -> None:
        async with await TimeSeriesStore.open(place.url, "timeseries", **place.options) as store:
            assert store.position(consumer_worker.SOURCE) == produced - 1
            own = await store.select_columns(parse_selector_text("own"))
            assert own.timestamps.tolist() == list(range(produced))
            assert own.values.tolist() == [float(number) for number in range(produced)]
            last = await store.select_columns(parse_selector_text("last"))
            assert last.values.tolist() == [float(produced - 1)]
        store_of_queue = await open_store(place.queue, **place.options)
        kept = [meta.key async for page in store_of_queue.list("ingest-rejected/") for meta in page]
        assert len([key for key in kept if key.endswith(".json")]) == len(range(0, produced, 10))
        await store_of_queue.close()

    asyncio.run(check())


def check_rows(place: Place, seed: int) -> None:
    produced = _play(place, seed, consumer_worker.consume_vectors, consumer_worker.vector_batch)
    asyncio.run(consumer_worker.drain(place.url, place.queue, place.options, "vector"))
    expected: dict[str, float] = {}
    for number in range(produced):
        ids = [f"{number - number % 2}-{row}" for row in range(consumer_worker.ROWS)]
        if number % 4 == 1:
            for one in ids:
                expected.pop(one, None)
        else:
            expected.update(dict.fromkeys(ids, float(number + 1)))

    async def check() -> None:
        async with await VectorStore.open(place.url, "vectors", **place.options) as store:
            assert store.position(consumer_worker.SOURCE) == produced - 1
            collection = await store.collection("t", "i", "m")
            every = [f"{number}-{row}" for number in range(produced) for row in range(consumer_worker.ROWS)]
            held = await collection.get(every, ("id", "vector"))
            found = zip(held["id"].to_pylist(), np.array(held["vector"].to_pylist())[:, 0].tolist(), strict=True)
            assert dict(found) == expected
            assert (await collection.verify()).problems == []

    asyncio.run(check())


def _play(place: Place, seed: int, consume: Consume, batch: Batch) -> int:
    entropy = random.Random(seed)
    produced = 0
    for _ in range(KILLS):
        asyncio.run(_produce(place, range(produced, produced + BATCHES), batch))
        produced += BATCHES
        _kill_one(place, consume, entropy.uniform(0, LIFE_SECONDS_MAX))
    return produced


async def _produce(place: Place, numbers: range, batch: Batch) -> None:
    store = await open_store(place.queue, **place.options)
    async with Producer(store) as producer:
        for number in numbers:
            payload, records = batch(number)
            await producer.produce(records, payload)
            await producer.flush()
    await store.close()


def _kill_one(place: Place, consume: Consume, seconds: float) -> None:
    """Let a consumer live for some time after it took the queue over, then kill it."""
    process = WORLD.Process(target=consume, args=(place.url, place.queue, place.options), daemon=True)
    try:
        asyncio.run(_took_over(place, process))
        time.sleep(seconds)
        assert process.exitcode is None, f"the consumer ended by itself with {process.exitcode}"
    finally:
        process.kill()
        process.join()


async def _took_over(place: Place, process: BaseProcess) -> None:
    """Start the consumer, and wait until the queue's manifest is another one."""
    queue = await open_store(place.queue, **place.options)
    before = (await queue.get(MANIFEST)).data
    process.start()
    end = time.monotonic() + START_SECONDS_MAX
    while (await queue.get(MANIFEST)).data == before:
        assert process.exitcode is None, f"the consumer ended by itself with {process.exitcode}"
        assert time.monotonic() < end, "the consumer did not start"
        await asyncio.sleep(0.01)
    await queue.close()
