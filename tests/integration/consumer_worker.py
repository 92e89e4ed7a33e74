"""A process that consumes a queue into a store until it is killed, and the batches that it is fed."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.buffer import ConsumerConfig
from penstock.objects import open_store
from penstock.records import VectorOperation
from penstock.relay import (
    QueueConsumer,
    RejectedRecords,
    SamplesPayload,
    SeriesSink,
    StoreSink,
    VectorPayload,
    VectorSink,
    encode_table,
)
from penstock.timeseries import TimeSeriesStore
from penstock.vector import VectorStore

SOURCE = "queue"
TARGET = VectorPayload(tenant="t", index="i", model="m")
ROWS = 3


def sample_batch(number: int) -> tuple[bytes, list[bytes]]:
    """A sample of its own time, one that every batch overwrites, and a record that is none."""
    table = pa.table(
        {
            "labels": pa.array([[("__name__", "own")], [("__name__", "last")]], pa.map_(pa.string(), pa.string())),
            "timestamp_ms": pa.array([number, 0], pa.int64()),
            "value": [float(number), float(number)],
        }
    )
    return SamplesPayload().encode(), [encode_table(table), b"none"] if number % 10 == 0 else [encode_table(table)]


def vector_batch(number: int) -> tuple[bytes, list[bytes]]:
    """Rows of its own, or the deletion of those of the batch before."""
    ids = [f"{number - number % 2}-{row}" for row in range(ROWS)]
    if number % 4 == 1:
        return TARGET.encode(VectorOperation.DELETE), [encode_table(pa.table({"id": ids}))]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.full(4 * ROWS, number + 1, np.float32)), 4)
    return TARGET.encode(), [encode_table(pa.table({"id": ids, "vector": vectors}))]


def consume_samples(url: str, queue_url: str, options: dict[str, Any]) -> None:
    asyncio.run(_consume(url, queue_url, options, "timeseries", until_empty=False))


def consume_vectors(url: str, queue_url: str, options: dict[str, Any]) -> None:
    asyncio.run(_consume(url, queue_url, options, "vector", until_empty=False))


async def drain(url: str, queue_url: str, options: dict[str, Any], kind: str) -> int:
    """Consume what is left; how many records this run set aside."""
    return await _consume(url, queue_url, options, kind, until_empty=True)


async def _consume(url: str, queue_url: str, options: dict[str, Any], kind: str, *, until_empty: bool) -> int:
    queue = await open_store(queue_url, **options)
    rejected = RejectedRecords(queue, ConsumerConfig().data_path_prefix, kind)
    sink: StoreSink[object]
    if kind == "vector":
        async with await VectorStore.open(url, "vectors", **options) as vectors:
            sink = VectorSink(vectors, SOURCE, rejected)  # type: ignore[assignment]
            await QueueConsumer(kind, queue, sink).run(until_empty=until_empty)
    else:
        async with await TimeSeriesStore.open(url, "timeseries", **options) as series:
            sink = SeriesSink(series, SOURCE, rejected)  # type: ignore[assignment]
            await QueueConsumer(kind, queue, sink).run(until_empty=until_empty)
    await queue.close()
    return rejected.count
