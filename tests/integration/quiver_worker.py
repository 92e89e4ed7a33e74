"""The ingesting process of the quiver's kill -9 test, with two subscribers in it: lines for what it was told.

It is expected to be killed at any moment: in a write of the log, in a finalisation, in an acknowledgement, in a removal.
"""

from __future__ import annotations

import asyncio
import os
from itertools import count
from pathlib import Path

import pyarrow as pa

from penstock.quiver import (
    Bundle,
    DeliveryOrder,
    Quiver,
    QuiverConfig,
    RetentionConfig,
    SegmentConfig,
    SubscriberConfig,
    WalConfig,
)

SUBSCRIBERS = {"parquet": DeliveryOrder.OLDEST_FIRST, "otlp": DeliveryOrder.NEWEST_FIRST}
PRODUCERS = 8
# Small segments, files and checkpoints, so that every kind of work is under way at some moment.
CONFIG = QuiverConfig(
    segment=SegmentConfig(target_size=4 << 10, max_open_duration=0.05),
    wal=WalConfig(max_size=1 << 20, rotation_size=64 << 10, spare_files=1),
    retention=RetentionConfig(size_cap=64 << 20),
    checkpoint_records=20,
    ack_log_file_size=16 << 10,
)


def work(path: str, journal: Path, first: int) -> None:
    """Ingest numbers from `first` on, deliver and acknowledge, until killed."""
    asyncio.run(_work(path, journal, first))


async def _work(path: str, journal: Path, first: int) -> None:
    lines = os.open(journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    store = await Quiver.open(path, CONFIG)
    for name, order in SUBSCRIBERS.items():
        await store.register(name, SubscriberConfig(order=order))
    numbers = count(first)

    async def produce() -> None:
        for number in numbers:
            os.write(lines, b"sent %d\n" % number)
            await store.ingest(Bundle({"logs": pa.record_batch({"n": pa.array([number] * 20, pa.int64())})}))
            os.write(lines, b"stored %d\n" % number)

    async def consume(name: str) -> None:
        while True:
            delivery = await store.next(name)
            assert delivery is not None
            found = sorted(set((await delivery.table()).column("n").to_pylist()))
            text = " ".join(map(str, found))
            os.write(lines, f"acking {name} {text}\n".encode())
            await delivery.ack()
            os.write(lines, f"acked {name} {text}\n".encode())

    await asyncio.gather(*(produce() for _ in range(PRODUCERS)), *(consume(name) for name in SUBSCRIBERS))
