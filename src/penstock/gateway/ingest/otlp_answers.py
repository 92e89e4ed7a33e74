"""Answers as OTLP over HTTP defines them: a response message on success, a `google.rpc.Status` on failure.

Both follow the content type of the request, protobuf or JSON. Only 429, 502, 503 and 504 are retried by clients.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, json_answer
from penstock.gateway.http.refusals import Refusal
from penstock.records import Signal
from penstock.telemetry import DecodedRows

__all__ = ["otlp_refusal", "otlp_success"]

_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"
# Status codes of gRPC, by those of HTTP.
_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 408: 4, 409: 10, 413: 8, 415: 3, 429: 8, 503: 14}
_INTERNAL: Final = 13
_REJECTED: Final = {
    Signal.METRICS: ("rejected_data_points", "rejectedDataPoints"),
    Signal.LOGS: ("rejected_log_records", "rejectedLogRecords"),
    Signal.TRACES: ("rejected_spans", "rejectedSpans"),
}


def otlp_success(signal: Signal, found: DecodedRows, kind: str) -> HttpAnswer:
    """Empty when everything was taken, otherwise how many rows were not, and why."""
    member, json_member = _REJECTED[signal]
    if kind == _JSON:
        partial = {json_member: str(found.rejected), "errorMessage": found.message}
        return json_answer({"partialSuccess": partial} if found.rejected else {})
    if not found.rejected:
        return HttpAnswer(content_type=_PROTOBUF)
    response = _response(signal)
    setattr(response.partial_success, member, found.rejected)
    response.partial_success.error_message = found.message
    return HttpAnswer(response.SerializeToString(), content_type=_PROTOBUF)


def otlp_refusal(exchange: HttpExchange, refusal: Refusal) -> HttpAnswer:
    code, message = _CODES.get(refusal.status, _INTERNAL), str(refusal)
    if exchange.content_type == _JSON:
        return json_answer({"code": code, "message": message}, refusal.status, refusal.headers)
    text = message.encode()
    body = b"\x08" + _varint(code) + b"\x12" + _varint(len(text)) + text
    return HttpAnswer(body, refusal.status, _PROTOBUF, refusal.headers)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _response(signal: Signal) -> Any:
    if signal is Signal.METRICS:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

        return ExportMetricsServiceResponse()
    if signal is Signal.LOGS:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

        return ExportLogsServiceResponse()
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    return ExportTraceServiceResponse()
