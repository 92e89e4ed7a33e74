"""Consumers of a queue that feed the stores: every record counts once, and what cannot be stored is set aside by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.buffer import ConsumerConfig, Producer
from penstock.errors import InvalidInput, Unsupported
from penstock.objects import ObjectStore, open_store
from penstock.records import ArrowEnvelope, Signal, TelemetryEnvelope, VectorOperation
from penstock.relay import (
    QueueConsumer,
    RejectedRecords,
    SamplesPayload,
    SeriesSink,
    VectorPayload,
    VectorSink,
    decode_table,
    encode_table,
)
from penstock.telemetry import LOGS, RowSource, decode_openmetrics, encode_records
from penstock.timeseries import SampleBatch, TimeSeriesConfig, TimeSeriesStore
from penstock.timeseries.promql import MatrixResult, parse_selector_text
from penstock.vector import VectorStore

SOURCE = "queue"
VECTORS = VectorPayload(tenant="t", index="i", model="m")


def samples(name: str, *values: float, start: int = 0) -> bytes:
    rows = len(values)
    labels = pa.array([[("__name__", name)]] * rows, pa.map_(pa.string(), pa.string()))
    times = pa.array(range(start, start + rows), pa.int64())
    return encode_table(pa.table({"labels": labels, "timestamp_ms": times, "value": pa.array(values, pa.float64())}))


def rows(*ids: str) -> bytes:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(4 * len(ids), np.float32)), 4)
    return encode_table(pa.table({"id": list(ids), "vector": vectors}))


async def produce(queue: ObjectStore, *batches: tuple[bytes, list[bytes]]) -> None:
    async with Producer(queue) as producer:
        for payload, records in batches:
            await producer.produce(records, payload)
            await producer.flush()


async def consume_samples(folder: Path, config: TimeSeriesConfig | None = None) -> tuple[dict[str, list[float]], int]:
    """All values by metric, and how many records were set aside."""
    queue = await open_store(f"file://{folder}/queue")
    async with await TimeSeriesStore.open(f"file://{folder}/store", "series", config) as store:
        rejected = RejectedRecords(queue, ConsumerConfig().data_path_prefix, "timeseries")
        await QueueConsumer("timeseries", queue, SeriesSink(store, SOURCE, rejected)).run(until_empty=True)
        found: dict[str, list[float]] = {}
        for name in await store.label_values("__name__"):
            result = await store.query(f'{{__name__="{name}"}}[1h]', 1_000_000)
            assert isinstance(result, MatrixResult)
            found[name] = result.columns.values.tolist()
    await queue.close()
    return found, rejected.count


def run(work: Callable[[ObjectStore], Awaitable[Any]], folder: Path) -> Any:
    async def opened() -> Any:
        queue = await open_store(f"file://{folder}/queue")
        try:
            return await work(queue)
        finally:
            await queue.close()

    return asyncio.run(opened())


def test_samples_of_a_queue_are_stored_with_their_sequence(tmp_path: Path) -> None:
    payload = SamplesPayload().encode()

    async def work(queue: ObjectStore) -> None:
        await produce(queue, (payload, [samples("a", 1, 2), samples("b", 5)]), (payload, [samples("a", 3, start=2)]))
        assert await consume_samples(tmp_path) == ({"a": [1, 2, 3], "b": [5]}, 0)
        # Nothing is left, and what comes later goes on behind it.
        await produce(queue, (payload, [samples("b", 6, start=1)]))
        assert await consume_samples(tmp_path) == ({"a": [1, 2, 3], "b": [5, 6]}, 0)

    run(work, tmp_path)


def test_a_batch_that_was_stored_and_not_acknowledged_is_passed_over(tmp_path: Path) -> None:
    """As after a kill between the store's write and the queue's."""
    payload = SamplesPayload().encode()

    async def work(queue: ObjectStore) -> None:
        await produce(queue, (payload, [samples("a", 1)]), (payload, [samples("a", 2, start=1)]))
        async with await TimeSeriesStore.open(f"file://{tmp_path}/store", "series") as store:
            batch = SampleBatch.from_table(decode_table(samples("a", 7)))
            await store.write(store.changes(SOURCE, 0).write(batch), durable=True)
        assert await consume_samples(tmp_path) == ({"a": [7, 2]}, 0)

    run(work, tmp_path)


def test_records_that_are_no_samples_are_set_aside_and_the_others_stored(tmp_path: Path) -> None:
    payload = SamplesPayload().encode()
    nameless = encode_table(
        pa.table(
            {
                "labels": pa.array([[("job", "x")]], pa.map_(pa.string(), pa.string())),
                "timestamp_ms": pa.array([1], pa.int64()),
                "value": [1.0],
            }
        )
    )
    wrong = encode_table(pa.table({"x": [1]}))

    async def work(queue: ObjectStore) -> None:
        await produce(
            queue,
            (payload, [samples("a", 1), b"no Arrow stream", nameless, wrong, samples("b", 2)]),
            (TelemetryEnvelope(Signal.METRICS).encode(), [b"otlp"]),
            (payload, [samples("a", 3, start=1)]),
        )
        assert await consume_samples(tmp_path) == ({"a": [1, 3], "b": [2]}, 4)
        kept = [meta.key async for page in queue.list("ingest-rejected/") for meta in page]
        assert len([key for key in kept if key.endswith(".json")]) == 4
        assert (await queue.get(f"ingest-rejected/timeseries/{0:020d}/1.record")).data == b"no Arrow stream"
        assert b"Arrow" in (await queue.get(f"ingest-rejected/timeseries/{0:020d}/1.json")).data

    run(work, tmp_path)


def test_a_record_of_any_arrow_types_does_not_hold_up_the_queue(tmp_path: Path) -> None:
    payload = SamplesPayload().encode()
    labels = pa.array([[("__name__", "x")]], pa.map_(pa.string(), pa.string()))
    times, values = pa.array([[1]], pa.list_(pa.int64(), 1)), pa.array([[1.0]])
    lists = encode_table(pa.table({"labels": labels, "timestamps_ms": times, "values": values}))
    columns = [labels, labels, pa.array([1]), pa.array([1.0])]
    twice = encode_table(pa.Table.from_arrays(columns, names=["labels", "labels", "timestamp_ms", "value"]))

    async def work(queue: ObjectStore) -> None:
        await produce(queue, (payload, [lists, samples("a", 1), twice]))
        assert await consume_samples(tmp_path) == ({"a": [1]}, 2)

    run(work, tmp_path)


def test_a_series_over_a_bound_does_not_hold_up_its_batch_nor_those_behind(tmp_path: Path) -> None:
    """One bound is known before the write, the other when it is flushed."""
    payload = SamplesPayload().encode()
    bomb = encode_table(
        pa.table(
            {
                "labels": pa.array(
                    [[("__name__", "bomb"), ("i", str(i))] for i in range(20)], pa.map_(pa.string(), pa.string())
                ),
                "timestamp_ms": pa.array([1] * 20, pa.int64()),
                "value": [1.0] * 20,
            }
        )
    )
    long = samples("x" * 200, 1)
    config = TimeSeriesConfig(label_value_bytes_max=100, bucket_series_max=10)

    async def work(queue: ObjectStore) -> None:
        await produce(
            queue,
            (payload, [samples("a", 1), b"no Arrow stream", long]),
            (payload, [bomb, samples("b", 2)]),
            (payload, [samples("a", 3, start=1), b"nor this"]),
        )
        # Each bad record is told once, although batches with one are gone through twice.
        assert await consume_samples(tmp_path, config) == ({"a": [1, 3], "b": [2]}, 4)

    run(work, tmp_path)


def test_metrics_of_telemetry_become_series_of_their_tenants(tmp_path: Path) -> None:
    text = b'# TYPE a gauge\na{job="x"} 1 1\na{job="y"} 2 1\n# EOF\n'
    mine, others = (decode_openmetrics(text, RowSource(tenant, 0)).batch for tenant in ("acme", ""))
    records, payload = encode_records({"metrics": pa.Table.from_batches([mine, others])})
    logs, logs_payload = encode_records({"logs": LOGS.empty_table()})

    async def work(queue: ObjectStore) -> None:
        await produce(queue, (payload, records), (logs_payload, logs), (payload, [b"none"]))
        found, rejected = await consume_samples(tmp_path)
        assert (found, rejected) == ({"a": [1, 2]}, 2)
        async with await TimeSeriesStore.open(f"file://{tmp_path}/store", "series") as store:
            series = await store.series(parse_selector_text("a"), tenant="acme")
            assert [labels["job"] for labels in series] == ["x", "y"]

    run(work, tmp_path)


def test_vectors_of_a_queue_are_written_and_deleted(tmp_path: Path) -> None:
    async def work(queue: ObjectStore) -> None:
        upsert, delete = VECTORS.encode(), VECTORS.encode(VectorOperation.DELETE)
        unknown = VectorPayload(tenant="t", index="i", model="nobody").encode(VectorOperation.DELETE)
        await produce(
            queue,
            (upsert, [rows("one", "two"), rows("three"), encode_table(pa.table({"id": ["four"]}))]),
            (delete, [encode_table(pa.table({"id": ["two"]}))]),
            (unknown, [encode_table(pa.table({"id": ["two"]}))]),
        )
        async with await VectorStore.open(f"file://{tmp_path}/vectors", "vectors") as store:
            rejected = RejectedRecords(queue, ConsumerConfig().data_path_prefix, "vector")
            await QueueConsumer("vector", queue, VectorSink(store, SOURCE, rejected)).run(until_empty=True)
            found = await (await store.collection("t", "i", "m")).get(["one", "two", "three", "four"])
            assert sorted(found.column("id").to_pylist()) == ["one", "three"]
            assert (rejected.count, store.position(SOURCE)) == (1, 2)

    run(work, tmp_path)


def test_vectors_of_any_arrow_types_do_not_hold_up_the_queue(tmp_path: Path) -> None:
    # A time that Python has no object for.
    far = pa.array([1 << 62], pa.timestamp("s"))
    ids = pa.array(["x"])
    twice = pa.Table.from_arrays([ids, ids, pa.array([[1.0]])], names=["id", "id", "vector"])

    async def work(queue: ObjectStore) -> None:
        await produce(
            queue,
            (VECTORS.encode(), [encode_table(pa.table({"id": ids, "vector": far})), rows("one"), encode_table(twice)]),
            (VECTORS.encode(VectorOperation.DELETE), [encode_table(pa.table({"id": far}))]),
        )
        async with await VectorStore.open(f"file://{tmp_path}/vectors", "vectors") as store:
            rejected = RejectedRecords(queue, ConsumerConfig().data_path_prefix, "vector")
            await QueueConsumer("vector", queue, VectorSink(store, SOURCE, rejected)).run(until_empty=True)
            assert (rejected.count, store.position(SOURCE)) == (3, 1)

    run(work, tmp_path)


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b"", InvalidInput),
        (ArrowEnvelope(Signal.LOGS).encode() + b'{"samples":1}', Unsupported),
        (ArrowEnvelope(Signal.METRICS).encode() + b'{"relay":"01J"}', Unsupported),
        (ArrowEnvelope(Signal.METRICS).encode() + b'{"samples":2}', Unsupported),
        (ArrowEnvelope(Signal.METRICS).encode() + b'{"samples":', InvalidInput),
    ],
)
def test_a_payload_that_names_no_samples_is_refused(payload: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        SamplesPayload.decode(payload)


def test_payloads_and_tables_survive_their_bytes() -> None:
    assert SamplesPayload.decode(SamplesPayload(tenant="acme").encode()) == SamplesPayload(tenant="acme")
    assert VectorPayload.decode(VECTORS.encode(VectorOperation.DELETE)) == (VectorOperation.DELETE, VECTORS)
    table = pa.table({"id": ["a", "b"]})
    assert decode_table(encode_table(table)).equals(table)
