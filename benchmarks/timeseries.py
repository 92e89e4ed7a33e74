"""The time-series store beside VictoriaMetrics, Prometheus and DuckDB: one run, the same samples.

Half of the series are counters, half gauges with two decimals, a sample every 15 s. Reported: samples a second until
all are durable, by batches of 10,000 and of 100,000 samples; bytes a sample on disk; time of range queries over the
newest hour and over everything, cold (after opening) and warm; the time from opening to the first answer; series a
second when every sample is a new series. Ours is called in process and the servers over HTTP on this machine, with
their JSON read: that is how each is used. The samples of remote write are encoded before the clock starts.

`python benchmarks/timeseries.py` writes 10 million samples in 10,000 series and a million series of churn; `--quick`
a tenth of both. A peer that is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _timeseries_peers import PEERS, DuckDbPeer, HttpPeer, PeerMissing, remote_write_bodies
from penstock.coordinator import CoordinatorConfig
from penstock.timeseries import SampleBatch, SeriesTable, TimeSeriesConfig, TimeSeriesStore

STEP_MS = 15_000
METRICS = 10
QUERIES = (
    ("raw selector", 'metric_1{{zone="{zone}"}}'),
    ("rate", 'rate(metric_0{{zone="{zone}"}}[5m])'),
    ("sum by", "sum by (job) (rate(metric_0[5m]))"),
    ("all series", 'sum by (job) ({{__name__=~"metric_.*"}})'),
)
CONFIG = TimeSeriesConfig(coordinator=CoordinatorConfig(max_buffered_bytes=256 << 20))


class Work:
    """What everybody is given."""

    def __init__(self, series: int, steps: int) -> None:
        entropy = np.random.default_rng(7)
        self.labels = [
            {
                "__name__": f"metric_{number % METRICS}",
                "job": f"job-{number % 7}",
                "instance": f"host-{number // METRICS:05d}:9100",
                "zone": f"z{number // METRICS % 10}",
            }
            for number in range(series)
        ]
        counters = np.cumsum(entropy.integers(0, 100, (series, steps)), axis=1).astype(np.float64)
        gauges = np.round(50 + np.cumsum(entropy.normal(0, 0.5, (series, steps)), axis=1), 2)
        self.values = np.where((np.arange(series) % 2 == 0)[:, None], counters, gauges)
        # Old enough to lie in the past wherever the clock stands, and young enough for Prometheus to take it.
        end = int(time.time()) // 60 * 60_000 - 60_000
        self.times = end - STEP_MS * np.arange(steps)[::-1]

    @property
    def samples(self) -> int:
        return int(self.values.size)

    def batches(self, size: int) -> list[SampleBatch]:
        """Scrapes of all series, so many samples at a time."""
        table = SeriesTable.of(self.labels)
        count, scrapes = len(self.labels), max(1, size // len(self.labels))
        made = []
        for first in range(0, len(self.times), scrapes):
            times = self.times[first : first + scrapes]
            rows = np.tile(np.arange(count, dtype=np.uint32), len(times))
            values = self.values[:, first : first + len(times)].T.ravel()
            made.append(SampleBatch.of(table, rows, np.repeat(times, count), values))
        return made


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def ingest(folder: Path, batches: list[SampleBatch]) -> float:
    async with await TimeSeriesStore.open(folder.as_uri(), "series", CONFIG) as store:
        began = time.perf_counter()
        for batch in batches:
            await store.write(batch)
        await store.flush()
        took = time.perf_counter() - began
        await store.compact()
    return took


async def our_queries(folder: Path, work: Work, report: dict[str, float]) -> None:
    end, hour = int(work.times[-1]), 3_600_000
    began = time.perf_counter()
    store = await TimeSeriesStore.open(folder.as_uri(), "series", CONFIG)
    await store.query('metric_1{instance="host-00001:9100"}', end)
    report["first answer"] = time.perf_counter() - began
    await store.close()
    for span, start in (("1 h", max(end - hour, int(work.times[0]))), ("all", int(work.times[0]))):
        for name, expression in QUERIES:
            store = await TimeSeriesStore.open(folder.as_uri(), "series", CONFIG)
            for state in ("cold", "warm"):
                began = time.perf_counter()
                await store.query_range(expression.format(zone="z3"), start, end, 60_000)
                report[f"{name}, {span}, {state}"] = time.perf_counter() - began
            await store.close()


def peer_queries(peer: HttpPeer, work: Work, report: dict[str, float]) -> None:
    end, hour = int(work.times[-1]), 3_600_000
    for span, start in (("1 h", max(end - hour, int(work.times[0]))), ("all", int(work.times[0]))):
        for name, expression in QUERIES:
            for state in ("cold", "warm"):
                began = time.perf_counter()
                peer.range(expression.format(zone="z3"), start, end, 60_000)
                report[f"{name}, {span}, {state}"] = time.perf_counter() - began


async def churn(folder: Path, series: int) -> float:
    """Every sample is a new series."""
    size = 50_000
    began = time.perf_counter()
    async with await TimeSeriesStore.open(folder.as_uri(), "series", CONFIG) as store:
        for first in range(0, series, size):
            count = min(size, series - first)
            pods = [f"pod-{number}" for number in range(first, first + count)]
            labels = pa.table({"__name__": ["up"] * count, "pod": pods, "zone": [f"z{n % 10}" for n in range(count)]})
            await store.write(
                SampleBatch.of(labels, np.arange(count), np.full(count, 1_700_000_000_000), np.ones(count))
            )
        await store.flush()
    return time.perf_counter() - began


def timed_writes(write: Callable[[Any], None], bodies: list[Any]) -> float:
    began = time.perf_counter()
    for body in bodies:
        write(body)
    return time.perf_counter() - began


def compare(ours: dict[str, float], theirs: dict[str, dict[str, float]]) -> None:
    print(f"{'':32}{'penstock':>12}" + "".join(f"{name:>28}" for name in theirs))
    for name, value in ours.items():
        row = f"{name:32}{value:12.4g}"
        for figures in theirs.values():
            found = figures.get(name)
            row += f"{'–':>28}" if found is None else f"{found:16.4g} ({value / found:6.2f} ×)  "
        print(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples and of the churn")
    quick = parser.parse_args().quick
    work = Work(1_000 if quick else 10_000, 1_000)
    ours: dict[str, float] = {}
    theirs: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for size in (10_000, 100_000):
            batches = work.batches(size)
            took = asyncio.run(ingest(folder / f"ours-{size}", batches))
            ours[f"M samples/s, batches of {size}"] = work.samples / took / 1e6
        ours["bytes/sample"] = disk_bytes(folder / "ours-100000") / work.samples
        asyncio.run(our_queries(folder / "ours-100000", work, ours))
        series = 100_000 if quick else 1_000_000
        ours["K new series/s"] = series / asyncio.run(churn(folder / "churn", series)) / 1e3
        bodies = remote_write_bodies(work.labels, work.times, work.values)
        for name in PEERS:
            try:
                peer = HttpPeer(name, folder)
            except PeerMissing as missing:
                print(f"left out: {missing}")
                continue
            theirs[name] = report = {}
            try:
                took = timed_writes(peer.write, bodies)
                report["M samples/s, batches of 10000"] = work.samples / took / 1e6
                peer.settle()
                peer_queries(peer, work, report)
                report["bytes/sample"] = peer.size_bytes() / work.samples
            finally:
                peer.close()
        try:
            duck = DuckDbPeer(folder)
        except PeerMissing as missing:
            print(f"left out: {missing}")
        else:
            theirs["duckdb"] = report = {}
            tables = [
                pa.table({"series": batch.series, "time": batch.timestamps_ms, "value": batch.values})
                for batch in work.batches(100_000)
            ]
            report["M samples/s, batches of 100000"] = work.samples / timed_writes(duck.write, tables) / 1e6
            report["bytes/sample"] = duck.size_bytes() / work.samples
            duck.close()
    print(f"{work.samples} samples in {len(work.labels)} series; times in seconds")
    compare(ours, theirs)


if __name__ == "__main__":
    main()
