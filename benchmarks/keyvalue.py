"""Block writes, reads and scans of the key-value store in a directory, beside RocksDB, in one run.

Both write to the same disk and wait until it has the data: RocksDB with its synchronous log, Penstock
with `durable()`. Values are random bytes, so neither gains from compression. Run it with
`python benchmarks/keyvalue.py`; it takes about a minute and prints one line a measure.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocksdict import AccessType, Options, Rdict, WriteOptions
from rocksdict import WriteBatch as RocksBatch
from slatedb import uniffi

from _usage import check_words
from penstock.keyvalue import KeyValue, WriteBatch, open_follower, open_keyvalue, shim

VALUE_BYTES = (32 << 10, 100 << 10, 256 << 10)
TOTAL_BYTES = 96 << 20
BATCH_BYTES = 1 << 20
TARGET_MB_PER_SECOND = 60
LATENCY_WRITES = 200


@dataclass
class Rates:
    """Megabytes a second of one store, by measure."""

    write: float = 0
    get: float = 0
    get_many: float = 0
    get_cold: float = 0
    scan: float = 0
    scan_cold: float = 0
    scan_reverse: float = 0


def main() -> None:
    report_copy()
    with folder() as place:
        print(f"{TOTAL_BYTES >> 20} MB a run, batches of {BATCH_BYTES >> 10} KB, four in flight; MB/s, ours / RocksDB")
        print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; writes are the best of three\n")
        for size in VALUE_BYTES:
            blocks = Blocks(size)
            ours = asyncio.run(measure_ours(place / f"ours-{size}", blocks))
            rocks = measure_rocks(place / f"rocks-{size}", blocks)
            report(size, ours, rocks)
        asyncio.run(report_latency(place / "latency"))


class Blocks:
    """The same keys and values for every store."""

    def __init__(self, size: int) -> None:
        entropy = random.Random(size)
        self.size = size
        self.keys = [b"block/%08d" % number for number in range(TOTAL_BYTES // size)]
        self.values = [entropy.randbytes(size) for _ in range(16)]
        self.shuffled = entropy.sample(self.keys, len(self.keys))
        self.megabytes = len(self.keys) * size / 1e6

    def rounds(self) -> Iterator[list[list[tuple[bytes, bytes]]]]:
        """The batches in three parts: of a busy machine, the best part tells most."""
        batches = list(self.batches())
        third = -(-len(batches) // 3)
        for first in range(0, len(batches), third):
            yield batches[first : first + third]

    def batches(self) -> Iterator[list[tuple[bytes, bytes]]]:
        rows = max(1, BATCH_BYTES // self.size)
        for first in range(0, len(self.keys), rows):
            numbers = range(first, min(first + rows, len(self.keys)))
            yield [(self.keys[number], self.values[number % 16]) for number in numbers]


async def measure_ours(place: Path, blocks: Blocks) -> Rates:
    store = await open_keyvalue(place.as_uri(), "bench", cache_bytes_max=256 << 20)
    rates = Rates()
    for batches in blocks.rounds():
        elapsed = await timed(lambda batches=batches: write_ours(store, batches))
        rates.write = max(rates.write, megabytes(batches) / elapsed)
    rates.get = blocks.megabytes / await timed(lambda: get_ours(store, blocks))
    rates.get_many = blocks.megabytes / await timed(lambda: get_many_ours(store, blocks))
    rates.scan = blocks.megabytes / await timed(lambda: scan_ours(store, blocks))
    rates.scan_reverse = blocks.megabytes / await timed(lambda: scan_ours(store, blocks, reverse=True))
    await store.close()
    reopened = await open_keyvalue(place.as_uri(), "bench", cache_bytes_max=1 << 20)
    rates.get_cold = blocks.megabytes / await timed(lambda: get_many_ours(reopened, blocks))
    rates.scan_cold = blocks.megabytes / await timed(lambda: scan_ours(reopened, blocks))
    await reopened.close()
    return rates


async def write_ours(store: KeyValue, batches: list[list[tuple[bytes, bytes]]]) -> None:
    waiting: list[Awaitable[None]] = []
    for rows in batches:
        batch = WriteBatch()
        for key, value in rows:
            batch.put(key, value)
        waiting.append(asyncio.ensure_future((await store.write(batch)).durable()))
        if len(waiting) == 4:
            await waiting.pop(0)
    await asyncio.gather(*waiting)


async def get_ours(store: KeyValue, blocks: Blocks) -> None:
    for key in blocks.shuffled:
        assert await store.get(key)


async def get_many_ours(store: KeyValue, blocks: Blocks) -> None:
    for first in range(0, len(blocks.shuffled), 64):
        assert all(await store.get_many(blocks.shuffled[first : first + 64]))


async def scan_ours(store: KeyValue, blocks: Blocks, reverse: bool = False) -> None:
    rows = 0
    async for block in store.scan_prefix(b"block/", reverse=reverse):
        rows += len(block)
    assert rows == len(blocks.keys)


def measure_rocks(place: Path, blocks: Blocks) -> Rates:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    store = Rdict(str(place), options)
    synchronous = WriteOptions()
    synchronous.sync = True
    rates = Rates()
    for batches in blocks.rounds():
        with clocked() as elapsed:
            for rows in batches:
                batch = RocksBatch(raw_mode=True)
                for key, value in rows:
                    batch.put(key, value)
                store.write(batch, synchronous)
        rates.write = max(rates.write, megabytes(batches) / elapsed[0])
    rates.get = rates.get_many = blocks.megabytes / rocks_get(store, blocks)
    rates.scan = blocks.megabytes / rocks_scan(store, blocks)
    rates.scan_reverse = blocks.megabytes / rocks_scan(store, blocks, backwards=True)
    store.close()
    reopened = Rdict(str(place), options, access_type=AccessType.read_write())
    rates.get_cold = blocks.megabytes / rocks_get(reopened, blocks)
    rates.scan_cold = blocks.megabytes / rocks_scan(reopened, blocks)
    reopened.close()
    return rates


def rocks_get(store: Rdict, blocks: Blocks) -> float:
    with clocked() as elapsed:
        for key in blocks.shuffled:
            assert store[key]
    return elapsed[0]


def rocks_scan(store: Rdict, blocks: Blocks, backwards: bool = False) -> float:
    with clocked() as elapsed:
        rows = sum(len(value) > 0 for _, value in store.items(backwards=backwards))
        assert rows == len(blocks.keys)
    return elapsed[0]


def report_copy() -> None:
    """The copy into Rust as the binding ships it and with the shim, before anything installs it."""
    value = random.Random(0).randbytes(100 << 10)
    shipped = copy_rate(value, 5)
    shim.install()
    print(f"copy of 100 KB into Rust: {shipped:.1f} MB/s as shipped, {copy_rate(value, 500):.0f} with the shim\n")


def copy_rate(value: bytes, rounds: int) -> float:
    with clocked() as elapsed:
        for _ in range(rounds):
            uniffi.WriteBatch().put(b"key", value)
    return rounds * len(value) / 1e6 / elapsed[0]


async def report_latency(place: Path) -> None:
    store = await open_keyvalue(place.as_uri(), "bench")
    follower = await open_follower(place.as_uri(), "bench", poll_interval_ms=50)
    waits, lags = [], []
    for number in range(LATENCY_WRITES):
        value = b"%d" % number
        began = time.perf_counter()
        await (await store.write(WriteBatch().put(b"key", value))).durable()
        waits.append(1000 * (time.perf_counter() - began))
        if number % 10 == 0:
            began = time.perf_counter()
            while await follower.get(b"key") != value:
                pass
            lags.append(1000 * (time.perf_counter() - began))
    print(f"one small durable write: {quantiles(waits)} (flush interval 5 ms, one at a time)")
    print(f"a follower polling every 50 ms sees it after: {quantiles(lags)}")
    await follower.close()
    await store.close()


def report(size: int, ours: Rates, rocks: Rates) -> None:
    print(f"values of {size >> 10} KB")
    for name, rate in vars(ours).items():
        peer = vars(rocks)[name]
        verdict = "ok" if rate >= TARGET_MB_PER_SECOND else f"under {TARGET_MB_PER_SECOND}"
        print(f"  {name:13} {rate:8.0f} / {peer:6.0f}   ratio {rate / peer:5.2f}   {verdict}")


def megabytes(batches: list[list[tuple[bytes, bytes]]]) -> float:
    return sum(len(value) for rows in batches for _, value in rows) / 1e6


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


@contextmanager
def clocked() -> Iterator[list[float]]:
    elapsed = [0.0]
    began = time.perf_counter()
    yield elapsed
    elapsed[0] = time.perf_counter() - began


@contextmanager
def folder() -> Iterator[Path]:
    # Where /tmp is memory, PENSTOCK_BENCH_DIR names a real disk.
    place = Path(tempfile.mkdtemp(prefix="keyvalue-bench-", dir=os.environ.get("PENSTOCK_BENCH_DIR")))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def quantiles(milliseconds: list[float]) -> str:
    ordered = sorted(milliseconds)
    return f"median {statistics.median(ordered):.1f} ms, 95th {ordered[len(ordered) * 95 // 100]:.1f} ms"


if __name__ == "__main__":
    check_words(__doc__)
    main()
