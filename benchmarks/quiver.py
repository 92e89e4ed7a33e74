"""The store at the edge beside LMDB, SQLite, Redis Streams, NATS JetStream and the disk itself, all synced, in one run.

Every system gets the same Arrow bundles from the same number of callers, each of which waits for its acknowledgement
before it makes the next call. Peers get bytes that were serialised beforehand; ours serialises each bundle, and so does
`lmdb, arrow`, which is given Arrow batches as our store is. Where a peer has no group commit of its own (LMDB, SQLite,
the raw disk), all callers of a moment share one transaction, as they do in ours. The raw limit writes the same bytes,
unframed and unchecked, into a file that was written before, directly; `appends` is the plain way to do it, a growing
file and fdatasync, also shared by all callers of a moment. Our store has a subscriber that acknowledges each segment at
once, so most are never written; `to files` is the same store with `segment.memory_delivery_seconds` 0, which writes
every segment. Peers that are not installed are named as absent.
Takes about six minutes; `--quick` takes two. `ingest`, `backlog` and `cost` choose parts, and numbers from 1 on choose
loads of the first: `python benchmarks/quiver.py ingest 1 5`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from _usage import check_words
from buffer import Absent, nats, redis
from penstock.clock import SYSTEM_CLOCK
from penstock.disk import RealDisk, aligned_buffer, has_direct_writes
from penstock.quiver import Bundle, Durability, Quiver, QuiverConfig, SegmentConfig
from penstock.quiver.log.group_commit import GroupCommit

MIB = 1 << 20
QUICK = "--quick" in sys.argv
SECONDS = 1.0 if QUICK else 2.5
# Taken in turns, and the best counts: a shared disk has bad moments.
ROUNDS = 2
BACKLOG_BYTES = (256 if QUICK else 1024) * MIB


@dataclass(frozen=True)
class Load:
    name: str
    rows: int
    producers: int
    # Bundles that one call brings.
    per_call: int = 1

    def bundles(self) -> list[Bundle]:
        return [Bundle({"logs": self._batch(number)}, signal="logs") for number in range(self.per_call)]

    def _batch(self, seed: int) -> pa.RecordBatch:
        draw = np.random.default_rng(seed)
        if self.rows == 1:
            return pa.record_batch({"body": [draw.bytes(1000)]})
        words = [f"service-{number}" for number in range(20)]
        return pa.record_batch(
            {
                "time": pa.array(np.arange(self.rows) + 1_700_000_000_000_000_000, pa.timestamp("ns")),
                "service": pa.array([words[number] for number in draw.integers(0, 20, self.rows)]),
                "value": draw.random(self.rows),
                "body": pa.array([draw.bytes(60) for _ in range(self.rows)]),
            }
        )


LOADS = (
    Load("1,000 rows, 64 producers", 1000, 64),
    Load("8,192 rows, 64 producers", 8192, 64),
    Load("8,192 rows, 1 producer", 8192, 1),
    Load("1 KB, 64 producers, one a call", 1, 64),
    Load("1 KB, 64 producers, 100 a call", 1, 64, 100),
    Load("1 KB, 1 producer, one a call", 1, 1),
)


class System(Protocol):
    async def put(self, bundles: list[Bundle], bodies: list[bytes]) -> None:
        """Return once all are durable."""
        ...


# Systems -----------------------------------------------------------------------------------------


@dataclass
class Ours:
    store: Quiver

    async def put(self, bundles: list[Bundle], bodies: list[bytes]) -> None:
        if len(bundles) == 1:
            await self.store.ingest(bundles[0])
        else:
            await self.store.ingest_many(bundles)


@asynccontextmanager
async def to_files(folder: Path) -> AsyncIterator[System]:
    config = QuiverConfig(segment=SegmentConfig(memory_delivery_seconds=0.0))
    async with ours(folder, config) as system:
        yield system


@asynccontextmanager
async def ours(folder: Path, config: QuiverConfig | None = None) -> AsyncIterator[System]:
    async with await Quiver.open(str(folder / "store"), config) as store:
        # Nobody drains: what is full goes, so that the disk does not.
        await store.register("s")
        draining = asyncio.create_task(_drain(store))
        yield Ours(store)
        draining.cancel()


async def _drain(store: Quiver) -> None:
    while (delivery := await store.next("s")) is not None:
        await delivery.ack()


class Windowed:
    """Callers of a moment share one write, done in a thread."""

    def __init__(self, write: Callable[[Sequence[bytes]], None]) -> None:
        async def commit(group: Sequence[list[bytes]], _before: object) -> list[None]:
            await asyncio.to_thread(write, [body for bodies in group for body in bodies])
            return [None] * len(group)

        self._group: GroupCommit[list[bytes], None] = GroupCommit(commit, clock=SYSTEM_CLOCK, interval=0.025)

    async def put(self, bundles: list[Bundle], bodies: list[bytes]) -> None:
        await self._group.add(bodies, sum(map(len, bodies)))


@asynccontextmanager
async def raw(folder: Path) -> AsyncIterator[System]:
    disk, size = RealDisk(), 64 * MIB
    direct = has_direct_writes(disk, str(folder))
    path = str(folder / "raw")
    disk.create(path, bytes(size))
    disk.sync_file(path)
    file, buffer, at = disk.open(path, direct=direct), aligned_buffer(16 * MIB), 0

    def write(bodies: Sequence[bytes]) -> None:
        nonlocal at
        end = 0
        for body in bodies:
            buffer[end : end + len(body)] = body
            end += len(body)
        end += -end % 4096
        at = at if at + end <= size else 0
        file.write_at(at, buffer[:end])
        if not direct:
            file.sync()
        at += end

    yield Windowed(write)
    file.close()


@asynccontextmanager
async def appends(folder: Path) -> AsyncIterator[System]:
    handle = os.open(folder / "appends", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(bodies: Sequence[bytes]) -> None:
        rest = memoryview(b"".join(bodies))
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fdatasync(handle)

    yield Windowed(write)
    os.close(handle)


class FromArrow:
    """A peer that is given the bundles themselves, as our store is: each caller makes the bytes of its own."""

    def __init__(self, peer: System) -> None:
        self._peer = peer

    async def put(self, bundles: list[Bundle], bodies: list[bytes]) -> None:
        await self._peer.put(bundles, [_stream(batch) for bundle in bundles for batch in bundle.slots.values()])


@asynccontextmanager
async def lmdb(folder: Path) -> AsyncIterator[System]:
    import lmdb as library

    environment = library.open(str(folder / "lmdb"), map_size=64 << 30, sync=True, metasync=True)
    number = 0

    def write(bodies: Sequence[bytes]) -> None:
        nonlocal number
        with environment.begin(write=True) as transaction:
            for body in bodies:
                transaction.put(number.to_bytes(8, "big"), body, append=True)
                number += 1

    yield Windowed(write)
    environment.close()


@asynccontextmanager
async def lmdb_from_arrow(folder: Path) -> AsyncIterator[System]:
    async with lmdb(folder) as system:
        yield FromArrow(system)


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[System]:
    connection = sqlite3.connect(folder / "store.db", check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE bundles (number INTEGER PRIMARY KEY, body BLOB)")

    def write(bodies: Sequence[bytes]) -> None:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO bundles (body) VALUES (?)", [(body,) for body in bodies])
        connection.execute("COMMIT")

    yield Windowed(write)
    connection.close()


def queue(start: Callable[[Path], AbstractAsyncContextManager[Any]]) -> Callable[[Path], Any]:
    @asynccontextmanager
    async def system(folder: Path) -> AsyncIterator[System]:
        async with start(folder) as opened:

            class Peer:
                async def put(self, bundles: list[Bundle], bodies: list[bytes]) -> None:
                    await opened.produce(bodies)

            yield Peer()

    return system


SYSTEMS: dict[str, Callable[[Path], AbstractAsyncContextManager[System]]] = {
    "penstock": ours,
    "to files": to_files,
    "raw disk": raw,
    "appends": appends,
    "lmdb": lmdb,
    "lmdb, arrow": lmdb_from_arrow,
    "sqlite": sqlite,
    "redis": queue(redis),
    "nats": queue(lambda folder: nats(folder, synced=True)),
}


# Ingest ------------------------------------------------------------------------------------------


@dataclass
class Measured:
    bundles_per_second: float = 0.0
    mb_per_second: float = 0.0
    median_ms: float = 0.0


async def measure(load: Load, start: AbstractAsyncContextManager[System]) -> Measured:
    bundles = load.bundles()
    bodies = [_stream(batch) for bundle in bundles for batch in bundle.slots.values()]
    async with start as system:
        # Files are set aside and written once: peers grow theirs, ours recycles.
        warm_until = time.perf_counter() + SECONDS / 2
        await asyncio.gather(*(_calls(system, bundles, bodies, warm_until, []) for _ in range(load.producers)))
        began, latencies = time.perf_counter(), list[float]()
        await asyncio.gather(
            *(_calls(system, bundles, bodies, began + SECONDS, latencies) for _ in range(load.producers))
        )
        seconds = time.perf_counter() - began
    calls, size = len(latencies), sum(map(len, bodies))
    return Measured(calls * load.per_call / seconds, calls * size / 1e6 / seconds, 1000 * statistics.median(latencies))


async def _calls(
    system: System, bundles: list[Bundle], bodies: list[bytes], until: float, latencies: list[float]
) -> None:
    while (began := time.perf_counter()) < until:
        await system.put(bundles, bodies)
        latencies.append(time.perf_counter() - began)


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def report(load: Load, place: Path) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    absent: dict[str, str] = {}
    for name, start in ROUNDS * [*SYSTEMS.items()]:
        folder = Path(tempfile.mkdtemp(dir=place))
        try:
            one = asyncio.run(measure(load, start(folder)))
        except (Absent, ModuleNotFoundError) as missing:
            absent[name] = str(missing)
            continue
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        best = found.get(name)
        if best is None or one.bundles_per_second > best.bundles_per_second:
            found[name] = one
    print(
        f"\n{load.name}, {sum(len(_stream(b.slots['logs'])) for b in load.bundles()) // load.per_call:,} bytes a bundle"
    )
    for name, one in found.items():
        print(
            f"  {name:11} {one.mb_per_second:9,.0f} MB/s  {one.bundles_per_second:10,.0f} bundles/s"
            f"  median {one.median_ms:8.2f} ms"
        )
    for name, why in absent.items():
        print(f"  {name:11} absent: {why}")
    return found


def mark(what: str, value: float | None, target: float, *, at_most: bool = False) -> None:
    if value is None:
        print(f"  {what}: no peer to compare with")
        return
    met = value <= target if at_most else value >= target
    print(f"  {what}: {value:.2f}, target {'≤' if at_most else '≥'} {target:g}: {'met' if met else 'MISSED'}")


def ratio(found: dict[str, Measured], peer: str, field: str = "bundles_per_second") -> float | None:
    if peer not in found:
        return None
    return float(getattr(found["penstock"], field) / getattr(found[peer], field))


def report_ingest(place: Path) -> None:
    wanted = {int(word) for word in sys.argv[1:] if word.isdecimal()}
    for number, load in enumerate(LOADS, start=1):
        if wanted and number not in wanted:
            continue
        found = report(load, place)
        if load.rows > 1 and load.producers > 1:
            mark("of the raw disk", ratio(found, "raw disk"), 0.7)
            mark("times LMDB", ratio(found, "lmdb"), 4.0)
            mark("times LMDB from Arrow", ratio(found, "lmdb, arrow"), 4.0)
        if load.producers > 1 and load.per_call == 1:
            mark("times NATS", ratio(found, "nats"), 3.0)
            mark("times Redis", ratio(found, "redis"), 3.0)
        if load.per_call > 1:
            mark("times LMDB", ratio(found, "lmdb"), 2.5)
            mark("times LMDB from Arrow", ratio(found, "lmdb, arrow"), 2.5)
        if load.producers == 1 and load.rows == 1:
            mark("times SQLite's latency", ratio(found, "sqlite", "median_ms"), 1.3, at_most=True)


# Opening, draining, and what persistence costs ---------------------------------------------------

OPENING = """
import asyncio, sys, time
from penstock.quiver import Quiver
def peak():
    # Of this program alone: the usual figure remembers the process that started it.
    return int([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
async def main():
    began = time.perf_counter()
    store = await Quiver.open(sys.argv[1])
    seconds = time.perf_counter() - began
    print(seconds, peak() / 1024, len(store.segments))
    await store.close()
asyncio.run(main())
"""


async def _backlog(path: str) -> None:
    bundle = Load("", 8192, 1).bundles()[0]
    async with await Quiver.open(path) as store:
        await store.register("s")
        size = bundle.slots["logs"].nbytes
        for _ in range(BACKLOG_BYTES // size // 8):
            await asyncio.gather(*(store.ingest(bundle) for _ in range(8)))


async def _drained(path: str) -> float:
    async with await Quiver.open(path) as store:
        await store.register("s")
        began, size = time.perf_counter(), 0
        while (delivery := await store.next("s", 0.0)) is not None:
            for tables in (await delivery.read()).values():
                # Touch the bytes: a map alone has read nothing.
                size += sum(table.nbytes for table in tables)
                for table in tables:
                    pc.sum(table.column("value"))
            await delivery.ack()
        return size / (time.perf_counter() - began) / 1e9


def report_backlog(place: Path) -> None:
    path = str(place / "backlog")
    asyncio.run(_backlog(path))
    answer = subprocess.run([sys.executable, "-c", OPENING, path], capture_output=True, text=True, check=True)
    seconds, memory, segments = answer.stdout.split()
    print(f"\nbacklog of {BACKLOG_BYTES // MIB} MB in {segments} segments")
    mark("seconds to open", float(seconds), 1.0, at_most=True)
    mark("MB of memory, Python and Arrow included", float(memory), 200.0, at_most=True)
    for file in Path(path).rglob("*.arrow"):
        # Into the page cache: segments are written past it.
        file.read_bytes()
    mark("GB/s drained from the page cache", asyncio.run(_drained(path)), 1.0)


async def _pipeline(path: str, durability: Durability, batches: int) -> float:
    """Processor seconds of a small pipeline: parse lines, derive columns, hand over."""
    lines = b"\n".join(
        b'{"time": %d, "service": "service-%d", "value": %d.5, "body": "%s"}' % (n, n % 20, n, b"x" * 40)
        for n in range(1000)
    )
    import pyarrow.json as reader

    async with await Quiver.open(path, replace(QuiverConfig(), durability=durability)) as store:
        await store.register("s")
        draining = asyncio.create_task(_drain(store))
        began = _processor_seconds()
        for _ in range(batches // 8):
            bundles = []
            for _ in range(8):
                table = reader.read_json(pa.BufferReader(lines))  # type: ignore[arg-type]
                table = table.append_column("upper", pc.utf8_upper(table.column("body")))
                table = table.append_column("hot", pc.greater(table.column("value"), 500.0))  # type: ignore[call-overload]
                table = table.filter(pc.match_substring_regex(table.column("service"), "service-[0-9]+"))
                table = table.take(pc.sort_indices(table, sort_keys=[("service", "ascending"), ("time", "descending")]))
                bundles.append(Bundle({"logs": table.combine_chunks().to_batches()[0]}))
            await asyncio.gather(*(store.ingest(bundle) for bundle in bundles))
        spent = _processor_seconds() - began
        draining.cancel()
    return spent


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def report_cost(place: Path) -> None:
    """Pairs of short runs, one right behind the other, and the median of their ratios.

    The same work takes up to a third more processor time in one moment than in the next, on cores that are shared.
    """
    batches, spent = 200 if QUICK else 640, dict[Durability, list[float]]()
    for turn in range(5 if QUICK else 13):
        for durability in (Durability.OFF, Durability.GROUP) if turn % 2 else (Durability.GROUP, Durability.OFF):
            path = str(place / f"cost-{durability}")
            spent.setdefault(durability, []).append(asyncio.run(_pipeline(path, durability, batches)))
            shutil.rmtree(path, ignore_errors=True)
    pairs = zip(spent[Durability.GROUP], spent[Durability.OFF], strict=True)
    more = sorted(100 * (kept / off - 1) for kept, off in pairs)
    off = sorted(spent[Durability.OFF])
    print(
        f"\na pipeline of {batches} batches of 1,000 rows: {off[0]:.2f} to {off[-1]:.2f} s of processor time without"
        f" persistence; {more[0]:+.0f} to {more[-1]:+.0f} % with it"
    )
    mark("percent more with persistence, median", statistics.median(more), 5.0, at_most=True)


def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="penstock-quiver-", dir=os.environ.get("TMPDIR")))
    parts: dict[str, Callable[[Path], None]] = {
        "ingest": report_ingest,
        "backlog": report_backlog,
        "cost": report_cost,
    }
    chosen = [name for name in parts if name in sys.argv[1:]] or list(parts)
    try:
        for name in chosen:
            parts[name](place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    check_words(__doc__, ["ingest", "backlog", "cost", "--quick"], values=["#"])
    main()
