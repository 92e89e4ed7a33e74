"""Decoding of telemetry beside the parsers alone, and the way from the queue into both stores, without Spark.

The first part decodes one request again and again: ours (strict, into the columns of the schema), the conversion alone
(`ptars`), the parser alone (upb), and a walk over the parsed message in Python, which is what decoding costs without
columns. The second part lands rows from a queue on this disk, durable in catalog and series, beside writing the same
rows to one Parquet file with pyarrow, which keeps no promise. Run it with `python benchmarks/telemetry.py`; it takes
about a minute, `--quick` a third of it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import ptars
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.buffer import Producer, ProducerConfig
from penstock.landing import LocalTelemetryJob, TelemetryConfig
from penstock.objects import open_store
from penstock.records import Signal
from penstock.telemetry import RowSource, decode_otlp, decode_remote_write, encode_records, series_of
from penstock.telemetry.otlp.decode import request_message
from penstock.telemetry.remote_write.messages import write_request_v1

QUICK = "--quick" in sys.argv
REPEATS = 3 if QUICK else 10
ROWS = 10_000
BATCHES = 10 if QUICK else 50
START = 1_763_000_000_000
SOURCE = RowSource("acme", START * 1_000_000)


def main() -> None:
    print("Decoding, rows a second (best of several)")
    write, metrics = remote_write(START), otlp_metrics()
    race("remote write 1.0, 8 labels", write_request_v1(), write, lambda: decode_remote_write(packed(write), SOURCE))
    race(
        "OTLP metrics, 5 attributes",
        request_message(Signal.METRICS),
        metrics,
        lambda: decode_otlp(Signal.METRICS, metrics, SOURCE),
    )
    batch = decode_remote_write(packed(write), SOURCE).batch
    print(f"  rows to series                     {ROWS / best(lambda: series_of(batch)):12,.0f}")
    landing()


def race(name: str, message: Any, body: bytes, ours: Callable[[], Any]) -> None:
    handler = ptars.HandlerPool([message.DESCRIPTOR.file]).get_for_message(message.DESCRIPTOR)
    mine = best(ours)
    print(f"  {name}, {len(body):,} bytes")
    for label, work in (
        ("ours", None),
        ("ptars alone, unchecked", lambda: handler.list_to_record_batch([body])),
        ("upb parse alone", lambda: message.FromString(body)),
        ("upb and a walk in Python", lambda: walk(message.FromString(body))),
    ):
        took = mine if work is None else best(work)
        print(f"    {label:<32} {ROWS / took:12,.0f}   {took / mine:6.2f} x our time")


def walk(message: Any) -> int:
    """Every field of every message, as a decoder without columns would visit them."""
    count = 0
    for field, value in message.ListFields():
        items = value if field.is_repeated else [value]
        count += sum(walk(one) for one in items) if field.message_type else len(items)
    return count


def landing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = TelemetryConfig(f"file://{folder}")
        batches = [decode_remote_write(packed(remote_write(START + 1000 * n)), SOURCE).batch for n in range(BATCHES)]
        asyncio.run(produce(config, batches))
        began = time.perf_counter()
        with LocalTelemetryJob(config) as job:
            done = job.run_available()
        took = time.perf_counter() - began
        began = time.perf_counter()
        pq.write_table(pa.Table.from_batches(batches), Path(folder) / "plain.parquet", compression="zstd")
        plain = time.perf_counter() - began
        size = (Path(folder) / "plain.parquet").stat().st_size
    print(f"Landing {done.rows:,} rows of {BATCHES} batches, one process, durable in both stores")
    print(
        f"    ours: rows and samples a second   {done.rows / took:12,.0f}   {done.file_bytes / done.rows:6.2f} bytes a row"
    )
    print(f"    pyarrow, one Parquet file, rows/s {done.rows / plain:12,.0f}   {size / done.rows:6.2f} bytes a row")


async def produce(config: TelemetryConfig, batches: list[pa.RecordBatch]) -> None:
    store = await open_store(config.url)
    for batch in batches:
        async with Producer(store, ProducerConfig()) as producer:
            await (await producer.produce(*encode_records({"metrics": batch}))).durable()
    await store.close()


def remote_write(time_ms: int) -> bytes:
    request = write_request_v1()()
    for number in range(ROWS):
        series = request.timeseries.add()
        series.labels.add(name="__name__", value="http_requests_total")
        for place in range(7):
            series.labels.add(name=f"label{place}", value=f"value{number // (place + 1)}")
        series.samples.add(value=number, timestamp=time_ms)
    body: bytes = request.SerializeToString()
    return body


def otlp_metrics() -> bytes:
    request = request_message(Signal.METRICS)()
    scope = request.resource_metrics.add().scope_metrics.add()
    for name in range(100):
        metric = scope.metrics.add(name=f"metric.{name}")
        for number in range(ROWS // 100):
            point = metric.gauge.data_points.add(time_unix_nano=START * 1_000_000, as_double=number)
            for place in range(5):
                point.attributes.add(key=f"attribute{place}").value.string_value = f"value{number // (place + 1)}"
    body: bytes = request.SerializeToString()
    return body


def packed(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def best(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    main()
