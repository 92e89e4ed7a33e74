"""Requests for the tests of telemetry, made by the protobuf project's own library."""

from __future__ import annotations

from typing import Any

import cramjam
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.telemetry import RowSource
from penstock.telemetry.remote_write.messages import write_request_v1, write_request_v2

SOURCE = RowSource("acme", 1_700_000_000_000_000_000)
NOW = 1_763_000_000_000_000_000
TRACE, SPAN = bytes(range(1, 17)), bytes(range(1, 9))


def set_attributes(target: Any, **values: Any) -> None:
    for key, value in values.items():
        set_value(target.add(key=key).value, value)


def set_value(target: Any, value: Any) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, list):
        target.array_value.SetInParent()
        for one in value:
            set_value(target.array_value.values.add(), one)
    elif isinstance(value, dict):
        target.kvlist_value.SetInParent()
        for key, one in value.items():
            set_value(target.kvlist_value.values.add(key=key).value, one)
    elif value is not None:
        target.string_value = value


def metrics_scope(request: Any | None = None) -> tuple[Any, Any]:
    """A request, and the scope in it that metrics are added to."""
    request = request or ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    set_attributes(resource.resource.attributes, **{"service.name": "checkout", "service.instance.id": "i-1"})
    scope = resource.scope_metrics.add()
    scope.scope.name = "meter"
    return request, scope


def every_kind_of_metric() -> Any:
    request, scope = metrics_scope()
    gauge = scope.metrics.add(name="cpu.load", unit="1").gauge.data_points.add(time_unix_nano=NOW, as_double=0.5)
    set_attributes(gauge.attributes, core=0, host="a", tags=["x", 1], deep={"a": {"b": [True, None]}}, raw=b"\0\1")
    total = scope.metrics.add(name="http.requests", unit="1")
    total.sum.aggregation_temporality, total.sum.is_monotonic = 2, True
    point = total.sum.data_points.add(time_unix_nano=NOW, start_time_unix_nano=NOW - 5, as_int=2**62)
    point.exemplars.add(time_unix_nano=NOW, as_double=1.5, trace_id=TRACE, span_id=SPAN)
    times = scope.metrics.add(name="http.duration", unit="ms")
    times.histogram.aggregation_temporality = 2
    point = times.histogram.data_points.add(time_unix_nano=NOW, count=6, sum=12.5, min=0.1, max=9)
    point.explicit_bounds.extend([1, 2.5])
    point.bucket_counts.extend([1, 2, 3])
    sizes = scope.metrics.add(name="sizes", unit="By")
    sizes.exponential_histogram.aggregation_temporality = 2
    point = sizes.exponential_histogram.data_points.add(time_unix_nano=NOW, count=6, sum=3, scale=0, zero_count=1)
    point.positive.offset = 1
    point.positive.bucket_counts.extend([2, 3])
    old = scope.metrics.add(name="rpc").summary.data_points.add(time_unix_nano=NOW, count=2, sum=1)
    old.quantile_values.add(quantile=0.99, value=7)
    return request


def some_logs() -> Any:
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    record = scope.log_records.add(time_unix_nano=NOW, severity_number=9, trace_id=TRACE, span_id=SPAN)
    record.body.string_value = "hello"
    set_attributes(record.attributes, user=42, ok=True)
    set_value(scope.log_records.add(observed_time_unix_nano=NOW + 1).body, {"a": [1, {"b": 2}]})
    scope.log_records.add()
    return request


def some_spans() -> Any:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    span = scope.spans.add(
        trace_id=TRACE, span_id=SPAN, name="GET", kind=2, start_time_unix_nano=NOW, end_time_unix_nano=NOW + 7
    )
    span.status.code = 2
    set_attributes(span.events.add(time_unix_nano=NOW + 1, name="row").attributes, n=3)
    set_attributes(span.links.add(trace_id=TRACE, span_id=SPAN).attributes, why="batch")
    return request


def first_write(series: list[tuple[dict[str, str], list[tuple[int, float]]]]) -> Any:
    request = write_request_v1()()
    for labels, samples in series:
        one = request.timeseries.add()
        for name, value in labels.items():
            one.labels.add(name=name, value=value)
        for time_ms, sample in samples:
            one.samples.add(timestamp=time_ms, value=sample)
    return request


def second_write(series: list[tuple[dict[str, str], list[tuple[int, float]]]]) -> Any:
    request = write_request_v2()()
    symbols = [""]
    for labels, samples in series:
        one = request.timeseries.add()
        for text in [text for pair in labels.items() for text in pair]:
            if text not in symbols:
                symbols.append(text)
            one.labels_refs.append(symbols.index(text))
        for time_ms, sample in samples:
            one.samples.add(timestamp=time_ms, value=sample)
    request.symbols.extend(symbols)
    return request


def packed(message: Any) -> bytes:
    return bytes(cramjam.snappy.compress_raw(message.SerializeToString()))
