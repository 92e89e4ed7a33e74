"""Requests a second through the gateway with persistence on, beside a bare uvicorn that only reads the same bodies, and
beside the remote-write receivers of Prometheus and VictoriaMetrics where they are installed (Debian packages
`prometheus` and `victoria-metrics`). Those keep samples in memory before they reach a disk; the gateway has synced them
when it answers.

A second bare server also parses each body with the protobuf project's own decoder and throws the result away: no server
that refuses malformed requests before it acknowledges them is faster than that.

Server and client are processes of their own on 127.0.0.1, sixteen connections, each sending its next request when the
last one was answered. Bodies: OTLP metrics and remote write of several sizes, as real senders make them. Figures are
of one run on one machine; the ratio is what counts.

    python benchmarks/gateway.py [--seconds 5] [--connections 16]
    python benchmarks/gateway.py --distinct       # no attribute or series twice in a body, and 32 bodies in turn
    python benchmarks/gateway.py --overload       # more than it can take, then kill -9, then a count of what it kept
    python benchmarks/gateway.py --twice [--seconds 60]    # exactly twice its capacity, the same count
    python benchmarks/gateway.py --split          # processor time of decoding and of storing, by requests taken together
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import cramjam
import numpy as np

# Receivers of remote write that others wrote, and how they are started.
PEERS: Final = {
    "prometheus": (
        "prometheus",
        "--config.file={folder}/prometheus.yml",
        "--storage.tsdb.path={folder}/tsdb",
        "--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
    ),
    "victoria-metrics": (
        "victoria-metrics",
        "-storageDataPath={folder}/vm",
        "-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y",
    ),
}


# More than are let in at once, so that twice the capacity is offered whatever is answered.
_CONNECTIONS_MAX: Final = 512
# Bodies that are sent in turn.
_DISTINCT: Final = 32
# Of requests that the gateway decodes together.
_GROUP_BYTES_MAX: Final = 2 << 20


@dataclass(frozen=True)
class Body:
    name: str
    path: str
    headers: dict[str, str]
    data: bytes
    points: int
    # Sent in turn with it.
    others: tuple[bytes, ...] = ()

    def requests(self) -> Iterator[bytes]:
        """As they go over the wire, for ever."""
        found = []
        for data in (self.data, *self.others):
            head = [f"POST {self.path} HTTP/1.1", "host: localhost", f"content-length: {len(data)}"]
            head += [f"{name}: {value}" for name, value in self.headers.items()]
            found.append(("\r\n".join(head) + "\r\n\r\n").encode() + data)
        return cycle(found)


def otlp(points: int, distinct: int = 0) -> Body:
    """`distinct` bodies beside it, in which no two points have an attribute in common."""
    found = _otlp_bytes(points, None)
    others = tuple(_otlp_bytes(points, sender) for sender in range(distinct))
    if distinct:
        found, others = others[0], others[1:]
    headers = {"content-type": "application/x-protobuf"}
    return Body(f"OTLP, {points:,} points", "/v1/metrics", headers, found, points, others)


def _otlp_bytes(points: int, sender: int | None) -> bytes:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for number in range(points // 10):
        gauge = scope.metrics.add(name=f"metric_{number}").gauge
        for one in range(10):
            point = gauge.data_points.add(time_unix_nano=1_700_000_000_000_000_000 + number, as_double=number + one)
            for key in ("host", "zone", "service"):
                attribute = point.attributes.add(key=key)
                attribute.value.string_value = f"{key}-{one}" if sender is None else f"{key}-{sender}-{number}-{one}"
    data: bytes = request.SerializeToString()
    return data


def remote_write(series: int, distinct: int = 0) -> Body:
    """`distinct` bodies beside it, all of other series."""
    found = _write_bytes(series, None)
    others = tuple(_write_bytes(series, sender) for sender in range(distinct))
    if distinct:
        found, others = others[0], others[1:]
    headers = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
    return Body(f"remote write, {series:,} series", "/api/v1/write", headers, found, series, others)


def _write_bytes(series: int, sender: int | None) -> bytes:
    from penstock.telemetry.remote_write.messages import write_request_v1

    request = write_request_v1()()
    for number in range(series):
        one = request.timeseries.add()
        instance = f"host-{number}" if sender is None else f"host-{sender}-{number}"
        for name, value in (("__name__", "http_requests_total"), ("instance", instance), ("job", "api")):
            one.labels.add(name=name, value=value)
        one.samples.add(timestamp=1_700_000_000_000 + number, value=float(number))
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


# Servers ---------------------------------------------------------------------------------------------------


async def bare(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Reads a body and answers: what any application on this server costs at least."""
    if scope["type"] != "http":
        return
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def parsed(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """The same, with the body parsed."""
    parts: list[bytes] = []

    async def noted() -> Any:
        message = await receive()
        parts.append(message.get("body", b""))
        return message

    async def parsed_first(message: Any) -> None:
        if message["type"] == "http.response.start":
            _parse(scope["path"], b"".join(parts))
        await send(message)

    await bare(scope, noted, parsed_first)


def _parse(path: str, body: bytes) -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    from penstock.telemetry.remote_write.messages import write_request_v1

    if path == "/v1/metrics":
        ExportMetricsServiceRequest().ParseFromString(body)
    else:
        write_request_v1()().ParseFromString(bytes(cramjam.snappy.decompress_raw(body)))


def serve(kind: str, folder: str, told: Connection) -> None:
    from penstock.gateway import Gateway, GatewayConfig, HttpServer, IngestRoutes, TenantLimits, serving
    from penstock.quiver import Quiver

    config = GatewayConfig(
        port=0,
        tenant=TenantLimits(requests_per_second=1e9, bytes_per_second=1e12, request_burst=10**9, byte_burst=10**12),
    )

    async def run() -> None:
        if kind in ("bare", "parsed"):
            async with serving(HttpServer(bare if kind == "bare" else parsed, config)) as server:
                told.send(server.port)
                await asyncio.Event().wait()
        async with await Quiver.open(folder) as store:
            app = Gateway(IngestRoutes(store, config).endpoints(), config)
            async with serving(HttpServer(app, config)) as server:
                told.send(server.port)
                await asyncio.Event().wait()

    asyncio.run(run())


# Client ----------------------------------------------------------------------------------------------------


async def load(
    port: int, body: Body, connections: int, seconds: float, refused: Counter[str] | None = None
) -> tuple[np.ndarray, float]:
    """Latencies of all requests that were taken, and how long it took; `refused` counts the others, by status."""
    requests = body.requests()
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            began = time.perf_counter()
            writer.write(next(requests))
            await writer.drain()
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            status = answer.split()[1]
            assert status in ("200", "204") or (refused is not None and status in ("429", "503")), answer
            size = answer.partition("content-length: ")[2].partition("\r\n")[0]
            if size and int(size):
                await reader.readexactly(int(size))
            if refused is not None and status in ("429", "503"):
                refused[status] += 1
            else:
                latencies.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(connections)])
    return np.array(latencies), time.perf_counter() - began


@contextmanager
def running(kind: str, folder: str) -> Iterator[tuple[int, int]]:
    """The port and the process of a server, killed at the end of the block."""
    if kind in PEERS:
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            port = chosen.getsockname()[1]
        command = [part.format(port=port, folder=folder) for part in PEERS[kind]]
        Path(folder, "prometheus.yml").touch()
        peer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        try:
            _await_port(port)
            yield port, peer.pid
        finally:
            peer.kill()
            peer.wait()
        return
    world = multiprocessing.get_context("spawn")
    here, there = world.Pipe()
    process = world.Process(target=serve, args=(kind, folder, there), daemon=True)
    process.start()
    try:
        yield here.recv(), process.pid or 0
    finally:
        process.kill()
        process.join()


def _await_port(port: int) -> None:
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            time.sleep(1.0)
            return
        time.sleep(0.1)
    raise RuntimeError("the peer does not listen")


def measured(kind: str, body: Body, connections: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder, running(kind, folder) as (port, pid):
        asyncio.run(load(port, body, connections, min(1.0, seconds / 4)))
        spent = _processor_seconds(pid)
        latencies, taken = asyncio.run(load(port, body, connections, seconds))
        spent = _processor_seconds(pid) - spent
    rate = len(latencies) / taken
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    print(
        f"  {kind:<16} {rate:8,.0f} requests/s {rate * len(body.data) / 1e6:8,.1f} MB/s {rate * body.points / 1e3:8,.0f} K "
        f"points/s   p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   "
        f"{spent / len(latencies) * 1e3:7.3f} ms of processor time a request, "
        f"{len(latencies) * body.points / spent / 1e3:,.0f} K points a second of it"
    )
    return rate


def overload(body: Body, seconds: float) -> None:
    """Sixteen connections, then far more than are let in at once, then sixteen again; then it is killed and counted."""
    with tempfile.TemporaryDirectory() as folder:
        taken = 0
        with running("gateway", folder) as (port, pid):
            for connections in (16, 256, 16):
                refused: Counter[str] = Counter()
                latencies, spent = asyncio.run(load(port, body, connections, seconds, refused))
                taken += len(latencies)
                offered = (len(latencies) + refused.total()) / spent
                p50, p99 = np.percentile(latencies, [50, 99]) * 1000
                print(
                    f"  {connections:>4} connections: {offered:7,.0f} requests/s offered, {len(latencies) / spent:6,.0f} taken, "
                    f"{refused.total():,} refused {dict(refused)}   p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   "
                    f"memory {_resident_mb(pid):,.0f} MB"
                )
        found = asyncio.run(_kept(folder))
        print(f"  acknowledged {taken * body.points:,} points, found {found:,} after kill -9")
        assert found >= taken * body.points


# Twice its capacity -----------------------------------------------------------------------------------------


@dataclass
class Offer:
    """What became of requests that were sent at a fixed rate, whatever the answers."""

    offered: int = 0
    taken: int = 0
    unsent: int = 0
    without_retry_after: int = 0
    memory_mb: float = 0.0
    seconds: float = 0.0


async def offer(port: int, pid: int, body: Body, rate: float, seconds: float, refused: Counter[str]) -> Offer:
    """Send `rate` requests a second, each on a connection that is free; those for which none is are counted as unsent."""
    requests = body.requests()
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    found, under_way = Offer(), set[asyncio.Task[None]]()
    began = time.perf_counter()

    async def one() -> None:
        # One that was idle for long is closed by the server.
        while free and free[-1][0].at_eof():
            free.pop()[1].close()
        connection = free.pop() if free else await asyncio.open_connection("127.0.0.1", port)
        reader, writer = connection
        writer.write(next(requests))
        await writer.drain()
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = answer.split()[1]
        size = answer.partition("content-length: ")[2].partition("\r\n")[0]
        if size and int(size):
            await reader.readexactly(int(size))
        free.append(connection)
        if status in ("200", "204"):
            found.taken += 1
            return
        assert status in ("429", "503"), answer
        refused[status] += 1
        found.without_retry_after += "retry-after: " not in answer

    while (now := time.perf_counter() - began) < seconds:
        due = int(now * rate) - found.offered - found.unsent
        for _ in range(due):
            if len(under_way) < _CONNECTIONS_MAX:
                found.offered += 1
                task = asyncio.ensure_future(one())
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(0)
            else:
                found.unsent += 1
        found.memory_mb = max(found.memory_mb, _resident_mb(pid))
        await asyncio.sleep(0.005)
    await asyncio.gather(*under_way)
    found.seconds = time.perf_counter() - began
    for _, writer in free:
        writer.close()
    return found


def twice(body: Body, connections: int, seconds: float) -> None:
    """Its capacity, then twice of it for a while, then its capacity again; then it is killed and counted."""
    with tempfile.TemporaryDirectory() as folder:
        with running("gateway", folder) as (port, pid):
            refused, told = Counter[str](), Counter[str]()
            asyncio.run(load(port, body, connections, 1.0, refused))
            latencies, spent = asyncio.run(load(port, body, connections, 5.0, refused))
            taken, capacity = len(latencies), len(latencies) / spent
            print(f"  capacity {capacity:,.0f} requests/s, memory {_resident_mb(pid):,.0f} MB")
            found = asyncio.run(offer(port, pid, body, 2 * capacity, seconds, told))
            taken += found.taken
            print(
                f"  twice that for {found.seconds:.0f} s: {found.offered / found.seconds:,.0f} requests/s sent, "
                f"{found.taken / found.seconds:,.0f} taken, {told.total():,} refused {dict(told)}, "
                f"{found.without_retry_after} of them without Retry-After, {found.unsent:,} not sent for want of a free "
                f"connection, memory at most {found.memory_mb:,.0f} MB"
            )
            latencies, spent = asyncio.run(load(port, body, connections, 5.0, told))
            taken += len(latencies)
            print(f"  afterwards {len(latencies) / spent:,.0f} requests/s, memory {_resident_mb(pid):,.0f} MB")
        kept = asyncio.run(_kept(folder))
    # The first second is not counted as taken.
    print(f"  acknowledged at least {taken * body.points:,} points, found {kept:,} after kill -9")
    assert kept >= taken * body.points
    assert not found.without_retry_after


# Where the time goes ----------------------------------------------------------------------------------------


def split(body: Body, seconds: float) -> None:
    """Decoding and storing alone, without HTTP, as a lone request and as groups that arrived together have them."""
    for count in (1, 16, 64):
        if count * len(body.data) > _GROUP_BYTES_MAX:
            break
        decode = _decoder(body, count)
        rows = decode()
        decoding = _spent_ms(decode, seconds)
        with tempfile.TemporaryDirectory() as folder:
            storing = asyncio.run(_storing_ms(folder, rows.batch, seconds))
        print(
            f"  {count:>3} together: decoding {decoding / count:7.3f} ms, storing {storing / count:7.3f} ms of processor time "
            "a request"
        )


def _decoder(body: Body, count: int) -> Callable[[], Any]:
    from penstock.records import Signal
    from penstock.telemetry import (
        DecodeLimits,
        RemoteWriteVersion,
        RowSource,
        decode_otlp_together,
        decode_write_requests,
        unpack,
    )

    limits, source = DecodeLimits(), RowSource("tenant", 1_700_000_000_000_000_000)
    if body.path == "/v1/metrics":
        return lambda: decode_otlp_together(Signal.METRICS, [body.data] * count, source, limits)
    version = RemoteWriteVersion.V1
    return lambda: decode_write_requests(
        [unpack(body.data, "snappy", limits) for _ in range(count)], source, version=version, limits=limits
    )


def _spent_ms(work: Callable[[], Any], seconds: float) -> float:
    began, count = time.process_time(), 0
    while time.process_time() - began < seconds:
        work()
        count += 1
    return (time.process_time() - began) / count * 1e3


async def _storing_ms(folder: str, rows: Any, seconds: float) -> float:
    from penstock.quiver import Bundle, Quiver

    async with await Quiver.open(folder) as store:
        began, until, count = time.process_time(), time.perf_counter() + 4 * seconds, 0
        while time.process_time() - began < seconds and time.perf_counter() < until:
            await store.ingest(Bundle({"metrics": rows}, signal="metrics"), 60.0)
            count += 1
        return (time.process_time() - began) / count * 1e3


async def _kept(folder: str) -> int:
    from penstock.quiver import Quiver

    async with await Quiver.open(folder) as store:
        return int((await store.scan(columns=["time"])).num_rows)


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--distinct", action="store_true")
    parser.add_argument("--overload", action="store_true")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--split", action="store_true")
    asked = parser.parse_args()
    if asked.split:
        for body in (otlp(100), otlp(1_000), otlp(10_000), remote_write(1_000), remote_write(10_000)):
            print(f"{body.name}, {len(body.data):,} bytes a request")
            split(body, min(1.0, asked.seconds))
        return
    if asked.twice:
        for body in (otlp(1_000), remote_write(1_000)):
            print(f"{body.name}, {len(body.data):,} bytes a request")
            twice(body, asked.connections, asked.seconds)
        return
    if asked.overload:
        for body in (otlp(1_000), remote_write(1_000)):
            print(f"{body.name}, {len(body.data):,} bytes a request")
            overload(body, asked.seconds)
        return
    distinct = _DISTINCT if asked.distinct else 0
    bodies = [otlp(points, distinct) for points in (100, 1_000, 10_000)]
    for body in (*bodies, *[remote_write(series, distinct) for series in (1_000, 10_000)]):
        print(f"{body.name}, {len(body.data):,} bytes a request")
        peers = [kind for kind in PEERS if shutil.which(PEERS[kind][0])] if body.path == "/api/v1/write" else []
        rates = {
            kind: measured(kind, body, asked.connections, asked.seconds)
            for kind in ("bare", "parsed", "gateway", *peers)
        }
        for kind in ("bare", "parsed", *peers):
            print(f"  gateway / {kind}: {rates['gateway'] / rates[kind]:.2f}")
        if body.path == "/api/v1/write":
            print("".join(f"  {kind} is not installed\n" for kind in PEERS if kind not in peers), end="")


if __name__ == "__main__":
    main()
