"""Sends spans to an OpenTelemetry collector: OTLP over HTTP, in its JSON form, configured by the usual variables.

JSON, because every collector takes it at the same address as the binary form, and nothing more has to be installed.
gRPC is refused by name. A collector that is away costs spans and nothing else: what is traced never waits for it.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import httpx
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import StatusCode

from penstock.errors import InvalidInput

__all__ = ["OtlpExporter", "OtlpSettings", "encode_spans"]

_PREFIX: Final = "OTEL_EXPORTER_OTLP"
_PATH: Final = "v1/traces"
_TIMEOUT_MS: Final = 10_000.0
# What a collector answers when it wants to be asked again, and how often and after which pauses it is.
_LATER: Final = frozenset({429, 502, 503, 504})
_PAUSES_SECONDS: Final = (1.0, 2.0)
# Of one request once the process is about to end.
_LAST_SECONDS: Final = 2.0
_STATUS: Final = {StatusCode.UNSET: 0, StatusCode.OK: 1, StatusCode.ERROR: 2}


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Where spans go; the headers may hold a key, and are left out of what is printed."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = _TIMEOUT_MS / 1000
    compressed: bool = False
    certificate: str | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> OtlpSettings | None:
        """What the variables `OTEL_EXPORTER_OTLP_…` say; None when they name no collector, or tracing is turned off."""
        off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        url = _said(environment, "ENDPOINT")
        if off or url is None or environment.get("OTEL_TRACES_EXPORTER", "otlp").lower() == "none":
            return None
        if not url.startswith(("http://", "https://")):
            raise _refused("ENDPOINT", url, "it is not an HTTP address", "write http://host:4318")
        if not environment.get(f"{_PREFIX}_TRACES_ENDPOINT"):
            # Only the variable for traces alone names the whole path.
            url = f"{url.rstrip('/')}/{_PATH}"
        protocol = _said(environment, "PROTOCOL") or "http/json"
        if not protocol.startswith("http/"):
            raise _refused("PROTOCOL", protocol, "spans are sent over HTTP", "use http/json, mostly at port 4318")
        return cls(
            url,
            _headers(_said(environment, "HEADERS") or ""),
            _seconds(_said(environment, "TIMEOUT")),
            _said(environment, "COMPRESSION") == "gzip",
            _said(environment, "CERTIFICATE"),
        )


class OtlpExporter(SpanExporter):
    """Called by a batch processor, on its thread."""

    def __init__(self, settings: OtlpSettings, *, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._ending = threading.Event()
        self._client = httpx.Client(
            headers={**settings.headers, "content-type": "application/json"},
            timeout=settings.timeout_seconds,
            verify=settings.certificate or True,
            transport=transport,
        )

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        body = json.dumps(encode_spans(spans)).encode()
        headers = {}
        if self._settings.compressed:
            body, headers = gzip.compress(body), {"content-encoding": "gzip"}
        for pause in (*_PAUSES_SECONDS, None):
            patience = min(_LAST_SECONDS, self._settings.timeout_seconds)
            timeout = patience if self._ending.is_set() else self._settings.timeout_seconds
            try:
                answer = self._client.post(self._settings.url, content=body, headers=headers, timeout=timeout)
                status = answer.status_code
            except httpx.RequestError:
                status = 503
            if status not in _LATER:
                return SpanExportResult.SUCCESS if status < 300 else SpanExportResult.FAILURE
            if pause is None or self._ending.wait(pause):
                break
        return SpanExportResult.FAILURE

    def hurry(self) -> None:
        """Try once and shortly from now on: the process waits for its last spans only."""
        self._ending.set()

    def shutdown(self) -> None:
        self._ending.set()
        self._client.close()


def encode_spans(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """The body of a request; spans of one process have one resource."""
    resource = spans[0].resource.attributes if spans else {}
    scope = {"scope": {"name": "penstock"}, "spans": [_span(span) for span in spans]}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}


def _span(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    told: dict[str, Any] = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": _attributes(span.attributes or {}),
        "links": [
            {"traceId": f"{link.context.trace_id:032x}", "spanId": f"{link.context.span_id:016x}"}
            for link in span.links
        ],
        "status": {"code": _STATUS[span.status.status_code], "message": span.status.description or ""},
    }
    if span.parent is not None:
        told["parentSpanId"] = f"{span.parent.span_id:016x}"
    return told


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}


def _said(environment: Mapping[str, str], name: str) -> str | None:
    """The variable for traces before the one for all signals; an empty one says nothing."""
    return environment.get(f"{_PREFIX}_TRACES_{name}") or environment.get(f"{_PREFIX}_{name}") or None


def _headers(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if any(not (name.strip() and equals) for name, equals, _ in pairs):
        raise _refused("HEADERS", "…", "it is not name=value,name=value", "separate headers by commas")
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


def _seconds(text: str | None) -> float:
    try:
        seconds = float(text or _TIMEOUT_MS) / 1000
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise _refused("TIMEOUT", text or "", "it is no number of milliseconds", "leave it out for ten seconds")
    return seconds


def _refused(name: str, value: str, why: str, remedy: str) -> InvalidInput:
    return InvalidInput(f"{_PREFIX}_{name}={value} cannot be used", why, remedy)
