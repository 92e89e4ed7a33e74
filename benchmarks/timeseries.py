"""The time-series store beside VictoriaMetrics, Prometheus and DuckDB: one run, the same samples.

Five parts, all of them or those that `--part` names:

- `ingest`: 10 million samples in 10,000 series of counters and gauges, until all are durable, by batches of 10,000 and
  of 100,000 samples; bytes a sample on disk;
- `bytes`: the same number of samples as exporters tell them, for the bytes alone;
- `scrapes`: what a real exporter answered, for the bytes alone: `--scrapes` names a folder with a file for each answer;
- `queries`: range queries over 1 h and 24 h of 100, 1,000 and 10,000 series, cold (ours after opening, theirs for the
  first time) and warm, and the time from opening to the first answer;
- `churn`: a million series of one sample each.

Ours is called in process and the servers over HTTP on this machine, with their JSON read: that is how each is used. The
bodies of remote write are encoded before the clock starts. `--quick` does a tenth. A peer that is not installed is
named and left out; `--peer` chooses among them.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _timeseries_peers import PEERS, DuckDbPeer, HttpPeer, PeerMissing, remote_write_bodies
from _timeseries_work import QUERIES, SIZES, SPANS, Work, exporters, histograms, scraped, walks
from penstock.coordinator import CoordinatorConfig
from penstock.timeseries import SampleBatch, TimeSeriesConfig, TimeSeriesStore

CONFIG = TimeSeriesConfig(coordinator=CoordinatorConfig(max_buffered_bytes=256 << 20))
Report = dict[str, float]


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def ingest(folder: Path, batches: list[SampleBatch]) -> tuple[float, int]:
    """Seconds until all are durable, and the bytes that are listed once every hour is folded."""
    async with await TimeSeriesStore.open(folder.as_uri(), "series", CONFIG) as store:
        began = time.perf_counter()
        for batch in batches:
            await store.write(batch)
        await store.flush()
        took = time.perf_counter() - began
        await store.compact()
        # What compaction replaced stays on disk until the key-value store collects it.
        return took, (await store.stats()).bytes


def asked(work: Work) -> Iterator[tuple[str, str, int, int, int]]:
    """Every query: its name, expression, start, end and step."""
    end = int(work.times[-1])
    for hours, step in SPANS:
        for share, selector in SIZES:
            for name, expression in QUERIES:
                text = expression.format(selector=selector.format())
                yield f"{name} {hours} h {len(work.labels) // share}", text, end - hours * 3_600_000, end, step * 1000


async def our_queries(folder: Path, work: Work) -> Report:
    report: Report = {}
    began = time.perf_counter()
    store = await TimeSeriesStore.open(folder.as_uri(), "series", CONFIG)
    await store.query('metric_1{instance="host-00001:9100"}', int(work.times[-1]))
    report["first answer"] = time.perf_counter() - began
    await store.close()
    for name, text, *times in asked(work):
        store = await TimeSeriesStore.open(folder.as_uri(), "series", CONFIG)
        for state in ("cold", "warm"):
            began = time.perf_counter()
            await store.query_range(text, *times)
            report[f"{name}, {state}"] = time.perf_counter() - began
        await store.close()
    return report


def peer_queries(peer: HttpPeer, work: Work) -> Report:
    report: Report = {}
    for name, text, *times in asked(work):
        for state in ("cold", "warm"):
            began = time.perf_counter()
            peer.range(text, *times)
            report[f"{name}, {state}"] = time.perf_counter() - began
    return report


async def churn(folder: Path, series: int) -> float:
    """Every sample is a new series. Tables of labels are made before the clock starts, as the bodies of others are."""
    size = 50_000
    tables = [churn_labels(first, min(size, series - first)) for first in range(0, series, size)]
    began = time.perf_counter()
    async with await TimeSeriesStore.open(folder.as_uri(), "series", CONFIG) as store:
        for labels in tables:
            count = len(labels)
            await store.write(
                SampleBatch.of(labels, np.arange(count), np.full(count, 1_700_000_000_000), np.ones(count))
            )
        await store.flush()
    return time.perf_counter() - began


def churn_labels(first: int, count: int) -> pa.Table:
    pods = [f"pod-{number}" for number in range(first, first + count)]
    return pa.table({"__name__": ["up"] * count, "pod": pods, "zone": [f"z{n % 10}" for n in range(count)]})


def churn_bodies(series: int) -> list[bytes]:
    size = 10_000
    bodies: list[bytes] = []
    for first in range(0, series, size):
        labels = [{"__name__": "up", "pod": f"pod-{n}", "zone": f"z{n % 10}"} for n in range(first, first + size)]
        bodies += remote_write_bodies(labels, np.array([int(time.time()) * 1000]), np.ones((size, 1)))
    return bodies


def timed_writes(write: Callable[[Any], None], bodies: list[Any]) -> float:
    began = time.perf_counter()
    for body in bodies:
        write(body)
    return time.perf_counter() - began


@contextmanager
def started(name: str, folder: Path) -> Iterator[HttpPeer]:
    peer = HttpPeer(name, folder)
    try:
        yield peer
    finally:
        peer.close()


class Comparison:
    """Figures of ours and of the peers that are there, each in a folder of its own."""

    def __init__(self, folder: Path, peers: list[str]) -> None:
        self.folder = folder
        self.peers = peers
        self.ours: Report = {}
        self.theirs: dict[str, Report] = {}

    def ingest(self, work: Work, sizes: tuple[int, ...]) -> None:
        for size in sizes:
            took, stored = asyncio.run(ingest(self.folder / f"ours-{size}", work.batches(size)))
            self.ours[f"M samples/s, batches of {size}"] = work.samples / took / 1e6
            self.ours["bytes/sample"] = stored / work.samples
        bodies = remote_write_bodies(work.labels, work.times, work.values)
        for peer, report in self._started():
            report["M samples/s, batches of 10000"] = work.samples / timed_writes(peer.write, bodies) / 1e6
            peer.settle()
            report["bytes/sample"] = peer.size_bytes() / work.samples
        if "duckdb" in self.peers:
            self._duckdb(work)

    def queries(self, work: Work) -> None:
        asyncio.run(ingest(self.folder / "ours", work.batches(100_000)))
        self.ours |= asyncio.run(our_queries(self.folder / "ours", work))
        bodies = remote_write_bodies(work.labels, work.times, work.values)
        for peer, report in self._started():
            timed_writes(peer.write, bodies)
            peer.settle()
            report |= peer_queries(peer, work)

    def churn(self, series: int) -> None:
        self.ours["K new series/s"] = series / asyncio.run(churn(self.folder / "churn", series)) / 1e3
        bodies = churn_bodies(series)
        for peer, report in self._started():
            report["K new series/s"] = series / timed_writes(peer.write, bodies) / 1e3

    def _started(self) -> Iterator[tuple[HttpPeer, Report]]:
        for name in PEERS:
            if name in self.peers:
                try:
                    with started(name, self.folder) as peer:
                        yield peer, self.theirs.setdefault(name, {})
                except PeerMissing as missing:
                    print(f"left out: {missing}")

    def _duckdb(self, work: Work) -> None:
        try:
            duck = DuckDbPeer(self.folder)
        except PeerMissing as missing:
            print(f"left out: {missing}")
            return
        report = self.theirs.setdefault("duckdb", {})
        tables = [
            pa.table({"series": batch.series, "time": batch.timestamps_ms, "value": batch.values})
            for batch in work.batches(100_000)
        ]
        report["M samples/s, batches of 100000"] = work.samples / timed_writes(duck.write, tables) / 1e6
        report["bytes/sample"] = duck.size_bytes() / work.samples
        duck.close()

    def print(self, title: str) -> None:
        print(title)
        print(f"{'':32}{'penstock':>12}" + "".join(f"{name:>28}" for name in self.theirs))
        for name, value in self.ours.items():
            row = f"{name:32}{value:12.4g}"
            for figures in self.theirs.values():
                found = figures.get(name)
                row += f"{'–':>28}" if found is None else f"{found:16.4g} ({value / found:6.2f} ×)  "
            print(row, flush=True)


PARTS = ("ingest", "bytes", "scrapes", "queries", "churn")


def run(part: str, series: int, peers: list[str], scrapes: Path | None) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        comparison = Comparison(Path(temporary), peers)
        if part == "queries":
            comparison.queries(histograms(series, 24))
        elif part == "churn":
            comparison.churn(100 * series)
        elif part == "scrapes":
            if scrapes is None:
                print("left out: no folder of scrapes is named (--scrapes)")
                return
            comparison.ingest(scraped(scrapes), (100_000,))
        elif part == "bytes":
            comparison.ingest(exporters(series, 1_000), (100_000,))
        else:
            comparison.ingest(walks(series, 1_000), (10_000, 100_000))
        comparison.print(f"{part}: {series} series; times in seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the series")
    parser.add_argument("--part", action="append", choices=PARTS, help="only these parts")
    parser.add_argument("--peer", action="append", choices=[*PEERS, "duckdb"], help="only these peers")
    parser.add_argument("--scrapes", type=Path, help="a folder of an exporter's answers, a file a scrape")
    given = parser.parse_args()
    for part in given.part or PARTS:
        run(part, 1_000 if given.quick else 10_000, given.peer or [*PEERS, "duckdb"], given.scrapes)


if __name__ == "__main__":
    main()
