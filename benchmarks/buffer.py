"""The queue in a directory beside NATS JetStream and Redis Streams, in one run: durable produce, and consume.

Every system gets the same records from the same number of callers, each of which waits for its call to
be acknowledged before it makes the next, for the same time. Peers that sync are set to sync before they
acknowledge, as Penstock always does; NATS with its default, which acknowledges before the disk has
anything, is shown for scale. Servers run as they come, on this machine's disk, with one Python client
process each. A server that is not installed is named as absent. Takes two to three minutes.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from _usage import check_words
from penstock.buffer import Consumer, ConsumerConfig, Producer, ProducerConfig, Watermark, encode_batch
from penstock.buffer.format.manifest import DescriptorDraft, Manifest, MetadataRange
from penstock.buffer.queue import ManifestFormat
from penstock.objects import Register, open_store

MIB = 1 << 20
SECONDS = 3.0
# Taken in turns, and the best counts: a shared disk has bad moments.
ROUNDS = 2
START_SECONDS_MAX = 20.0
PRODUCE_TARGET = 1.5
CONSUME_TARGET = 2.0
# Memory: the bound on what is not durable yet, and how many times that much goes through.
BOUND_BYTES = 32 * MIB
BOUND_TIMES = 10
QUEUED = (10, 100, 1_000, 10_000)
DRAINED = (1_000, 10_000, 100_000)
DRAIN_SECONDS_MAX = 240.0
DRAIN_TARGET_MS = 2.0


@dataclass(frozen=True)
class Load:
    """Records of one size, handed over by so many callers at once, so many a call."""

    record_bytes: int
    callers: int
    records_per_call: int
    unit: str

    def __str__(self) -> str:
        return f"{self.record_bytes >> 10} KB records, {self.records_per_call} a call, {self.callers} callers"

    def rate(self, records: int, seconds: float) -> float:
        return records * (self.record_bytes / 1e6 if self.unit == "MB/s" else 1.0) / seconds

    def call(self) -> list[bytes]:
        # Random, so that nobody gains from compression.
        return [random.Random(number).randbytes(self.record_bytes) for number in range(self.records_per_call)]


LOADS = (
    Load(1 << 10, 32, 100, "records/s"),
    Load(1 << 10, 256, 1, "records/s"),
    Load(100 << 10, 16, 10, "MB/s"),
)


class Queue(Protocol):
    """One system under one load."""

    async def produce(self, records: list[bytes]) -> None:
        """Returns once all of them are acknowledged."""
        ...

    async def consume(self) -> tuple[int, int]:
        """Read and acknowledge some; how many, and their bytes."""
        ...


# The systems -------------------------------------------------------------------------------------


class Ours:
    def __init__(self, producer: Producer, consumer: Consumer) -> None:
        self._producer = producer
        self._consumer = consumer

    async def produce(self, records: list[bytes]) -> None:
        await (await self._producer.produce(records)).durable()

    async def consume(self) -> tuple[int, int]:
        handle, watermark = self._consumer.fetch_handle(), Watermark()
        descriptors = await self._consumer.next_descriptors(8)
        for descriptor in descriptors:
            watermark.begin(descriptor.sequence)
        count = size = 0
        for fetch in asyncio.as_completed([handle.fetch(descriptor) for descriptor in descriptors]):
            batch = await fetch
            count += len(batch.records)
            size += sum(map(len, batch.records))
            watermark.complete(batch.sequence)
        if watermark.value is not None:
            await self._consumer.ack_through(watermark.value)
        return count, size


@asynccontextmanager
async def ours(folder: Path) -> AsyncIterator[Queue]:
    store = await open_store(f"file://{folder}")
    # Callers wait for each answer, so latency is throughput: small batches, of which several are under way at once.
    config = ProducerConfig(flush_interval_seconds=0.002, flush_size_bytes=MIB)
    async with Producer(store, config) as producer, Consumer(store, ConsumerConfig(collect=False)) as consumer:
        yield Ours(producer, consumer)
    await store.close()


class Nats:
    def __init__(self, stream: Any, subscription: Any) -> None:
        self._stream = stream
        self._subscription = subscription

    async def produce(self, records: list[bytes]) -> None:
        await asyncio.gather(*[await self._stream.publish_async("queue", record) for record in records])

    async def consume(self) -> tuple[int, int]:
        messages = await self._subscription.fetch(500, timeout=SECONDS)
        for message in messages:
            await message.ack()
        return len(messages), sum(len(message.data) for message in messages)


@asynccontextmanager
async def nats(folder: Path, *, synced: bool) -> AsyncIterator[Queue]:
    import nats as client
    from nats.js.api import ConsumerConfig as NatsConsumer

    binary, port = found("nats-server"), free_port()
    sync = "sync_interval: always" if synced else ""
    (folder / "nats.conf").write_text(f'jetstream {{\n store_dir: "{folder}"\n {sync}\n}}\n')
    command = [binary, "-a", "127.0.0.1", "-p", str(port), "-c", str(folder / "nats.conf")]
    with running(command, port, folder):
        connection = await client.connect(f"nats://127.0.0.1:{port}", pending_size=64 * MIB)
        stream = connection.jetstream(publish_async_max_pending=4000)
        await stream.add_stream(name="queue", subjects=["queue"])
        consumer = NatsConsumer(max_ack_pending=10_000)
        yield Nats(stream, await stream.pull_subscribe("queue", "consumer", config=consumer))
        await connection.close()


class Redis:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def produce(self, records: list[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for record in records:
            pipeline.xadd("queue", {"d": record})
        await pipeline.execute()

    async def consume(self) -> tuple[int, int]:
        ((_, entries),) = await self._client.xreadgroup("group", "one", {"queue": ">"}, count=500)
        await self._client.xack("queue", "group", *(identity for identity, _ in entries))
        return len(entries), sum(len(fields[b"d"]) for _, fields in entries)


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[Queue]:
    import redis.asyncio as client

    port = free_port()
    command = [found("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    with running(command, port, folder):
        # A connection for every caller: one that is shared would make them wait for each other.
        connection = client.Redis(port=port, max_connections=1000)
        await connection.xgroup_create("queue", "group", id="0", mkstream=True)
        yield Redis(connection)
        await connection.aclose()


SYSTEMS: dict[str, Callable[[Path], AbstractAsyncContextManager[Queue]]] = {
    "penstock": ours,
    "redis, synced": redis,
    "nats, synced": lambda folder: nats(folder, synced=True),
    "nats, default": lambda folder: nats(folder, synced=False),
}
SYNCED_PEERS = ("redis, synced", "nats, synced")


# Produce and consume -----------------------------------------------------------------------------


def report_load(load: Load, place: Path) -> None:
    print(f"\n{load}, {load.unit}")
    rates: dict[str, tuple[float, float]] = {}
    missing: dict[str, str] = {}
    for system, start in ROUNDS * [*SYSTEMS.items()]:
        with folder_in(place) as folder:
            try:
                produced, consumed = asyncio.run(measure(load, start(folder)))
            except (Absent, ModuleNotFoundError) as absent:
                missing[system] = str(absent)
                continue
        best = rates.get(system, (0.0, 0.0))
        rates[system] = max(best[0], produced), max(best[1], consumed)
    for system, why in missing.items():
        print(f"  {system:14} absent: {why}")
    for system, (produced, consumed) in rates.items():
        print(f"  {system:14} produce {produced:10,.0f}   consume {consumed:10,.0f}")
    peers = [rates[peer] for peer in SYNCED_PEERS if peer in rates]
    for name, index, target in (("produce", 0, PRODUCE_TARGET), ("consume", 1, CONSUME_TARGET)):
        if peers:
            ratio = rates["penstock"][index] / max(rate[index] for rate in peers)
            verdict = "met" if ratio >= target else "MISSED"
            print(f"  {name}: {ratio:.2f} x the faster synced peer, target {target:g} x: {verdict}")


async def measure(load: Load, system: AbstractAsyncContextManager[Queue]) -> tuple[float, float]:
    """Produced durably, and consumed, in the load's unit."""
    async with system as queue:
        began = time.perf_counter()
        calls = await asyncio.gather(*(call_on(queue, load, began + SECONDS) for _ in range(load.callers)))
        produced = sum(calls) * load.records_per_call
        producing = time.perf_counter() - began
        began, consumed = time.perf_counter(), 0
        while consumed < produced and time.perf_counter() - began < SECONDS:
            count, size = await queue.consume()
            assert size == count * load.record_bytes
            consumed += count
        consuming = time.perf_counter() - began
    return load.rate(produced, producing), load.rate(consumed, consuming)


async def call_on(queue: Queue, load: Load, end: float) -> int:
    records, calls = load.call(), 0
    while time.perf_counter() < end:
        await queue.produce(records)
        calls += 1
    return calls


# Memory ------------------------------------------------------------------------------------------


def report_memory() -> None:
    """In a process of its own, so that its peak is its own."""
    print(f"\nmemory: {BOUND_TIMES} x the bound of {BOUND_BYTES >> 20} MiB goes through a producer that is flooded")
    sys.stdout.flush()
    subprocess.run([sys.executable, __file__, "memory"], check=True)


async def measure_memory(place: Path) -> None:
    store = await open_store(f"file://{place}")
    config = ProducerConfig(max_in_flight_bytes=BOUND_BYTES, flush_size_bytes=BOUND_BYTES // 8)
    record = random.Random(1).randbytes(10 << 10)
    async with Producer(store, config) as producer:
        await (await producer.produce([record])).durable()
        with peaks() as peak:
            for _ in range(BOUND_TIMES * BOUND_BYTES // len(record)):
                # A record of its own each time, so that holding it costs what it should.
                await producer.produce([record[:-1] + b"!"])
            await producer.flush()
    verdict = "within the bound" if peak.live <= BOUND_BYTES + MIB else "OVER THE BOUND"
    print(f"  live at most {peak.live / MIB:.1f} MiB: {verdict}; resident grew by {peak.resident / MIB:.0f} MiB")
    async with Consumer(store, ConsumerConfig(collect=False)) as consumer:
        queued = await consumer.len()
        with peaks() as peak:
            while await consumer.next_batch():
                pass
    print(f"  {queued} batches of up to {config.flush_size_bytes / MIB:g} MiB consumed one by one:", end=" ")
    print(f"live at most {peak.live / MIB:.1f} MiB; resident grew by {peak.resident / MIB:.0f} MiB")
    await store.close()


@dataclass
class Peak:
    """Bytes allocated at most, and by how much the process grew, which is more by what its allocator keeps."""

    live: int = 0
    resident: int = 0


@contextmanager
def peaks() -> Iterator[Peak]:
    peak, before = Peak(), resident("VmRSS")
    forget_peak()
    tracemalloc.start()
    yield peak
    peak.live = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    peak.resident = resident("VmHWM") - before


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def resident(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field))) * 1024


# The manifest ------------------------------------------------------------------------------------


async def report_manifest(place: Path) -> None:
    print("\nthe manifest by batches queued: one append (compare-and-swap in a directory), and its parts")
    print(f"  {'queued':>8} {'bytes':>10} {'write':>10} {'splice':>10} {'re-read':>10} {'dequeue 100':>12}")
    store = await open_store(f"file://{place}")
    for queued in QUEUED:
        register = Register(store, f"manifest-{queued}", ManifestFormat())
        await register.update(lambda manifest, count=queued: manifest.append([draft()] * count))
        value = await register.read()
        write = [await clocked(lambda r=register: r.update(lambda m: m.append([draft()]))) for _ in range(20)]
        read = [await clocked(register.read) for _ in range(20)]
        splice = [timed(lambda m=value: m.append([draft()])) for _ in range(20)]
        dequeue = [timed(lambda m=value: Manifest(m.body).dequeue_through(99)) for _ in range(20)]
        columns = (median_ms(times) for times in (write, splice, read, dequeue))
        print("  {:>8,} {:>10,} {:>10} {:>10} {:>10} {:>12}".format(queued, len(value.body), *columns))
    await store.close()


# Draining ----------------------------------------------------------------------------------------


async def report_drain(place: Path) -> None:
    """Every entry names the same small object: what is measured is the queue, and a fetch from the page cache."""
    print("\ndraining what is queued, in a directory: next_batch and ack, one by one")
    print(f"  {'queued':>8} {'wall':>12} {'processor':>12}   target {DRAIN_TARGET_MS:g} ms a batch")
    for queued in DRAINED:
        store = await open_store(f"file://{place}/drain-{queued}")
        await store.put("ingest/one", encode_batch([bytes(1024)]))
        await store.put("ingest/manifest", Manifest.empty().append([draft("ingest/one")] * queued).body)
        began, used, drained = time.perf_counter(), time.process_time(), 0
        async with Consumer(store, ConsumerConfig(collect=False)) as consumer:
            while time.perf_counter() - began < DRAIN_SECONDS_MAX and (batch := await consumer.next_batch()):
                await consumer.ack(batch.sequence)
                drained += 1
        wall, processor = time.perf_counter() - began, time.process_time() - used
        verdict = "met" if 1000 * wall / drained < DRAIN_TARGET_MS else "MISSED"
        whole = "" if drained == queued else f", stopped after {drained:,}"
        columns = (f"{1000 * seconds / drained:.3f} ms" for seconds in (wall, processor))
        print("  {:>8,} {:>12} {:>12}   {}{}".format(queued, *columns, verdict, whole))
        await store.close()


def draft(location: str = "ingest/01J5T4R3KXBMZ7QV9N2WG8YDHP.batch") -> DescriptorDraft:
    return DescriptorDraft(location, [MetadataRange(0, 1724233027197, b"\x01\x01\x01\x00")])


async def clocked(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median_ms(seconds: list[float]) -> str:
    return f"{1000 * statistics.median(seconds):.2f} ms"


# Servers and folders -----------------------------------------------------------------------------


class Absent(Exception):
    """A peer that this machine does not have."""


def found(program: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    binary = shutil.which(program, path=path)
    if binary is None:
        raise Absent(f"{program} is not installed")
    return binary


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, folder: Path) -> Iterator[None]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for(port)
            yield
        finally:
            process.terminate()
            process.wait()


def wait_for(port: int) -> None:
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Absent(f"the server on port {port} did not start within {START_SECONDS_MAX:g} s")


@contextmanager
def folder_in(place: str | Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="buffer-bench-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def main() -> None:
    # Not under /tmp where that is memory: say so with this variable.
    with folder_in(os.environ.get("PENSTOCK_BENCH_DIR")) as place:
        if sys.argv[1:] == ["memory"]:
            asyncio.run(measure_memory(place))
            return
        if sys.argv[1:] == ["drain"]:
            asyncio.run(report_drain(place))
            return
        for load in LOADS:
            report_load(load, place)
        report_memory()
        asyncio.run(report_manifest(place))
        asyncio.run(report_drain(place))


if __name__ == "__main__":
    check_words(__doc__, ["memory", "drain"])
    main()
