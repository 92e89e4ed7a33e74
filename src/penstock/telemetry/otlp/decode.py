"""OTLP requests as rows: metrics, logs and traces, in protobuf or JSON.

A request that is malformed is refused whole. One that is sound, but in which single points, records or spans cannot
be kept, is taken without them, and says how many and why: what OTLP calls a partial success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.records import Signal
from penstock.telemetry.columns.few_rows import Uncommon, is_short
from penstock.telemetry.columns.rows import DecodedRows, RowSource
from penstock.telemetry.otlp.json_mapping import protobuf_of_json
from penstock.telemetry.otlp.logs import log_rows
from penstock.telemetry.otlp.metrics import metric_rows
from penstock.telemetry.otlp.outline import OUTLINE
from penstock.telemetry.otlp.short_requests import short_rows
from penstock.telemetry.otlp.traces import span_rows
from penstock.telemetry.wire.limits import DecodeLimits
from penstock.telemetry.wire.outline import outlined
from penstock.telemetry.wire.protobuf import canonical, parse, to_arrow

__all__ = ["decode_otlp", "decode_otlp_json", "decode_otlp_together", "otlp_rows", "request_message"]

_LIMITS: Final = DecodeLimits()
_READERS: Final[dict[Signal, Callable[[pa.RecordBatch, RowSource, DecodeLimits], DecodedRows]]] = {
    Signal.METRICS: metric_rows,
    Signal.LOGS: log_rows,
    Signal.TRACES: span_rows,
}


def decode_otlp(signal: Signal, body: bytes, source: RowSource, limits: DecodeLimits = _LIMITS) -> DecodedRows:
    """An `Export…ServiceRequest` in protobuf, as rows of the signal's schema."""
    return decode_otlp_together(signal, [bytes(body)], source, limits)


def decode_otlp_together(
    signal: Signal, bodies: Sequence[bytes], source: RowSource, limits: DecodeLimits = _LIMITS
) -> DecodedRows:
    """Several requests of one sender as rows, for little more than one costs; malformed if one of them is."""
    for body in bodies:
        limits.check_request(len(body))
    return _decoded(signal, bodies, source, limits)


def decode_otlp_json(signal: Signal, body: bytes, source: RowSource, limits: DecodeLimits = _LIMITS) -> DecodedRows:
    """The same request in OTLP's JSON."""
    limits.check_request(len(body))
    message = request_message(signal)
    found = protobuf_of_json(message, bytes(body), f"OTLP {signal.name.lower()} request")
    return _decoded(signal, [found], source, limits)


def _decoded(signal: Signal, bodies: Sequence[bytes], source: RowSource, limits: DecodeLimits) -> DecodedRows:
    what, message = f"OTLP {signal.name.lower()} request", request_message(signal)
    parsed = None
    with suppress(Uncommon):
        if is_short(bodies, limits):
            parsed = [parse(message, body, what) for body in bodies]
            return short_rows(signal, parsed, source, limits)
        return otlp_rows(signal, outlined(message.DESCRIPTOR, bodies, OUTLINE), source, limits)
    parsed = parsed or [parse(message, body, what) for body in bodies]
    with suppress(Uncommon):
        # Once it is put into order, most of what was out of the ordinary no longer is.
        ordered = [canonical(one) for one in parsed]
        return otlp_rows(signal, outlined(message.DESCRIPTOR, ordered, OUTLINE), source, limits)
    return otlp_rows(signal, to_arrow(message, bodies, what, parsed), source, limits)


def otlp_rows(signal: Signal, request: pa.RecordBatch, source: RowSource, limits: DecodeLimits) -> DecodedRows:
    """Rows of a request that is in nested columns already."""
    try:
        return _READERS[signal](request, source, limits)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InvalidInput(f"the OTLP {signal.name.lower()} request cannot be kept", str(error)[:200]) from error


def request_message(signal: Signal) -> Any:
    """The class of a signal's export request."""
    if signal is Signal.METRICS:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        return ExportMetricsServiceRequest
    if signal is Signal.LOGS:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

        return ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return ExportTraceServiceRequest
