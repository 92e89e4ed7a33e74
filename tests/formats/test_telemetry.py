"""Requests of the real OpenTelemetry SDK and of a real Prometheus, and a record of the queue. They never change."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.records import ArrowEnvelope, Signal
from penstock.telemetry import (
    ExponentialPolicy,
    RowSource,
    SeriesConfig,
    decode_otlp,
    decode_records,
    decode_remote_write,
    encode_otlp,
    schema_of,
    series_of,
)

GOLDEN = Path(__file__).parent / "golden" / "telemetry"
SOURCE = RowSource("acme", 1)


@pytest.mark.parametrize("signal", list(Signal))
def test_a_request_of_the_sdk_is_taken_whole_and_goes_back_as_it_came(signal: Signal) -> None:
    body = (GOLDEN / f"otlp-{signal.name.lower()}-sdk.bin").read_bytes()
    decoded = decode_otlp(signal, body, SOURCE)
    assert decoded.rejected == 0
    assert decoded.batch.num_rows == {Signal.METRICS: 6, Signal.LOGS: 2, Signal.TRACES: 2}[signal]
    assert decode_otlp(signal, encode_otlp(signal, decoded.batch), SOURCE).batch.equals(decoded.batch)


def test_metrics_of_the_sdk_have_the_series_that_prometheus_would_show() -> None:
    batch = decode_otlp(Signal.METRICS, (GOLDEN / "otlp-metrics-sdk.bin").read_bytes(), SOURCE).batch
    found = series_of(batch, SeriesConfig(exponential=ExponentialPolicy.CLASSIC))
    names = {dict(labels.as_py())["__name__"] for labels in found.labels}
    assert names == {
        *("http_server_requests_total", "queue_length", "cpu_temperature_celsius", "target_info"),
        *("http_server_duration_milliseconds_bucket", "http_server_duration_milliseconds_sum"),
        *("http_server_duration_milliseconds_count", "sizes_bytes_bucket", "sizes_bytes_sum", "sizes_bytes_count"),
    }
    jobs = {dict(labels.as_py()).get("job") for labels in found.labels}
    assert jobs == {"shop/checkout"}


def test_logs_and_spans_of_the_sdk_share_their_trace() -> None:
    logs, spans = (
        decode_otlp(signal, (GOLDEN / f"otlp-{signal.name.lower()}-sdk.bin").read_bytes(), SOURCE).batch
        for signal in (Signal.LOGS, Signal.TRACES)
    )
    assert set(logs.column("trace_id").to_pylist()) == set(spans.column("trace_id").to_pylist())
    assert sorted(spans.column("kind").to_pylist()) == ["client", "server"]


def test_requests_of_prometheus_are_taken() -> None:
    samples = decode_remote_write((GOLDEN / "remote-write-1.0-samples.snappy").read_bytes(), SOURCE).batch
    assert samples.num_rows == 11
    assert {"up", "jobs_total", "temp", "wait_seconds_bucket"} <= set(samples.column("metric").to_pylist())
    assert ("room", "küche") in [pair for labels in samples.column("labels").to_pylist() for pair in labels]
    exemplars = decode_remote_write((GOLDEN / "remote-write-1.0-exemplars.snappy").read_bytes(), SOURCE).batch
    found = [one for row in exemplars.column("exemplars").to_pylist() for one in row or ()]
    assert {one["trace_id"] for one in found} == {"4bf92f3577b34da6a3ce929d0e0e4736"}
    assert decode_remote_write((GOLDEN / "remote-write-1.0-metadata.snappy").read_bytes(), SOURCE).batch.num_rows == 0


def test_a_record_of_the_queue_is_still_read() -> None:
    tables = decode_records([(GOLDEN / "payload-v1.arrow").read_bytes()], ArrowEnvelope(Signal.LOGS).encode(), 0)
    assert tables["logs"][0].schema.equals(schema_of(Signal.LOGS))
    assert tables["logs"][0].column("body").to_pylist()[0] == "cart is empty"
