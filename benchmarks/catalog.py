"""Commits, plans and contention of the catalog, beside deltalake, pyiceberg and DuckLake.

Every commit writes a Parquet file of 100 rows and makes it visible. Ours are durable: each file and each head is
synced to the disk, which the peers leave out; on a memory file system, where a sync costs nothing, all do the same
work. Peers stop at a time limit, and the count they reached is told. With
the latencies of S3 (15 ms a GET, 40 ms a PUT) ours runs on a simulated clock. Run it with
`python benchmarks/catalog.py`; it takes about ten minutes, `--quick` a tenth of it; a part runs
alone by its name: `contention`, `plans`, `sequential`, `writers`; `--peer=deltalake` leaves the other peers out.
"""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from _catalog_peers import HOUR, ROWS, batch, installed, race
from _usage import check_words
from penstock.catalog import Catalog, CatalogConfig, DataFile, column_stats, split_shard
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import PenstockError
from penstock.objects import MemoryStore, ObjectStore, open_store
from penstock.testing import FaultPlan, FaultyStore, Latency, Simulation, simulate
from penstock.testing.storage.hostile_stores import PassingStore

QUICK = "--quick" in sys.argv
COMMITS, FLAT = (100, 1_000) if QUICK else (1_000, 10_000)
PEER_SECONDS = 15.0 if QUICK else 120.0
RACE_SECONDS = 3.0 if QUICK else 10.0
MEMORY = Path("/dev/shm")
SIZES = (1_000, 10_000) if QUICK else (1_000, 10_000, 100_000, 1_000_000)
S3 = FaultPlan(
    latency=Latency(0.015, 0.015),
    latency_by_verb={"put": Latency(0.04, 0.04), "put_if": Latency(0.04, 0.04)},
)


def entry(number: int, size: int = 1_000_000) -> DataFile:
    start = number * HOUR // 60
    day, hour = divmod(start // HOUR, 24)
    return DataFile(
        path=f"acme/cpu/{day:05}/{hour:02}/{number:08}.parquet",
        min_timestamp=start,
        max_timestamp=start + HOUR // 60 - 1,
        row_count=ROWS,
        size_bytes=size,
        tenant="acme",
        table="cpu",
        column_stats={
            "ts": column_stats(start, start + ROWS - 1, has_nulls=False, type="timestamp"),
            "host": column_stats(f"h{number:07}", f"h{number:07}", has_nulls=False),
            "value": column_stats(0.5, 0.5, has_nulls=False, has_nan=False),
        },
    )


class MeteredStore(PassingStore):
    """Counts the bytes of metadata written."""

    written = 0

    async def put(self, key: str, data: Any) -> Any:
        self.written += len(data) if "metadata/" in key else 0
        return await self._inner.put(key, data)

    async def put_if(self, key: str, data: Any, *, version: str | None) -> Any:
        self.written += len(data)
        return await self._inner.put_if(key, data, version=version)


async def commit(catalog: Catalog, store: ObjectStore, number: int) -> None:
    body = io.BytesIO()
    pq.write_table(batch(number), body)
    file = entry(number, body.tell())
    await store.put(file.path, body.getvalue())
    await catalog.register([file])


def spread(times: list[float], busy: float) -> str:
    first, last = times[:100], times[-100:]
    return (
        f"{len(times):>6} commits  {len(times) / sum(times):7.1f}/s  "
        f"first hundred {1000 * statistics.mean(first):7.2f} ms  last hundred {1000 * statistics.mean(last):7.2f} ms "
        f"({1 / statistics.mean(last):.0f}/s)  processor {1000 * busy / len(times):.2f} ms each"
    )


def in_turn(folder: Path) -> None:
    sequential(folder, "the local disk")
    if MEMORY.is_dir():
        apart = Path(tempfile.mkdtemp(prefix="penstock-catalog-", dir=MEMORY))
        try:
            sequential(apart, "a memory file system, where a sync costs nothing")
        finally:
            shutil.rmtree(apart, ignore_errors=True)
    else:
        print(f"  no memory file system here: there is no {MEMORY}")


def sequential(folder: Path, place: str) -> None:
    """One writer, one commit after the other; ours goes on to show that it stays flat."""
    print(f"\nsequential commits, one file each, on {place}")

    async def ours() -> tuple[list[float], list[float], int, float, float]:
        store = MeteredStore(await open_store(f"file://{folder}/ours"))
        catalog = await Catalog.open(store)
        times: list[float] = []
        alone: list[float] = []
        written, busy_first, busy = 0, 0.0, time.process_time()
        for number in range(FLAT):
            began = time.perf_counter()
            if number < COMMITS:
                await commit(catalog, store, number)
            else:
                await catalog.register([entry(number)])
            (times if number < COMMITS else alone).append(time.perf_counter() - began)
            if number == COMMITS - 1:
                written, busy_first, busy = store.written, time.process_time() - busy, time.process_time()
        await catalog.close()
        await store.close()
        return times, alone, written, busy_first, time.process_time() - busy

    times, alone, written, busy, busy_alone = asyncio.run(ours())
    print(f"  penstock, data synced   {spread(times, busy)}  metadata {written / 1e6:,.1f} MB written")
    print(f"  penstock, {COMMITS:,} to {FLAT:,} {spread(alone, busy_alone)}  (the entry alone)")
    for peer in installed(folder):
        peer.create()
        found: list[float] = []
        end, busy = time.monotonic() + PEER_SECONDS, time.process_time()
        while len(found) < COMMITS and time.monotonic() < end:
            began = time.perf_counter()
            peer.commit(len(found) + 1)
            found.append(time.perf_counter() - began)
        print(
            f"  {peer.name:<23} {spread(found, time.process_time() - busy)}  metadata {peer.metadata_bytes() / 1e6:,.1f} MB left"
        )
        ratio = statistics.median(found[-100:]) / statistics.median(times[-100:])
        print(f"  {'':<23} median of the last hundred commits: ours {ratio:.1f} x its rate")


def _our_writer(url: str, first: int, seconds: float, found: Any) -> None:
    async def work() -> None:
        store = await open_store(url)
        catalog = await Catalog.open(store)
        landed = failed = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                await commit(catalog, store, first + landed + failed)
                landed += 1
            except PenstockError:
                failed += 1
        found.put((landed, failed))
        await catalog.close()
        await store.close()

    asyncio.run(work())


def eight_writers(folder: Path) -> None:
    print(f"\n8 processes at once, {RACE_SECONDS:g} s, on the local disk")
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    url = f"file://{folder}/race"
    arguments = [(url, 100_000 * (number + 1), RACE_SECONDS, found) for number in range(8)]
    processes = [context.Process(target=_our_writer, args=one) for one in arguments]
    for process in processes:
        process.start()
    answers = [found.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    tell_race("penstock", sum(landed for landed, _ in answers), sum(failed for _, failed in answers))
    for peer in installed(folder):
        if peer.name == "ducklake":
            print("  ducklake      its file is written by one process alone")
            continue
        peer.create()
        tell_race(peer.name, *race(peer, 8, RACE_SECONDS))


def tell_race(name: str, landed: int, failed: int) -> None:
    share = failed / max(1, landed + failed)
    print(f"  {name:<13} {landed / RACE_SECONDS:6.1f} commits/s  {failed} failed ({share:.1%})")


def timed(work: Callable[[], Any], times: int) -> tuple[float, float]:
    """Median seconds by the clock, and of the processor."""
    clocks, processors = [], []
    for _ in range(times):
        began, busy = time.perf_counter(), time.process_time()
        work()
        clocks.append(time.perf_counter() - began)
        processors.append(time.process_time() - busy)
    return statistics.median(clocks), statistics.median(processors)


def plans(folder: Path) -> None:
    print("\nplan of one hour (60 files), cold and warm: milliseconds by the clock (of the processor)")
    for size in SIZES:
        url = f"file://{folder}/plan-{size}"
        # One hour in the middle of all.
        hour = size // 60 // 2
        asyncio.run(fill(url, size))
        with asyncio.Runner() as runner:
            store = runner.run(open_store(url))

            def cold(runner: asyncio.Runner = runner, store: Any = store, hour: int = hour) -> None:
                async def once() -> None:
                    catalog = await Catalog.open(store)
                    assert len(await catalog.plan(hour * HOUR, (hour + 1) * HOUR)) == 60
                    await catalog.close()

                runner.run(once())

            opened = runner.run(Catalog.open(store, config=CatalogConfig(staleness_seconds=3600.0)))

            async def many(opened: Catalog = opened, hour: int = hour) -> tuple[float, float]:
                assert len(await opened.plan(hour * HOUR, (hour + 1) * HOUR)) == 60
                clocks, processors = [], []
                for _ in range(200):
                    began, busy = time.perf_counter(), time.process_time()
                    await opened.plan(hour * HOUR, (hour + 1) * HOUR)
                    clocks.append(time.perf_counter() - began)
                    processors.append(time.process_time() - busy)
                return statistics.median(clocks), statistics.median(processors)

            first = timed(cold, 11)
            warm = runner.run(many())
            head = runner.run(opened.shard("").head())
            size_bytes = opened.shard("").head_bytes
            runner.run(opened.close())
            runner.run(store.close())
        tell_plan("penstock", size, first, warm, f"head {size_bytes:,} bytes, {len(head.segments)} segments")
        for peer in installed(folder):
            limit = {"deltalake": 100_000, "pyiceberg": 200, "ducklake": 1_000}[peer.name]
            count = min(size, limit)
            if count < size and size > 1_000:
                continue
            peer.fill(count)
            opening, again = peer.planner(count // 60 // 2)
            again()
            tell_plan(peer.name, count, timed(opening, 5), timed(again, 5))


def tell_plan(name: str, size: int, cold: tuple[float, float], warm: tuple[float, float], note: str = "") -> None:
    cells = [f"{1000 * clock:9.3f} ({1000 * busy:8.3f})" for clock, busy in (cold, warm)]
    print(f"  {size:>9,} files  {name:<10} cold {cells[0]}  warm {cells[1]}  {note}")


async def fill(url: str, size: int) -> None:
    store = await open_store(url)
    async with await Catalog.open(store) as catalog:
        for start in range(0, size, 25_000):
            await catalog.register([entry(number) for number in range(start, min(size, start + 25_000))])
    await store.close()


def contention() -> None:
    """One caller in each process, then sixteen that share its writes, then one again with the tables on eight shards."""
    print("\nsimulated S3: 15 ms a GET, 40 ms a PUT, 60 s; one file a call")
    print("  processes  callers each  shards  files/s  commits/s  writes lost  failed  median wait   99 %")
    rows = [(processes, callers, 1) for callers in (1, 16) for processes in (1, 8, 50)]
    for row in [*rows, (50, 1, 8)]:
        print("  " + simulate(lambda world, row=row: contended(world, *row), seed=1))


async def contended(world: Simulation, processes: int, callers: int, shards: int) -> str:
    store = FaultyStore(MemoryStore(clock=world.clock), S3, entropy=world.entropy.fork("s3"), clock=world.clock)
    seconds = 10.0 if QUICK else 60.0
    waits: list[float] = []
    failed = 0
    catalogs = [
        await Catalog.open(store, clock=world.clock, entropy=world.entropy.fork(f"p{number}"))
        for number in range(processes)
    ]
    if shards > 1:
        await split_shard(catalogs[0], "", [f"s{number}" for number in range(shards)])
        for catalog in catalogs:
            await catalog.refresh_map()
    start = world.clock.monotonic()

    async def caller(catalog: Catalog, table: str, first: int) -> None:
        nonlocal failed
        number = first
        while world.clock.monotonic() < start + seconds:
            began = world.clock.monotonic()
            try:
                await catalog.register([msgspec.structs.replace(entry(number), table=table)])
                waits.append(world.clock.monotonic() - began)
            except PenstockError:
                failed += 1
            number += 1

    await asyncio.gather(
        *(
            caller(catalog, f"t{at}", 10_000_000 + (at * callers + turn) * 10_000)
            for at, catalog in enumerate(catalogs)
            for turn in range(callers)
        )
    )
    took = world.clock.monotonic() - start
    heads = [await catalogs[0].shard(name).fresh() for name in catalogs[0].shards]
    assert sum(head.live_files for head in heads) == len(waits) or failed
    commits = sum(head.seq for head in heads)
    lost = statistics.mean(
        catalog.shard(catalog.shard_of("acme", f"t{at}")).conflict_rate for at, catalog in enumerate(catalogs)
    )
    waits.sort()
    return (
        f"{processes:>9}  {callers:>12}  {shards:>6}  {len(waits) / took:7.1f}  {commits / took:9.1f}  {lost:10.0%}  {failed:>6}"
        f"  {waits[len(waits) // 2]:9.2f} s  {waits[int(len(waits) * 0.99)]:5.2f} s"
    )


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="penstock-catalog-"))
    began = SYSTEM_CLOCK.monotonic()
    try:
        parts: dict[str, Callable[[], object]] = {
            "contention": contention,
            "plans": lambda: plans(folder),
            "sequential": lambda: in_turn(folder),
            "writers": lambda: eight_writers(folder),
        }
        chosen = [name for name in sys.argv[1:] if name in parts]
        for name in chosen or parts:
            parts[name]()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{SYSTEM_CLOCK.monotonic() - began:.0f} s")


if __name__ == "__main__":
    check_words(__doc__, ["contention", "plans", "sequential", "writers", "--quick"], values=["--peer="])
    main()
