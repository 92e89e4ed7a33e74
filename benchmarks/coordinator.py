"""The coordinator beside a plain asyncio.Queue with a batch writer: writes a second, added latency, memory.

Both do the same work for the same callers: keep the order, merge rows into a batch, write it to the same
store (a dictionary that takes a fixed time to show a batch and a longer one to vouch for it), and tell
each caller when its write is durable. The peer is what one writes in an afternoon: no views, no snapshots,
no retries, no bound on bytes. Run it with `python benchmarks/coordinator.py`; it takes less than a minute.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from _usage import check_words
from penstock.coordinator import Coordinator, CoordinatorConfig, Epochs, Flushed, Watermarks
from penstock.errors import AtCapacity
from penstock.observability import LiveObserver

MIB = 1 << 20
ROW_BYTES = 100
STREAM_WRITES = 200_000
STREAM_CALLERS = (1, 64)
DURABLE_SECONDS = 1.0
DURABLE_CALLERS = (1, 64, 1024)
# A store that shows a batch after 1 ms and vouches for it after 10 ms more, as a log on a good disk does.
SHOW_SECONDS = 0.001
VOUCH_SECONDS = 0.010
BOUND_BYTES = 64 * MIB
BOUND_ROW_BYTES = (100, 1_000, 100_000)
# Taken in turns, and the best counts: a shared machine has bad moments.
ROUNDS = 3
BATCH_ROWS_MAX = 65_536
TARGET_WRITES_PER_SECOND = 200_000


def main() -> None:
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; best of {ROUNDS}\n")
    report_stream()
    report_durable()
    asyncio.run(report_idle_latency())
    asyncio.run(report_memory())


class Rows:
    """Rows by number; the last one wins."""

    __slots__ = ("rows", "size_bytes")

    def __init__(self, rows: dict[int, bytes] | None = None, size_bytes: int = 0) -> None:
        self.rows = {} if rows is None else rows
        self.size_bytes = size_bytes

    def merge(self, later: Rows) -> None:
        self.rows.update(later.rows)


@dataclass
class Store:
    """Shows a batch after one time and vouches for it after another; counts what it was given."""

    show_seconds: float
    vouch_seconds: float
    rows: dict[int, bytes] = field(default_factory=dict)
    batches: int = 0

    async def write(self, rows: dict[int, bytes]) -> None:
        await asyncio.sleep(self.show_seconds)
        self.rows.update(rows)
        self.batches += 1

    async def vouch(self) -> None:
        await asyncio.sleep(self.vouch_seconds)


class Writer(Protocol):
    async def write(self, rows: Rows) -> None: ...

    async def write_durable(self, rows: Rows) -> None: ...

    async def finish(self) -> None: ...


class Ours:
    """The coordinator, as a store would use it."""

    def __init__(self, store: Store, observed: bool = False) -> None:
        self._store = store
        observer: dict[str, Any] = {"observer": LiveObserver()} if observed else {}
        self._coordinator: Coordinator[Rows, int] = Coordinator(self, 0, **observer)

    def empty(self) -> Rows:
        return Rows()

    async def flush(self, delta: Rows, snapshot: int, epochs: Epochs) -> Flushed[int]:
        await self._store.write(delta.rows)
        return Flushed(snapshot + len(epochs), self._store.vouch)

    async def write(self, rows: Rows) -> None:
        await self._coordinator.write(rows)

    async def write_durable(self, rows: Rows) -> None:
        await self._coordinator.write_durable(rows)

    async def finish(self) -> None:
        await self._coordinator.shutdown()


class QueueAndBatches:
    """The peer: a bounded queue, one task that empties it into batches, a future for each durable caller."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: asyncio.Queue[tuple[Rows, asyncio.Future[None] | None]] = asyncio.Queue(4 * BATCH_ROWS_MAX)
        self._writer = asyncio.create_task(self._run())
        self._settling: set[asyncio.Task[None]] = set()

    async def write(self, rows: Rows) -> None:
        await self._queue.put((rows, None))

    async def write_durable(self, rows: Rows) -> None:
        durable = asyncio.get_running_loop().create_future()
        await self._queue.put((rows, durable))
        await durable

    async def finish(self) -> None:
        await self._queue.join()
        await asyncio.gather(*self._settling)
        self._writer.cancel()

    async def _run(self) -> None:
        while True:
            items = [await self._queue.get()]
            while len(items) < BATCH_ROWS_MAX and not self._queue.empty():
                items.append(self._queue.get_nowait())
            batch = Rows()
            for rows, _ in items:
                batch.merge(rows)
            await self._store.write(batch.rows)
            self._settle_later([durable for _, durable in items if durable])
            for _ in items:
                self._queue.task_done()

    def _settle_later(self, waiting: list[asyncio.Future[None]]) -> None:
        settling = asyncio.get_running_loop().create_task(self._settle(waiting))
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)

    async def _settle(self, waiting: list[asyncio.Future[None]]) -> None:
        await self._store.vouch()
        for durable in waiting:
            if not durable.done():
                durable.set_result(None)


def report_stream() -> None:
    """Callers that write as fast as they can, then wait once until everything is durable."""
    print(f"writes/s of {ROW_BYTES} bytes, none waited for alone, until all are durable")
    for callers in STREAM_CALLERS:
        ours, observed, peer = best_streams(callers, Ours, lambda store: Ours(store, observed=True), QueueAndBatches)
        met = "met" if ours >= TARGET_WRITES_PER_SECOND else "MISSED"
        print(
            f"  {callers:5} callers: {ours:9,.0f}  queue {peer:9,.0f}  ratio {ours / peer:4.2f}"
            f"   with metrics {observed:9,.0f}   target {TARGET_WRITES_PER_SECOND:,}: {met}"
        )
    print()


def best_streams(callers: int, *makers: Callable[[Store], Writer]) -> list[float]:
    rounds = [[asyncio.run(stream(make, callers)) for make in makers] for _ in range(ROUNDS)]
    return [max(column) for column in zip(*rounds, strict=True)]


async def stream(make: Callable[[Store], Writer], callers: int) -> float:
    writer = make(Store(SHOW_SECONDS, VOUCH_SECONDS))
    value = bytes(ROW_BYTES)
    rows = [Rows({number: value}, ROW_BYTES) for number in range(1000)]

    async def caller() -> None:
        for number in range(STREAM_WRITES // callers):
            await writer.write(rows[number % 1000])

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    await writer.finish()
    return STREAM_WRITES / (time.perf_counter() - began)


def report_durable() -> None:
    """Callers that each wait for their write to be durable; what the store itself takes is subtracted."""
    floor = 1000 * (SHOW_SECONDS + VOUCH_SECONDS)
    print(f"durable writes; latency added to the store's own {floor:.0f} ms, in ms")
    for callers in DURABLE_CALLERS:
        rounds = [[asyncio.run(durable(make, callers)) for make in (Ours, QueueAndBatches)] for _ in range(ROUNDS)]
        ours, peer = (max(column, key=lambda waits: waits.rate) for column in zip(*rounds, strict=True))
        print(f"  {callers:5} callers: {ours.line(floor)}")
        print(f"          in a queue: {peer.line(floor)}   ratio {ours.rate / peer.rate:4.2f}")
    print()


@dataclass(frozen=True)
class Waits:
    """How long each durable write took, in ms."""

    sorted_ms: list[float]
    batches: int

    @property
    def rate(self) -> float:
        return len(self.sorted_ms) / DURABLE_SECONDS

    def line(self, floor: float) -> str:
        p50, p99 = (self.sorted_ms[len(self.sorted_ms) * percent // 100] - floor for percent in (50, 99))
        a_batch = len(self.sorted_ms) / self.batches
        return f"{self.rate:8,.0f}/s   added p50 {p50:6.2f}  p99 {p99:6.2f}   {a_batch:7.1f} writes a batch"


async def durable(make: Callable[[Store], Writer], callers: int) -> Waits:
    store = Store(SHOW_SECONDS, VOUCH_SECONDS)
    writer = make(store)
    value = bytes(ROW_BYTES)
    waits: list[float] = []
    end = time.perf_counter() + DURABLE_SECONDS

    async def caller(number: int) -> None:
        while (began := time.perf_counter()) < end:
            await writer.write_durable(Rows({number: value}, ROW_BYTES))
            waits.append(1000 * (time.perf_counter() - began))

    await asyncio.gather(*(caller(number) for number in range(callers)))
    await writer.finish()
    return Waits(sorted(waits), store.batches)


async def report_idle_latency() -> None:
    """One write into an idle coordinator, and one behind a flush, with a store that takes no time at all."""
    coordinator: Coordinator[Rows, int] = Coordinator(Ours(Store(0, 0)), 0)
    rows = Rows({1: b"x"}, 1)
    accepted = await timed(2000, lambda: coordinator.write(rows))
    durable = await timed(2000, lambda: coordinator.write_durable(rows))
    print("an idle coordinator over a store that takes no time, in µs")
    print(
        f"  accepted p50 {accepted[0]:6.1f}  p99 {accepted[1]:6.1f}   durable p50 {durable[0]:6.1f}  p99 {durable[1]:6.1f}\n"
    )
    await coordinator.shutdown()


async def timed(count: int, call: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    waits = []
    for _ in range(count):
        began = time.perf_counter()
        await call()
        waits.append(1e6 * (time.perf_counter() - began))
    waits.sort()
    return statistics.median(waits), waits[count * 99 // 100]


async def report_memory() -> None:
    """A store that never answers: how much is held when the bound says no more, and what that costs beside it."""
    print(f"memory at a bound of {BOUND_BYTES // MIB} MiB, with a store that does not answer")
    for row_bytes in BOUND_ROW_BYTES:
        ours = await held_by_ours(row_bytes)
        peer = await held_by_queue(row_bytes, ours.writes)
        print(
            f"  rows of {row_bytes:7,} bytes: {ours.writes:8,} writes, {ours.mib:6.1f} MiB held"
            f"   the same in a queue {peer.mib:6.1f} MiB   ratio {ours.mib / peer.mib:4.2f}"
        )


@dataclass(frozen=True)
class Held:
    writes: int
    mib: float


async def held_by_ours(row_bytes: int) -> Held:
    config = CoordinatorConfig(max_buffered_bytes=BOUND_BYTES, max_buffered_writes=BOUND_BYTES)
    coordinator: Coordinator[Rows, int] = Coordinator(Ours(Store(3600, 0)), 0, config)
    measured = Measured()
    writes = 0
    try:
        while True:
            coordinator.try_write(Rows({writes: bytes(row_bytes)}, row_bytes))
            writes += 1
            if writes % 1000 == 0:
                await asyncio.sleep(0)
    except AtCapacity:
        held = Held(writes, measured.mib())
    assert coordinator.watermarks == Watermarks(writes, 0, 0)
    coordinator.abort()
    return held


async def held_by_queue(row_bytes: int, writes: int) -> Held:
    queue: asyncio.Queue[Rows] = asyncio.Queue()
    measured = Measured()
    for number in range(writes):
        queue.put_nowait(Rows({number: bytes(row_bytes)}, row_bytes))
    return Held(writes, measured.mib())


class Measured:
    """What Python has allocated since."""

    def __init__(self) -> None:
        gc.collect()
        tracemalloc.start()

    def mib(self) -> float:
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return held / MIB


if __name__ == "__main__":
    check_words(__doc__)
    main()
