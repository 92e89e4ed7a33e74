"""One measurement of the telemetry benchmark in a process of its own, so that its memory is its own: prints JSON.

Arguments: what to do (`local`, `files`, `spark`, `spark-files` or `plain`), how many batches of 10,000 rows, how many
cores. Batches are made first, and what is timed is the way from the queue to durable, registered files and series.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.buffer import Producer, ProducerConfig
from penstock.landing import LandingLimits, LocalTelemetryJob, TelemetryConfig, settle_memory
from penstock.objects import open_store
from penstock.telemetry import METRICS, encode_records

ROWS = 10_000
START_NS = 1_763_000_000_000_000_000
WARM_BATCHES = 4


def batch_of(number: int) -> pa.Table:
    """10,000 series with eight labels, one sample each, a second after those of the batch before."""
    return _FIRST.set_column(
        _FIRST.schema.get_field_index("time"),
        METRICS.field("time"),
        pa.repeat(pa.scalar(START_NS + number * 1_000_000_000, METRICS.field("time").type), ROWS),
    )


def _first() -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "tenant": "acme",
                "time": START_NS,
                "metric": "http_requests_total",
                "type": "counter",
                "convention": "prometheus",
                "labels": [(f"label{place}", f"value{number // (place + 1)}") for place in range(7)],
                "value": float(number),
            }
            for number in range(ROWS)
        ],
        METRICS,
    )


async def fill(config: TelemetryConfig, numbers: range) -> None:
    store = await open_store(config.url)
    async with Producer(store, ProducerConfig(max_buffered_inputs=1)) as producer:
        handles = [await producer.produce(*encode_records({"metrics": batch_of(number)})) for number in numbers]
        for handle in handles:
            await handle.durable()
    await store.close()


def landed(job: Any, rows: int) -> dict[str, Any]:
    began, cpu = time.perf_counter(), _cpu()
    done = job.run_available()
    assert done.rows == rows, done
    return {
        "seconds": time.perf_counter() - began,
        "cpu": _cpu() - cpu,
        "rows": rows,
        "bytes": done.file_bytes,
        "files": done.files,
    }


def local(folder: Path, batches: int, *, series: bool) -> dict[str, Any]:
    config = TelemetryConfig(f"file://{folder}/store", series_path="series" if series else "")
    asyncio.run(fill(config, range(batches)))
    with LocalTelemetryJob(config) as job:
        return landed(job, batches * ROWS)


def on_spark(folder: Path, batches: int, cores: int, *, series: bool) -> dict[str, Any]:
    from penstock.pipelines import TelemetryJob

    spark = session(cores)
    told: dict[str, Any] = {}
    # Tasks of a size that gives each core several.
    limits = LandingLimits(bytes_per_task=8 << 20)
    for name, numbers in (("warm", range(WARM_BATCHES)), ("store", range(batches))):
        url = f"file://{folder}/{name}"
        config = TelemetryConfig(url, series_path="series" if series else "", limits=limits)
        asyncio.run(fill(config, numbers))
        with TelemetryJob(spark, config) as job:
            told = landed(job, len(numbers) * ROWS)
    return told


def plain(folder: Path, batches: int, cores: int) -> dict[str, Any]:
    """Spark's own stream: Parquet files of the same rows in, Parquet out, and a checkpoint."""
    spark = session(cores)
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    told: dict[str, Any] = {}
    for name, count in (("warm", WARM_BATCHES), ("in", batches)):
        source = folder / name
        source.mkdir()
        for number in range(count):
            table = batch_of(number).select(["tenant", "time", "metric", "type", "labels", "value"])
            micro = table.column("time").cast(pa.timestamp("us", tz="UTC"))
            pq.write_table(table.set_column(1, "time", micro), source / f"{number:05}.parquet", compression="zstd")
        schema = spark.read.parquet(str(source)).schema
        began = time.perf_counter()
        query = (
            spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 256)
            .parquet(str(source))
            .writeStream.format("parquet")
            .option("path", str(folder / f"{name}-out"))
            .option("checkpointLocation", str(folder / f"{name}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        told = {"seconds": time.perf_counter() - began, "rows": count * ROWS}
    out = folder / "in-out"
    told["bytes"] = sum(path.stat().st_size for path in out.glob("*.parquet"))
    told["files"] = len(list(out.glob("*.parquet")))
    assert spark.read.parquet(str(out)).count() == told["rows"]
    return told


def session(cores: int) -> Any:
    from penstock.pipelines import open_session, prepare_environment

    prepare_environment(os.environ, Path(sys.prefix) / "share" / "penstock" / "java")
    return open_session(f"local[{cores}]", settings={"spark.log.level": "OFF"})


def memory() -> dict[str, float]:
    """Peak resident memory in MiB of this process, of Java, and of the largest of Spark's Python workers."""
    found = {"driver": _peak(os.getpid()), "java": 0.0, "worker": 0.0}
    from penstock.testing.servers.spark_cluster import descendants

    for pid in descendants(os.getpid()):
        kind = "java" if "java" in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace") else "worker"
        found[kind] = max(found[kind], _peak(pid))
    return found


def _peak(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    # A process that has ended and was not waited for has no such line.
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0)


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


def main(what: str, batches: int, cores: int) -> None:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    settle_memory()
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        if what in ("local", "files"):
            told = local(folder, batches, series=what == "local")
        elif what in ("spark", "spark-files"):
            told = on_spark(folder, batches, cores, series=what == "spark")
        else:
            told = plain(folder, batches, cores)
        told["memory"] = memory()
        print(json.dumps(told), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_FIRST = _first()

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
