"""Telemetry in: OTLP, remote write, Arrow and lines of JSON become one bundle each, acknowledged once it is durable.

A request is decoded off the event loop, straight into Arrow columns, and stored whole or refused whole; where OTLP
knows partial success, single rows are refused and counted. A store at the edge that is full is told as 503 with
Retry-After, which every one of these protocols retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Unsupported
from penstock.gateway.access.naming import check_table
from penstock.gateway.access.tokens import Principal, Scope
from penstock.gateway.config import GatewayConfig
from penstock.gateway.http.bodies import read_body
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, json_answer
from penstock.gateway.http.routing import Route
from penstock.gateway.ingest.coalescing import Coalescer, Divided
from penstock.gateway.ingest.otlp_answers import otlp_refusal, otlp_success
from penstock.gateway.ingest.remote_write import remote_write_answer, remote_write_version
from penstock.observability import SILENT, Observer, names
from penstock.quiver import Bundle
from penstock.records import Signal
from penstock.telemetry import (
    DecodedRows,
    DecodeLimits,
    RemoteWriteVersion,
    RowSource,
    decode_arrow,
    decode_json_lines,
    decode_otlp_json,
    decode_otlp_together,
    decode_write_requests,
    narrowed,
    signal_of,
    unpack,
)

__all__ = ["IngestRoutes", "TelemetrySink"]

T = TypeVar("T")

_PROTOBUF: Final = "application/x-protobuf"
_JSON: Final = "application/json"
_ARROW: Final = "application/vnd.apache.arrow.stream"
_LINES: Final = ("application/x-ndjson", "application/jsonl", _JSON)
_TAG: Final = "ingest"
# Decoding a body of this size on the loop takes less than handing it to a thread.
_INLINE_BYTES_MAX: Final = 256 * 1024


class TelemetrySink(Protocol):
    """Where bundles go: a quiver, or whatever acknowledges as it does."""

    async def ingest(self, bundle: Bundle, timeout: float | None = None) -> Any: ...


class IngestRoutes:
    """The handlers, as endpoints."""

    def __init__(
        self,
        sink: TelemetrySink,
        config: GatewayConfig,
        limits: DecodeLimits | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._sink, self._config, self._clock, self._observer = sink, config, clock, observer
        self._coalescer = Coalescer(clock)
        self._limits = limits or DecodeLimits(
            request_bytes_max=config.body_bytes_max, unpacked_bytes_max=config.decompressed_bytes_max
        )

    def endpoints(self) -> list[Route]:
        otlp = [
            Route(
                "POST",
                f"/v1/{signal.name.lower()}",
                Scope.WRITE,
                self._otlp(signal),
                f"Store {signal.name.lower()} sent by OTLP.",
                otlp_refusal,
                takes=(_PROTOBUF, _JSON),
                gives=(_PROTOBUF, _JSON),
                errors="OtlpStatus",
                tag=_TAG,
                stores=True,
            )
            for signal in Signal
        ]
        return [
            *otlp,
            Route(
                "POST",
                "/api/v1/write",
                Scope.WRITE,
                self.remote_write,
                "Store samples sent by Prometheus remote write 1.0 or 2.0.",
                takes=(_PROTOBUF,),
                tag=_TAG,
                stores=True,
            ),
            Route(
                "POST",
                "/v1/arrow/{table}",
                Scope.WRITE,
                self.arrow,
                "Store an Arrow IPC stream in a table.",
                takes=(_ARROW,),
                tag=_TAG,
                stores=True,
            ),
            Route(
                "POST",
                "/v1/rows/{table}",
                Scope.WRITE,
                self.rows,
                "Store lines of JSON in a table.",
                takes=_LINES[:1],
                tag=_TAG,
                stores=True,
            ),
        ]

    # Protocols ---------------------------------------------------------------------------------------

    def _otlp(self, signal: Signal) -> Callable[[HttpExchange], Any]:
        async def handler(exchange: HttpExchange) -> HttpAnswer:
            kind = exchange.content_type
            if kind not in (_PROTOBUF, _JSON):
                raise Unsupported(f"the content type {kind[:80]!r} is not supported", "", f"use {_PROTOBUF} or {_JSON}")
            body = await self._message(exchange)
            if kind == _PROTOBUF:
                found = await self.store_otlp(signal, body, exchange.principal)
            else:
                source = self._source(exchange.principal)
                found = await self._stored(
                    signal.name.lower(), len(body), lambda: decode_otlp_json(signal, body, source, self._limits)
                )
            return otlp_success(signal, found, kind)

        return handler

    async def store_otlp(self, signal: Signal, body: bytes, principal: Principal) -> DecodedRows:
        """One request in protobuf, however it came; returns once its rows are durable.

        Requests of one tenant are stored together. One with rows that are refused is told alone which.
        """
        return await self._store_together(
            signal.name.lower(),
            signal,
            body,
            principal,
            lambda bodies, source: decode_otlp_together(signal, bodies, source, self._limits),
        )

    async def remote_write(self, exchange: HttpExchange) -> HttpAnswer:
        version = remote_write_version(exchange)
        body = await self._message(exchange, "snappy")
        decode = partial(decode_write_requests, version=version, limits=self._limits)
        if version is RemoteWriteVersion.V1:
            found = await self._store_together("metrics", version, body, exchange.principal, decode)
        else:
            # Each request of the second version numbers its texts anew, and is told how much of it was written.
            source = self._source(exchange.principal)
            found = await self._stored("metrics", len(body), lambda: decode([body], source))
        return remote_write_answer(found, version)

    async def arrow(self, exchange: HttpExchange) -> HttpAnswer:
        table = check_table(exchange.parameters["table"])
        body = await self._message(exchange)
        signal, source = signal_of(table), self._source(exchange.principal)
        found = await self._stored(table, len(body), lambda: decode_arrow(body, source, signal, self._limits))
        return json_answer({"rows": found.batch.num_rows})

    async def rows(self, exchange: HttpExchange) -> HttpAnswer:
        table = check_table(exchange.parameters["table"])
        body = await self._message(exchange)
        signal, source = signal_of(table), self._source(exchange.principal)
        found = await self._stored(table, len(body), lambda: decode_json_lines(body, source, signal, self._limits))
        return json_answer({"rows": found.batch.num_rows})

    # Shared ------------------------------------------------------------------------------------------

    async def _store_together(
        self,
        table: str,
        kind: Hashable,
        body: bytes,
        principal: Principal,
        decode: Callable[[Sequence[bytes], RowSource], DecodedRows],
    ) -> DecodedRows:
        """A message that may be decoded with others of its kind and tenant; returns once its rows are durable."""

        async def take(bodies: Sequence[bytes]) -> DecodedRows:
            source = self._source(principal)
            found = await _off_loop(sum([len(body) for body in bodies]), lambda: decode(bodies, source))
            if found.rejected and len(bodies) > 1:
                raise Divided("rows of a group were refused")
            await self._store(table, found)
            return found

        return await self._coalescer.take((kind, principal.tenant), body, take)

    async def _message(self, exchange: HttpExchange, encoding: str | None = None) -> bytes:
        """The body without its encoding, which is the header's where a protocol does not name one."""
        config = self._config
        body = await read_body(
            exchange.receive, exchange.announced_bytes, config.body_bytes_max, config.body_seconds_max
        )
        encoding = exchange.headers.get("content-encoding", "") if encoding is None else encoding
        if not encoding:
            self._limits.check_request(len(body))
            return body
        found = await _off_loop(len(body), lambda: unpack(body, encoding, self._limits))
        exchange.hold(len(found))
        return found

    def _source(self, principal: Principal) -> RowSource:
        return RowSource(principal.tenant, self._clock.now_ms() * 1_000_000)

    async def _stored(self, table: str, size: int, decode: Callable[[], DecodedRows]) -> DecodedRows:
        """Decode a request and store it, alone."""
        found = await _off_loop(size, decode)
        await self._store(table, found)
        return found

    async def _store(self, table: str, found: DecodedRows) -> None:
        """Return once the rows are durable."""
        if found.batch.num_rows:
            rows = narrowed(found.batch, table)
            bundle = Bundle({table: rows}, signal=table, event_time_ns=_time_range(rows))
            await self._sink.ingest(bundle, self._config.ingest_seconds_max)
        self._observer.count(names.GATEWAY_ROWS, found.batch.num_rows, signal=table)
        if found.rejected:
            self._observer.count(names.GATEWAY_REJECTED_ROWS, found.rejected, signal=table)


async def _off_loop(size: int, work: Callable[[], T]) -> T:
    """Do in a thread what is large; the libraries beneath let go of the interpreter's lock."""
    return work() if size <= _INLINE_BYTES_MAX else await asyncio.to_thread(work)


def _time_range(batch: pa.RecordBatch) -> tuple[int, int] | None:
    """The first and last event time, where the table has a column of times."""
    index = batch.schema.get_field_index("time")
    if index < 0 or not pa.types.is_timestamp(batch.schema.field(index).type):
        return None
    kind = batch.schema.field(index).type
    column = batch.column(index)
    found = pc.min_max((column if kind.unit == "ns" else column.cast(pa.timestamp("ns", kind.tz))).view(pa.int64()))
    low, high = found["min"].as_py(), found["max"].as_py()
    return None if low is None else (low, high)
