"""A queue on a disk that is full, a real one: it can be drained, and then takes in again."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.buffer import Collector, CollectorConfig, Consumer, ConsumerConfig, Producer, ProducerConfig
from penstock.errors import StorageFull
from penstock.objects import open_store

RECORD = b"r" * 20_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"this user cannot mount a small file system: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


async def _produce_until_full(url: str) -> int:
    """How many batches were acknowledged before the disk was full."""
    store = await open_store(url)
    taken = 0
    async with Producer(store, ProducerConfig(flush_interval_seconds=0.0)) as producer:
        while True:
            try:
                await (await producer.produce([RECORD])).durable()
            except StorageFull:
                break
            taken += 1
    # And not a block is left for anybody.
    for size in (4096, 1):
        with pytest.raises(StorageFull):
            for number in range(1000):
                await store.put(f"ballast/{size}-{number}", b"b" * size)
    await store.close()
    return taken


async def _drain(url: str, taken: int) -> None:
    """By a process that finds the disk full: it takes the fence and acknowledges one batch after the other."""
    store = await open_store(url)
    consumer = Consumer(store, ConsumerConfig(collect=False))
    for _ in range(taken):
        batch = await consumer.next_batch()
        assert batch is not None
        assert list(batch.records) == [RECORD]
        await consumer.ack(batch.sequence)
        await consumer.flush()
    assert await consumer.next_batch() is None
    # What a consumer's own collector does after the grace, which is a short one here.
    collected = await Collector(store, CollectorConfig(grace_seconds=0.001), renew=consumer._renew_fence).collect()
    assert collected.deleted >= taken
    await consumer.close()
    await store.close()


async def _resume(url: str) -> None:
    store = await open_store(url)
    async with Producer(store, ProducerConfig(flush_interval_seconds=0.0)) as producer:
        await (await producer.produce([RECORD])).durable()
    await store.close()


def test_a_full_disk_is_drained_by_a_new_consumer_and_takes_in_again(small_disk: Path) -> None:
    async def promise() -> None:
        url = f"file://{small_disk}"
        taken = await _produce_until_full(url)
        assert taken > 20
        await _drain(url, taken)
        await _resume(url)

    asyncio.run(promise())
