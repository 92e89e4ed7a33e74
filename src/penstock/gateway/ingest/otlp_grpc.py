"""OTLP over gRPC: the three export services, with the same tokens, quotas and bounds as over HTTP.

Messages stay bytes until they are decoded into columns: no object is made for a point, a record or a span. A message is
read only once its sender is known and admitted, and few of them at once, because none says how large it is. Codes are
those that OTLP names: UNAVAILABLE, RESOURCE_EXHAUSTED and DEADLINE_EXCEEDED are tried again by clients, no others are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from math import ceil
from typing import Any, Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

import grpc

from penstock.errors import PenstockError, Unavailable
from penstock.gateway.access.limits import TooMany
from penstock.gateway.access.tokens import Scope
from penstock.gateway.config import GatewayConfig
from penstock.gateway.http.bodies import Receive, read_body
from penstock.gateway.http.exchange import HttpExchange
from penstock.gateway.http.guard import Guard
from penstock.gateway.http.listening import check_listening, written_address
from penstock.gateway.http.refusals import refusal_of
from penstock.gateway.ingest.otlp_answers import otlp_success
from penstock.gateway.ingest.telemetry import IngestRoutes
from penstock.observability import SILENT, Observer, names
from penstock.records import Signal

__all__ = ["GrpcServer", "MessageTurns"]

_SERVICES: Final = {
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": Signal.METRICS,
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": Signal.LOGS,
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": Signal.TRACES,
}
_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
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
        self._reading = MessageTurns(config)
        self._server: Any = None
        self.port = config.grpc_port

    async def start(self, port: int | None = None) -> None:
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._config.body_bytes_max),
                ("grpc.max_metadata_size", self._config.header_bytes_max),
                ("grpc.max_concurrent_streams", self._config.tenant.concurrent_requests),
                ("grpc.max_connection_idle_ms", ceil(self._config.idle_seconds_max * 1000)),
                ("grpc.server_handshake_timeout_ms", ceil(self._config.header_seconds_max * 1000)),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=self._config.concurrent_requests,
        )
        self._server.add_generic_rpc_handlers((_Handler(self),))
        host, port = self._config.host, self._config.grpc_port if port is None else port
        # gRPC prints why it cannot, and raises without it.
        self._config.check_certificate()
        await check_listening(host, port)
        address = written_address(host, port)
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

    async def export(self, signal: Signal, messages: AsyncIterator[bytes], context: Any) -> bytes:
        """Store one request; the code of the call tells why not."""
        exchange = _exchange(signal, messages, context)
        route, status = f"grpc/{signal.name.lower()}", "OK"
        try:
            exchange.principal = self._guard.principal(exchange, Scope.WRITE)
            with self._guard.admitted(exchange, stores=True):
                body = await self._message(exchange)
                found = await self._ingest.store_otlp(signal, body, exchange.principal)
            return otlp_success(signal, found, _PROTOBUF).body
        except Exception as error:
            refusal = refusal_of(error)
            if refusal.is_hidden:
                self._observer.event(names.GATEWAY_FAILED, route=route, error=f"{type(error).__name__}: {error}")
            status = _CODES.get(refusal.status, grpc.StatusCode.INTERNAL).name
            await context.abort(_CODES.get(refusal.status, grpc.StatusCode.INTERNAL), str(refusal))
            raise AssertionError("abort raises") from error
        finally:
            self._observer.count(names.GATEWAY_REQUESTS, route=route, status=status)

    async def _message(self, exchange: HttpExchange) -> bytes:
        config = self._config
        async with self._reading.turn(exchange.principal.tenant):
            return await read_body(exchange.receive, None, config.body_bytes_max, config.body_seconds_max)


class MessageTurns:
    """Messages that are read at once: as many of the largest size as there is room for, and fewer of one tenant."""

    def __init__(self, config: GatewayConfig) -> None:
        size, self._seconds = config.body_bytes_max, config.ingest_seconds_max
        self._all = asyncio.Semaphore(max(1, config.concurrent_bytes // size))
        self._share_max = max(1, config.tenant.concurrent_bytes // size)
        # Those that somebody reads under, or waits for.
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Waited for no longer than for room at the edge: a small message is read in no time."""
        share = self._shares.setdefault(tenant, asyncio.Semaphore(self._share_max))
        async with AsyncExitStack() as held:
            await self._enter(held, share, TooMany(f"tenant {tenant} sends too many messages at once"))
            await self._enter(held, self._all, Unavailable("the gateway reads too many messages at once"))
            yield

    async def _enter(self, held: AsyncExitStack, room: asyncio.Semaphore, refusal: PenstockError) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await held.enter_async_context(room)
        except TimeoutError:
            raise refusal from None


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, server: GrpcServer) -> None:
        self._server = server

    def service(self, details: Any) -> Any:
        signal = _SERVICES.get(details.method)
        if signal is None:
            return None

        async def export(messages: AsyncIterator[bytes], context: Any) -> bytes:
            return await self._server.export(signal, messages, context)

        # Without serialisers, messages are bytes on both sides. On the wire a stream of one message is a message; but a
        # stream begins before its message is read.
        return grpc.stream_unary_rpc_method_handler(export)


def _exchange(signal: Signal, messages: AsyncIterator[bytes], context: Any) -> HttpExchange:
    """The call as the guard knows requests."""
    # What HTTP says of the length of a body means nothing here.
    metadata = [(key, value) for key, value in context.invocation_metadata() or () if key != "content-length"]
    headers = [(key.encode(), _bytes(value)) for key, value in metadata]
    # `ipv4:127.0.0.1:1234` or `ipv6:%5B::1%5D:1234`
    address = unquote(context.peer()).partition(":")[2].rpartition(":")[0].strip("[]")
    scope = {"method": "POST", "path": f"/v1/{signal.name.lower()}", "headers": headers, "client": (address, 0)}
    return HttpExchange(scope, _one_message(messages))


def _one_message(messages: AsyncIterator[bytes]) -> Receive:
    async def receive() -> dict[str, Any]:
        found = await anext(messages, None)
        if found is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": found}

    return receive


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", "replace")
