"""Rows go back to OTLP with the types they came with."""

from __future__ import annotations

import pytest
from tests.telemetry.samples import SOURCE, every_kind_of_metric, first_write, packed, some_logs, some_spans

from penstock.records import Signal
from penstock.telemetry import decode_otlp, decode_remote_write, encode_otlp


@pytest.mark.parametrize(
    ("signal", "request_"),
    [(Signal.METRICS, every_kind_of_metric), (Signal.LOGS, some_logs), (Signal.TRACES, some_spans)],
)
def test_rows_that_were_encoded_decode_to_the_same_rows(signal: Signal, request_: object) -> None:
    batch = decode_otlp(signal, request_().SerializeToString(), SOURCE).batch  # type: ignore[operator]
    assert decode_otlp(signal, encode_otlp(signal, batch), SOURCE).batch.equals(batch)


def test_rows_of_one_resource_share_it() -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    batch = decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE).batch
    request = ExportMetricsServiceRequest.FromString(encode_otlp(Signal.METRICS, batch))
    assert len(request.resource_metrics) == 1


def test_samples_of_prometheus_go_out_under_their_names() -> None:
    batch = decode_remote_write(packed(first_write([({"__name__": "up", "job": "a"}, [(1, 1.0)])])), SOURCE).batch
    found = decode_otlp(Signal.METRICS, encode_otlp(Signal.METRICS, batch), SOURCE).batch
    assert found.column("metric").to_pylist() == ["up"]
    assert found.column("labels").to_pylist() == [[("job", "a")]]
