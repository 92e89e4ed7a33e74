"""Senders that others wrote: the exporters of the OpenTelemetry SDK, over HTTP and over gRPC, to real sockets."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

from penstock.gateway import (
    Gateway,
    GatewayConfig,
    GrpcServer,
    Guard,
    HttpServer,
    IngestRoutes,
    Scope,
    TokenBook,
    serving,
)
from penstock.loops import LoopThread
from penstock.quiver import Quiver

RESOURCE = Resource.create({"service.name": "shop"})


class Listening:
    """The routes of telemetry on real ports, on a loop of their own: exporters block."""

    def __init__(self, folder):
        self._loop = LoopThread("gateway-test")
        book, self.token = TokenBook.new().issue("acme", [Scope.WRITE], 0)
        self._book = book
        self._stack = AsyncExitStack()
        self._loop.run(self._open(folder))

    async def _open(self, folder):
        config = GatewayConfig(port=0, tokens="x")
        self.store = await self._stack.enter_async_context(await Quiver.open(str(folder / "edge")))
        routes = IngestRoutes(self.store, config)
        guard = Guard(config, lambda: self._book)
        server = HttpServer(Gateway(routes.endpoints(), config, guard=guard), config)
        self.http_port = (await self._stack.enter_async_context(serving(server))).port
        grpc = GrpcServer(routes, guard, config)
        await grpc.start(0)
        self._stack.push_async_callback(grpc.stop)
        self.grpc_port = grpc.port

    def rows(self):
        return self._loop.run(self.store.scan()).to_pylist()

    def close(self):
        self._loop.run(self._stack.aclose())
        self._loop.close()


@pytest.fixture
def listening(tmp_path):
    found = Listening(tmp_path)
    yield found
    found.close()


def exporters(listening, kind, over):
    """An exporter of the SDK for one signal, over HTTP or gRPC."""
    bearer = f"Bearer {listening.token}"
    if over == "grpc":
        over_grpc: Any = GrpcMetrics if kind == "metrics" else GrpcSpans
        return over_grpc(f"http://127.0.0.1:{listening.grpc_port}", insecure=True, headers=(("authorization", bearer),))
    over_http: Any = HttpMetrics if kind == "metrics" else HttpSpans
    url = f"http://127.0.0.1:{listening.http_port}/v1/{kind}"
    return over_http(url, headers={"authorization": bearer}, compression=Compression.Gzip)


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_metrics_of_the_sdk_are_stored_for_the_tenant_of_the_token(listening, over):
    reader = PeriodicExportingMetricReader(exporters(listening, "metrics", over), export_interval_millis=3_600_000)
    provider = MeterProvider(metric_readers=[reader], resource=RESOURCE)
    meter = provider.get_meter("shop")
    meter.create_counter("orders").add(3, {"kind": "book"})
    meter.create_histogram("latency").record(0.5)
    provider.shutdown()
    found = {row["metric"]: row for row in listening.rows()}
    assert set(found) == {"orders", "latency"}
    assert {row["tenant"] for row in found.values()} == {"acme"}
    assert found["latency"]["count"] == 1


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_spans_of_the_sdk_are_stored(listening, over):
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(exporters(listening, "traces", over)))
    with provider.get_tracer("shop").start_as_current_span("buy") as span:
        trace_id = span.get_span_context().trace_id
    provider.shutdown()
    rows = listening.rows()
    assert [(row["name"], row["trace_id"]) for row in rows] == [("buy", f"{trace_id:032x}")]


def test_an_exporter_with_a_wrong_token_is_told_and_nothing_is_stored(listening):
    listening.token = "pst_wrong"
    provider = TracerProvider(resource=RESOURCE)
    exporter = exporters(listening, "traces", "http")
    span = provider.get_tracer("shop").start_span("buy")
    span.end()
    assert exporter.export([span]) is SpanExportResult.FAILURE
    exporter.shutdown()
    assert listening.rows() == []
