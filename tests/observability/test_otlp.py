"""Spans reach a collector over HTTP as the usual variables say; one that is away costs spans and nothing else."""

from __future__ import annotations

import gzip
import json

import httpx
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from penstock.errors import InvalidInput
from penstock.observability import LiveObserver, Span
from penstock.observability.otlp import OtlpExporter, OtlpSettings

WORK = Span("test.work", "Work.")
PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
LINKED = "00-" + "12" * 16 + "-" + "34" * 8 + "-01"


def observed(answer: int = 200, **settings: object) -> tuple[LiveObserver, list[httpx.Request]]:
    """An observer that exports at once, and the requests that a collector gets."""
    requests: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(answer)

    exporter = OtlpExporter(
        OtlpSettings("http://collector/v1/traces", **settings),  # type: ignore[arg-type]
        transport=httpx.MockTransport(handle),
    )
    exporter.hurry()
    provider = TracerProvider(resource=Resource({"service.name": "penstock"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return LiveObserver(tracer=provider.get_tracer("penstock")), requests


def test_a_span_is_sent_with_its_trace_its_links_and_what_it_is_about() -> None:
    observer, requests = observed()
    with observer.span(WORK, parent=PARENT, links=[LINKED], docId="d", chunks=3, share=0.5, whole=True, seqs=[1, 2]):
        inside = observer.traceparent()
    body = json.loads(requests[0].content)
    (resource,) = body["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "penstock"}} in resource["resource"]["attributes"]
    (span,) = resource["scopeSpans"][0]["spans"]
    assert (span["name"], span["traceId"], span["parentSpanId"]) == ("test.work", "ab" * 16, "cd" * 8)
    assert span["links"] == [{"traceId": "12" * 16, "spanId": "34" * 8}]
    assert inside == f"00-{span['traceId']}-{span['spanId']}-01"
    assert {each["key"]: each["value"] for each in span["attributes"]} == {
        "docId": {"stringValue": "d"},
        "chunks": {"intValue": "3"},
        "share": {"doubleValue": 0.5},
        "whole": {"boolValue": True},
        "seqs": {"arrayValue": {"values": [{"intValue": "1"}, {"intValue": "2"}]}},
    }


def test_a_span_that_is_over_is_sent_with_its_own_times() -> None:
    observer, requests = observed()
    observer.past_span(WORK, 1_000.5, 2_000, parent=PARENT)
    (span,) = json.loads(requests[0].content)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (span["startTimeUnixNano"], span["endTimeUnixNano"]) == ("1000500000", "2000000000")


def test_the_words_of_an_error_stay_out_of_a_trace() -> None:
    observer, requests = observed()
    with pytest.raises(ValueError, match="secret"), observer.span(WORK):
        raise ValueError("a secret text")
    assert b"secret" not in requests[0].content
    assert b"ValueError" in requests[0].content


def test_headers_and_compression_are_those_of_the_environment() -> None:
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x=y",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
    }
    found = OtlpSettings.of(settings)
    assert found == OtlpSettings("http://collector:4318/v1/traces", {"api-key": "a b", "x": "y"}, 2.5, True)
    assert "a b" not in repr(found)
    observer, requests = observed(headers={"api-key": "a b"}, compressed=True)
    observer.past_span(WORK, 1, 2)
    assert requests[0].headers["api-key"] == "a b"
    assert b"test.work" in gzip.decompress(requests[0].content)


def test_the_variable_for_traces_alone_names_the_whole_path() -> None:
    both = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/x"}
    found = OtlpSettings.of(both)
    assert found is not None
    assert found.url == "http://b/x"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nothing_is_sent_when_nobody_asks_for_it(environment: dict[str, str]) -> None:
    assert OtlpSettings.of(environment) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("ENDPOINT", "collector:4317"), ("PROTOCOL", "grpc"), ("HEADERS", "none"), ("TIMEOUT", "soon"), ("TIMEOUT", "-1")],
)
def test_a_variable_that_cannot_be_used_is_named(name: str, value: str) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", f"OTEL_EXPORTER_OTLP_{name}": value}
    with pytest.raises(InvalidInput, match=f"OTEL_EXPORTER_OTLP_{name}"):
        OtlpSettings.of(environment)


def test_a_collector_that_refuses_or_is_away_raises_nothing() -> None:
    for answer in (400, 503):
        observer, requests = observed(answer)
        with observer.span(WORK):
            pass
        assert len(requests) == 1
