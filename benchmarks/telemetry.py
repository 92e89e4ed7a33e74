"""Telemetry from a request to files, series and answers, each part beside what there is without us, in one program.

| part | what it measures |
| --- | --- |
| `decode` | one request, again and again: ours (strict, into the columns of the schema), the conversion alone (`ptars`), the parser alone (upb), and a walk over the parsed message in Python |
| `landing` | rows of a queue on this disk into durable, registered files and series, in this process, on one and two cores |
| `spark` | the same on Spark, on one and two cores, beside Spark's own stream from Parquet files of the same rows to Parquet, which sorts nothing and fills no series; bytes a row of both |
| `memory`, `spark-memory` | peak memory while once, four and sixteen times as much lands: this process; driver, Java and workers |
| `delay` | how long a small tenant's record waits beside one that sends 1,000 times as much, on both engines |
| `compaction` | merges beside plain Spark's read, sort and write, and deltalake's optimize |
| `queries` | `penstock sql` beside DuckDB on the same files, and the share of planning |

Each landing is a process of its own. Run it with `python benchmarks/telemetry.py`, which takes about twenty minutes;
`--only NAME`, as often as you like, runs some parts, none of which takes more than ten; `--quick` takes a tenth of the
rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import ptars

from penstock.records import Signal
from penstock.telemetry import RowSource, decode_otlp, decode_remote_write, series_of
from penstock.telemetry.otlp.decode import request_message
from penstock.telemetry.remote_write.messages import write_request_v1

QUICK = "--quick" in sys.argv
REPEATS = 3 if QUICK else 10
ROWS = 10_000
BATCHES = 20 if QUICK else 200
START = 1_763_000_000_000
SOURCE = RowSource("acme", START * 1_000_000)


def main() -> None:
    parts = {
        "decode": decode,
        "landing": landing,
        "spark": on_spark,
        "memory": memory,
        "spark-memory": spark_memory,
        "delay": delay,
        "compaction": lambda: compaction(),
        "queries": lambda: compaction("--queries"),
    }
    arguments = argparse.ArgumentParser(description="Telemetry beside its peers.")
    arguments.add_argument("--only", action="append", choices=list(parts), help="part to run; may be given again")
    arguments.add_argument("--quick", action="store_true", help="a tenth of the rows")
    only = arguments.parse_args().only
    for name, part in parts.items():
        if not only or name in only:
            part()


def decode() -> None:
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
    print(f"Landing {BATCHES * 10_000:,} rows of the queue, durable (rows a second, processor time, peak memory)")
    for name, what, cores in (
        ("files and series, this process, 1 core", "local", 1),
        ("files and series, this process, 2 cores", "local", 2),
        ("files alone, this process, 2 cores", "files", 2),
    ):
        show(name, landed(what, BATCHES, cores))


def on_spark() -> None:
    print(f"Landing {BATCHES * 10_000:,} rows of the queue on Spark, warm, two cores unless told otherwise")
    ours, plain = landed("spark-files", BATCHES, 2), landed("plain", BATCHES, 2)
    one, plain_one = landed("spark-files", BATCHES, 1), landed("plain", BATCHES, 1)
    show("ours, files alone", ours)
    show("ours, files alone, 1 core", one)
    show("ours, files and series", landed("spark", BATCHES, 2))
    show("plain Spark, readStream to Parquet", plain)
    show("plain Spark, 1 core", plain_one)
    print(f"    ours is {rate(ours) / rate(plain):.2f} x plain Spark; bytes {ours['bytes'] / plain['bytes']:.2f} x")
    print(f"    from 1 to 2 cores: ours {rate(ours) / rate(one):.2f} x, plain {rate(plain) / rate(plain_one):.2f} x")


def rate(told: dict[str, Any]) -> float:
    return float(told["rows"] / told["seconds"])


def memory() -> None:
    print("Peak memory of this process while landing so many rows, MiB")
    for batches in (BATCHES // 10 * times for times in (1, 4, 16)):
        print(f"    {batches * 10_000:12,} rows {landed('local', batches, 2)['memory']['driver']:8,.0f}")


def spark_memory() -> None:
    print("Peak memory while landing so many rows on Spark, MiB: driver, Java, the largest worker")
    for batches in (BATCHES // 10 * times for times in (1, 4, 16)):
        peak = landed("spark", batches, 2)["memory"]
        print(f"    {batches * 10_000:12,} rows {peak['driver']:8,.0f} {peak['java']:8,.0f} {peak['worker']:8,.0f}")


def delay() -> None:
    print("Seconds until a small tenant's record is listed, rounds at most one a second, two cores")
    for engine in ("local", "spark"):
        told = last_line("_landing_delay.py", engine, str(BATCHES), "2")
        print(
            f"    {engine:<6} alone {told['alone']:.2f}; beside 100,000 rows a second of another, median {told['p50']:.2f},"
            f" worst of 20 {told['max']:.2f}; behind a burst of {told['ahead']:,} rows {told['behind']:.2f}"
        )


def compaction(*options: str) -> None:
    quick = ["--quick"] if QUICK else []
    subprocess.run([sys.executable, str(Path(__file__).with_name("compaction.py")), *options, *quick], check=True)


def landed(what: str, batches: int, cores: int) -> dict[str, Any]:
    return last_line("_landing_work.py", what, str(batches), str(cores))


def last_line(program: str, *arguments: str) -> dict[str, Any]:
    """What a process of its own prints at the end, as JSON."""
    command = [sys.executable, str(Path(__file__).with_name(program)), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(name: str, told: dict[str, Any]) -> None:
    rows = told["rows"]
    cpu = f"{told['cpu'] / rows * 1e6:6.2f} s a million" if "cpu" in told else ""
    print(
        f"    {name:<40} {rows / told['seconds']:12,.0f} {cpu}"
        f" {told['memory']['driver']:7,.0f} MiB {told['bytes'] / rows:6.2f} bytes a row in {told['files']} files"
    )


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
