"""Compaction and SQL over a catalog, beside plain Spark, deltalake's optimize and DuckDB on the same files.

Eight hours of metrics, in as many small files an hour as a busy ingest leaves, each sorted by name and time, are merged
into one sorted file an hour. Plain Spark reads them all, repartitions by the hour, sorts and writes Parquet with zstd,
on as many cores; it is warmed up first. deltalake's optimize joins files without sorting them across files. Queries
run on the small files: ours plans them, DuckDB is given the same files by name. Peers that are not installed are named
and skipped. Run it with `python benchmarks/compaction.py`; `--quick` takes a tenth of the rows, `--no-spark` leaves
Spark out, `--queries` runs the queries alone.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from _usage import check_words
from penstock.catalog import Catalog, CatalogConfig, CompactionPolicy, DataFile, column_stats
from penstock.lake import CompactionConfig, Compactor, LocalMerging, MergePlace, SqlConfig, SqlEngine
from penstock.objects import StoreSpec, open_store

QUICK = "--quick" in sys.argv
HOUR = 3_600_000_000_000
HOURS, FILES = 8, 16
REPEATS = 5
ROWS = 8_000 if QUICK else 80_000
CORES = 2
POLICY = CompactionPolicy(hour_files=2, day_files=1000, day_bytes=1 << 50, closed_after_seconds=1e12)
QUERIES = {
    "count of an hour": "SELECT count(*) FROM {t} WHERE time >= '1970-01-01 02:00' AND time < '1970-01-01 03:00'",
    "one metric of an hour": (
        "SELECT avg(value) FROM {t} WHERE metric = 'metric_07' "
        "AND time >= '1970-01-01 02:00' AND time < '1970-01-01 03:00'"
    ),
    "all by metric": "SELECT metric, count(*), avg(value) FROM {t} GROUP BY metric ORDER BY metric",
}


def hour_file(hour: int, number: int) -> pa.Table:
    random = np.random.default_rng(hour * 1000 + number)
    metrics = [f"metric_{at:02}" for at in range(50)]
    table = pa.table(
        {
            "tenant": pa.array(["acme"] * ROWS),
            "time": pa.array(hour * HOUR + random.integers(0, HOUR, ROWS), pa.timestamp("ns", tz="UTC")),
            "metric": pa.array(metrics).take(random.integers(0, 50, ROWS)),
            "host": pa.array([f"host-{at:03}" for at in range(200)]).take(random.integers(0, 200, ROWS)),
            "value": pa.array(random.normal(100, 15, ROWS).round(2)),
        }
    )
    return table.sort_by([("metric", "ascending"), ("time", "ascending")])


async def fill(catalog: Catalog, root: Path) -> int:
    files = []
    for hour in range(HOURS):
        for number in range(FILES):
            table = hour_file(hour, number)
            path = f"acme/metrics/{hour:02}/{number:04}.parquet"
            target = root / "lake" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, target, compression="zstd")
            ends: Any = pc.min_max(table["time"].cast(pa.int64())).as_py()
            files.append(
                DataFile(
                    path=path,
                    min_timestamp=ends["min"],
                    max_timestamp=ends["max"],
                    row_count=ROWS,
                    size_bytes=target.stat().st_size,
                    tenant="acme",
                    table="metrics",
                    column_stats={"metric": column_stats("metric_00", "metric_49", has_nulls=False)},
                )
            )
    await catalog.register(files)
    return sum(file.size_bytes for file in files)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


async def queries(catalog: Catalog, root: Path) -> None:
    import duckdb

    print(f"\nqueries on the small files, best of {REPEATS} (planning is part of ours; processor time in brackets):")
    files = [str(path) for path in sorted((root / "lake" / "acme").rglob("*.parquet"))]
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {CORES}; SET TimeZone = 'UTC'")
        async with SqlEngine(catalog, SqlConfig(threads=CORES)) as engine:
            for name, sql in QUERIES.items():
                asked, source = sql.format(t="metrics"), sql.format(t=f"read_parquet({files!r})")
                ours, theirs = [], []
                # In turns, so that both meet the same machine.
                for _ in range(REPEATS):
                    began = time.process_time()
                    answer = await engine.query(asked)
                    ours.append((answer.seconds, time.process_time() - began, answer.plan_seconds))
                    began = time.process_time()
                    seconds, _ = timed(lambda source=source: connection.execute(source).fetchall())
                    theirs.append((seconds, time.process_time() - began))
                took, cpu, plan = (min(column) * 1000 for column in zip(*ours, strict=True))
                duck, duck_cpu = (min(column) * 1000 for column in zip(*theirs, strict=True))
                print(
                    f"  {name:22} penstock {took:7.1f} ms ({cpu:6.1f}), {answer.files} files, planning {plan:.1f} ms ="
                    f" {plan / took:.1%}   DuckDB {duck:7.1f} ms ({duck_cpu:6.1f})"
                    f"   ratio {duck / took:.2f} ({duck_cpu / cpu:.2f})"
                )


async def ours(catalog: Catalog, merging: Any) -> float:
    began = time.perf_counter()
    done = await Compactor(catalog, merging, CompactionConfig(tasks_per_pass=HOURS)).run_available()
    assert (done.merged, done.failed, done.rows) == (HOURS, 0, HOURS * FILES * ROWS), done
    return time.perf_counter() - began


def spark_session() -> Any:
    from penstock.pipelines import open_session, prepare_environment

    prepare_environment(os.environ, Path(sys.prefix) / "share" / "penstock" / "java")
    return open_session(f"local[{CORES}]", settings={"spark.log.level": "OFF"})


def plain_spark(spark: Any, root: Path) -> float:
    from pyspark.sql import functions as f

    spark.range(1000).repartition(2).count()
    spark.conf.set("spark.sql.shuffle.partitions", str(HOURS))
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    # Spark reads times of nanoseconds as numbers.
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    hours = f.expr(f"time div {HOUR}")
    out = str(root / "spark-out")

    def work() -> None:
        frame = spark.read.parquet(str(root / "lake" / "acme" / "metrics" / "*"))
        frame = (
            frame.withColumn("hour", hours).repartition(HOURS, "hour").sortWithinPartitions("hour", "metric", "time")
        )
        frame.write.mode("overwrite").partitionBy("hour").parquet(out)

    work()
    return min(timed(work)[0] for _ in range(2))


def delta(root: Path) -> float | None:
    if find_spec("deltalake") is None:
        print("  deltalake is not installed: skipped")
        return None
    from deltalake import DeltaTable, WriterProperties, write_deltalake

    place = str(root / "delta")
    for hour in range(HOURS):
        for number in range(FILES):
            table = hour_file(hour, number)
            hours = pa.array(np.full(table.num_rows, hour), pa.int32())
            times = table["time"].cast(pa.timestamp("us", tz="UTC"), safe=False)
            table = table.set_column(1, "time", times).append_column("hour", hours)
            write_deltalake(place, table, mode="append", partition_by=["hour"])
    # As small files are merged here: all of an hour into one, compressed alike.
    properties = WriterProperties(compression="ZSTD", compression_level=3)
    return timed(lambda: DeltaTable(place).optimize.compact(max_concurrent_tasks=CORES, writer_properties=properties))[
        0
    ]


async def main() -> None:
    root = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    results: dict[str, float] = {}
    try:
        spec = StoreSpec(root.as_uri())
        store = await open_store(root.as_uri())
        catalog = await Catalog.open(store, "lake", CatalogConfig(compaction=POLICY))
        size = await fill(catalog, root)
        print(
            f"{HOURS * FILES} files, {HOURS * FILES * ROWS:,} rows, {size / 1e6:.1f} MB of Parquet; load {os.getloadavg()}"
        )
        await queries(catalog, root)
        if "--queries" in sys.argv:
            await catalog.close()
            await store.close()
            return
        print("\ncompaction, MB of sources a second:")
        place = MergePlace(spec, "lake")
        results["penstock, threads"] = await ours(catalog, LocalMerging(place, CORES))
        if (seconds := await asyncio.to_thread(delta, root)) is not None:
            results["deltalake optimize"] = seconds
        if "--no-spark" not in sys.argv and find_spec("pyspark") is not None:
            from penstock.pipelines import SparkMerging

            spark = spark_session()
            again = await Catalog.open(store, "again", CatalogConfig(compaction=POLICY))
            shutil.copytree(root / "lake" / "acme", root / "again" / "acme")
            await again.register(await (await catalog.as_of(1)).files())
            results["plain Spark"] = await asyncio.to_thread(plain_spark, spark, root)
            results["penstock on Spark"] = await ours(again, SparkMerging(spark, MergePlace(spec, "again")))
            await again.close()
            spark.stop()
        else:
            print("  Spark is left out")
        base = results["penstock, threads"]
        for name, seconds in results.items():
            print(
                f"  {name:20} {seconds:7.2f} s  {size / 1e6 / seconds:7.1f} MB/s   penstock is {seconds / base:.2f} × as fast"
            )
        print(f"  peak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
        await catalog.close()
        await store.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    check_words(__doc__, ["--quick", "--queries", "--no-spark"])
    asyncio.run(main())
