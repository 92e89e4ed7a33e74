"""OTLP over gRPC: the three export services, with the same tokens, quotas and bounds as over HTTP.

Messages stay bytes until they are decoded into columns: no object is made for a point, a record or a span. Codes are
those that OTLP names: UNAVAILABLE and RESOURCE_EXHAUSTED are tried again by clients, all others are not.
"""

from __future__ import annotations

from typing import Any, Final

import grpc

from penstock.errors import PenstockError, Unavailable
from penstock.gateway.access.tokens import Scope
from penstock.gateway.config import GatewayConfig
from penstock.gateway.http.exchange import HttpExchange
from penstock.gateway.http.guard import Guard
from penstock.gateway.http.refusals import refusal_of
from penstock.gateway.ingest.otlp_answers import otlp_success
from penstock.gateway.ingest.telemetry import IngestRoutes
from penstock.observability import SILENT, Observer, names
from penstock.records import Signal

__all__ = ["GrpcServer"]

_SERVICES: Final = {
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": Signal.METRICS,
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": Signal.LOGS,
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": Signal.TRACES,
}
_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_PROTOBUF: Final = "application/x-protobuf"
_GRACE_SECONDS: Final = 10.0


class GrpcServer:
    """One listener for all three signals. `port` is the one it has once it has started."""

    def __init__(
        self, ingest: IngestRoutes, guard: Guard, config: GatewayConfig, *, observer: Observer = SILENT
    ) -> None:
        self._ingest, self._guard, self._config, self._observer = ingest, guard, config, observer
        self._server: Any = None
        self.port = config.grpc_port

    async def start(self, port: int | None = None) -> None:
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._config.body_bytes_max),
                ("grpc.max_metadata_size", self._config.header_bytes_max),
                ("grpc.max_concurrent_streams", self._config.tenant.concurrent_requests),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=self._config.concurrent_requests,
        )
        self._server.add_generic_rpc_handlers((_Handler(self),))
        address = f"{self._config.host}:{self._config.grpc_port if port is None else port}"
        try:
            self.port = self._bind(address)
        except RuntimeError as error:
            raise Unavailable(f"the gateway cannot listen on {address}", str(error), "choose another port") from error
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(_GRACE_SECONDS)

    def _bind(self, address: str) -> int:
        config = self._config
        if config.certificate is None or config.certificate_key is None:
            return int(self._server.add_insecure_port(address))
        from pathlib import Path

        pair = (Path(config.certificate_key).read_bytes(), Path(config.certificate).read_bytes())
        return int(self._server.add_secure_port(address, grpc.ssl_server_credentials([pair])))

    async def export(self, signal: Signal, body: bytes, context: Any) -> bytes:
        """Store one request; the code of the call tells why not."""
        exchange = _exchange(signal, body, context)
        route, status = f"grpc/{signal.name.lower()}", "OK"
        try:
            exchange.principal = self._guard.principal(exchange, Scope.WRITE)
            with self._guard.admitted(exchange, stores=True):
                found = await self._ingest.store_otlp(signal, body, exchange.principal)
            return otlp_success(signal, found, _PROTOBUF).body
        except Exception as error:
            refusal = refusal_of(error)
            if not isinstance(error, PenstockError):
                self._observer.event(names.GATEWAY_FAILED, route=route, error=f"{type(error).__name__}: {error}")
            status = _CODES.get(refusal.status, grpc.StatusCode.INTERNAL).name
            await context.abort(_CODES.get(refusal.status, grpc.StatusCode.INTERNAL), str(refusal))
            raise AssertionError("abort raises") from error
        finally:
            self._observer.count(names.GATEWAY_REQUESTS, route=route, status=status)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, server: GrpcServer) -> None:
        self._server = server

    def service(self, details: Any) -> Any:
        signal = _SERVICES.get(details.method)
        if signal is None:
            return None

        async def export(body: bytes, context: Any) -> bytes:
            return await self._server.export(signal, body, context)

        # Without serialisers, messages are bytes on both sides.
        return grpc.unary_unary_rpc_method_handler(export)


def _exchange(signal: Signal, body: bytes, context: Any) -> HttpExchange:
    """The call as the guard knows requests."""
    headers = [(key.encode(), _bytes(value)) for key, value in context.invocation_metadata() or ()]
    headers.append((b"content-length", b"%d" % len(body)))
    # `ipv4:127.0.0.1:1234`
    address = context.peer().partition(":")[2].rpartition(":")[0]
    scope = {"method": "POST", "path": f"/v1/{signal.name.lower()}", "headers": headers, "client": (address, 0)}

    async def nothing() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    return HttpExchange(scope, nothing)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", "replace")
