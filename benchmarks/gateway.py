"""Requests a second through the gateway with persistence on, beside a bare uvicorn that only reads the same bodies.

Server and client are processes of their own on 127.0.0.1, sixteen connections, each sending its next request when the
last one was answered. Bodies: OTLP metrics and remote write of several sizes, as real senders make them. Figures are
of one run on one machine; the ratio is what counts.

    python benchmarks/gateway.py [--seconds 5] [--connections 16]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import cramjam
import numpy as np


@dataclass(frozen=True)
class Body:
    name: str
    path: str
    headers: dict[str, str]
    data: bytes
    points: int


def otlp(points: int) -> Body:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for number in range(points // 10):
        gauge = scope.metrics.add(name=f"metric_{number}").gauge
        for one in range(10):
            point = gauge.data_points.add(time_unix_nano=1_700_000_000_000_000_000 + number, as_double=number + one)
            for key in ("host", "zone", "service"):
                attribute = point.attributes.add(key=key)
                attribute.value.string_value = f"{key}-{one}"
    data = request.SerializeToString()
    return Body(f"OTLP, {points:,} points", "/v1/metrics", {"content-type": "application/x-protobuf"}, data, points)


def remote_write(series: int) -> Body:
    from penstock.telemetry.remote_write.messages import write_request_v1

    request = write_request_v1()()
    for number in range(series):
        one = request.timeseries.add()
        for name, value in (("__name__", "http_requests_total"), ("instance", f"host-{number}"), ("job", "api")):
            one.labels.add(name=name, value=value)
        one.samples.add(timestamp=1_700_000_000_000 + number, value=float(number))
    data = bytes(cramjam.snappy.compress_raw(request.SerializeToString()))
    headers = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
    return Body(f"remote write, {series:,} series", "/api/v1/write", headers, data, series)


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


def serve(kind: str, folder: str, told: Connection) -> None:
    from penstock.gateway import Gateway, GatewayConfig, HttpServer, IngestRoutes, TenantLimits, serving
    from penstock.quiver import Quiver

    config = GatewayConfig(
        port=0,
        tenant=TenantLimits(requests_per_second=1e9, bytes_per_second=1e12, request_burst=10**9, byte_burst=10**12),
    )

    async def run() -> None:
        if kind == "bare":
            async with serving(HttpServer(bare, config)) as server:
                told.send(server.port)
                await asyncio.Event().wait()
        async with await Quiver.open(folder) as store:
            app = Gateway(IngestRoutes(store, config).endpoints(), config)
            async with serving(HttpServer(app, config)) as server:
                told.send(server.port)
                await asyncio.Event().wait()

    asyncio.run(run())


# Client ----------------------------------------------------------------------------------------------------


async def load(port: int, body: Body, connections: int, seconds: float) -> tuple[np.ndarray, float]:
    """Latencies of all answered requests, and how long it took."""
    head = [f"POST {body.path} HTTP/1.1", "host: localhost", f"content-length: {len(body.data)}"]
    head += [f"{name}: {value}" for name, value in body.headers.items()]
    request = ("\r\n".join(head) + "\r\n\r\n").encode() + body.data
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            began = time.perf_counter()
            writer.write(request)
            await writer.drain()
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            status = answer.split()[1]
            assert status in ("200", "204"), answer
            size = answer.partition("content-length: ")[2].partition("\r\n")[0]
            if size and int(size):
                await reader.readexactly(int(size))
            latencies.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(connections)])
    return np.array(latencies), time.perf_counter() - began


def measured(kind: str, body: Body, connections: int, seconds: float) -> float:
    world = multiprocessing.get_context("spawn")
    here, there = world.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        process = world.Process(target=serve, args=(kind, folder, there), daemon=True)
        process.start()
        try:
            port = here.recv()
            asyncio.run(load(port, body, connections, min(1.0, seconds / 4)))
            latencies, taken = asyncio.run(load(port, body, connections, seconds))
        finally:
            process.kill()
            process.join()
    rate = len(latencies) / taken
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    print(
        f"  {kind:<8} {rate:8,.0f} requests/s {rate * len(body.data) / 1e6:8,.1f} MB/s {rate * body.points / 1e3:8,.0f} K "
        f"points/s   p50 {p50:6.1f} ms   p99 {p99:6.1f} ms"
    )
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=16)
    asked = parser.parse_args()
    for body in (otlp(100), otlp(1_000), otlp(10_000), remote_write(1_000), remote_write(10_000)):
        print(f"{body.name}, {len(body.data):,} bytes a request")
        rates = {kind: measured(kind, body, asked.connections, asked.seconds) for kind in ("bare", "gateway")}
        print(f"  gateway / bare uvicorn: {rates['gateway'] / rates['bare']:.2f}")


if __name__ == "__main__":
    main()
