"""Rows back to OTLP in protobuf: for a collector downstream. Values have the types that they came with.

Rows of one resource and scope that lie together share them in the request. Metrics with names of Prometheus go out as
gauges and sums under those names.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.records import Signal
from penstock.telemetry.columns.schemas import ValueKind
from penstock.telemetry.otlp.decode import request_message
from penstock.telemetry.otlp.traces import SPAN_KINDS, STATUS_CODES

__all__ = ["encode_otlp"]

_TEMPORALITY: Final = {"delta": 1, "cumulative": 2}
_SOURCE: Final = ("resource", "resource_types", "scope", "scope_version", "scope_attributes", "scope_attribute_types")


def encode_otlp(signal: Signal, rows: pa.Table | pa.RecordBatch) -> bytes:
    """An `Export…ServiceRequest` with all rows."""
    request = request_message(signal)()
    for _, group in groupby(_rows(rows), key=lambda row: tuple(_hashable(row.get(name)) for name in _SOURCE)):
        members = list(group)
        _ADD[signal](_scoped(request, signal, members[0]), members)
    encoded: bytes = request.SerializeToString()
    return encoded


def _rows(rows: pa.Table | pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Times become whole nanoseconds: the types that Python has for them hold microseconds."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    table = table.cast(pa.schema([pa.field(one.name, _without_times(one.type)) for one in table.schema]))
    for batch in table.to_batches(max_chunksize=4096):
        yield from batch.to_pylist()


def _without_times(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([pa.field(one.name, _without_times(one.type)) for one in fields])
    return pa.list_(_without_times(kind.value_type)) if pa.types.is_list(kind) else kind


def _scoped(request: Any, signal: Signal, row: Mapping[str, Any]) -> Any:
    name = {Signal.METRICS: "metrics", Signal.LOGS: "logs", Signal.TRACES: "spans"}[signal]
    resource = getattr(request, f"resource_{name}").add()
    _put(resource.resource.attributes, row.get("resource"), row.get("resource_types"))
    scope = getattr(resource, f"scope_{name}").add()
    if row.get("scope") or row.get("scope_version") or row.get("scope_attributes"):
        scope.scope.name, scope.scope.version = row.get("scope") or "", row.get("scope_version") or ""
        _put(scope.scope.attributes, row.get("scope_attributes"), row.get("scope_attribute_types"))
    return scope


# Signals -----------------------------------------------------------------------------------------------------


def _add_metrics(scope: Any, rows: list[dict[str, Any]]) -> None:
    for _, group in groupby(rows, key=lambda row: tuple(row.get(name) for name in _METRIC)):
        points = list(group)
        metric = scope.metrics.add(
            name=points[0]["metric"], unit=points[0].get("unit") or "", description=points[0].get("description") or ""
        )
        _fill_metric(metric, points)


_METRIC: Final = ("metric", "type", "unit", "description", "temporality", "monotonic")


def _fill_metric(metric: Any, rows: list[dict[str, Any]]) -> None:
    kind, is_sum = rows[0]["type"], rows[0]["type"] in ("sum", "counter")
    if kind in ("histogram", "exponential_histogram", "summary") and rows[0].get("count") is not None:
        data = getattr(metric, kind)
    else:
        data = metric.sum if is_sum else metric.gauge
    if hasattr(data, "aggregation_temporality"):
        data.aggregation_temporality = _TEMPORALITY.get(rows[0].get("temporality") or "cumulative", 2)
    if is_sum:
        data.is_monotonic = bool(rows[0].get("monotonic")) or kind == "counter"
    for row in rows:
        point = data.data_points.add(
            time_unix_nano=_time(row["time"]),
            start_time_unix_nano=_time(row.get("start_time")),
            flags=row.get("flags") or 0,
        )
        _put(point.attributes, row.get("labels"), row.get("label_types"))
        _fill_point(point, row)


def _fill_point(point: Any, row: dict[str, Any]) -> None:
    kind = type(point).__name__
    if kind == "NumberDataPoint":
        _put_number(point, row)
    else:
        point.count = row.get("count") or 0
        for name in ("sum", "min", "max"):
            if row.get(name) is not None and name in point.DESCRIPTOR.fields_by_name:
                setattr(point, name, row[name])
    if kind == "HistogramDataPoint":
        point.explicit_bounds.extend(row.get("bounds") or [])
        point.bucket_counts.extend(row.get("counts") or [])
    elif kind == "ExponentialHistogramDataPoint":
        point.scale, point.zero_count = row.get("scale") or 0, row.get("zero_count") or 0
        point.zero_threshold = row.get("zero_threshold") or 0.0
        for side in ("positive", "negative"):
            if row.get(f"{side}_counts") is not None:
                getattr(point, side).offset = row.get(f"{side}_offset") or 0
                getattr(point, side).bucket_counts.extend(row[f"{side}_counts"])
    elif kind == "SummaryDataPoint":
        for one in row.get("quantiles") or []:
            point.quantile_values.add(quantile=one["quantile"], value=one["value"])
    for one in row.get("exemplars") or []:
        exemplar = point.exemplars.add(
            time_unix_nano=_time(one["time"]), trace_id=_id(one["trace_id"]), span_id=_id(one["span_id"])
        )
        _put_number(exemplar, one)
        _put(exemplar.filtered_attributes, one["attributes"], one["attribute_types"])


def _put_number(point: Any, row: Mapping[str, Any]) -> None:
    if row.get("int_value") is not None:
        point.as_int = row["int_value"]
    elif row.get("value") is not None:
        point.as_double = row["value"]


def _add_logs(scope: Any, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        record = scope.log_records.add(
            time_unix_nano=_time(row["time"]),
            observed_time_unix_nano=_time(row.get("observed_time")),
            severity_number=row.get("severity") or 0,
            severity_text=row.get("severity_text") or "",
            event_name=row.get("event_name") or "",
            flags=row.get("flags") or 0,
            dropped_attributes_count=row.get("dropped_attributes") or 0,
            trace_id=_id(row.get("trace_id")),
            span_id=_id(row.get("span_id")),
        )
        if row.get("body") is not None and row.get("body_type") != ValueKind.EMPTY:
            _put_value(record.body, row["body"], row.get("body_type") or 0)
        _put(record.attributes, row.get("attributes"), row.get("attribute_types"))


def _add_spans(scope: Any, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        span = scope.spans.add(
            trace_id=_id(row["trace_id"]),
            span_id=_id(row["span_id"]),
            parent_span_id=_id(row.get("parent_span_id")),
            trace_state=row.get("trace_state") or "",
            name=row.get("name") or "",
            kind=SPAN_KINDS.index(row.get("kind") or "unspecified"),
            start_time_unix_nano=_time(row["time"]),
            end_time_unix_nano=_time(row.get("end_time")),
            flags=row.get("flags") or 0,
            dropped_attributes_count=row.get("dropped_attributes") or 0,
        )
        span.status.code = STATUS_CODES.index(row.get("status") or "unset")
        span.status.message = row.get("status_message") or ""
        _put(span.attributes, row.get("attributes"), row.get("attribute_types"))
        for one in row.get("events") or []:
            event = span.events.add(time_unix_nano=_time(one["time"]), name=one["name"] or "")
            _put(event.attributes, one["attributes"], one["attribute_types"])
        for one in row.get("links") or []:
            link = span.links.add(
                trace_id=_id(one["trace_id"]), span_id=_id(one["span_id"]), trace_state=one["trace_state"] or ""
            )
            _put(link.attributes, one["attributes"], one["attribute_types"])


_ADD: Final[dict[Signal, Callable[[Any, list[dict[str, Any]]], None]]] = {
    Signal.METRICS: _add_metrics,
    Signal.LOGS: _add_logs,
    Signal.TRACES: _add_spans,
}


# Values ------------------------------------------------------------------------------------------------------


def _put(target: Any, entries: Any, kinds: list[int] | None) -> None:
    for number, (key, value) in enumerate(entries or ()):
        one = target.add(key=key)
        kind = kinds[number] if kinds else ValueKind.STRING
        if kind != ValueKind.EMPTY:
            _put_value(one.value, value, kind)


def _put_value(target: Any, text: str, kind: int) -> None:
    if kind == ValueKind.BOOL:
        target.bool_value = text == "true"
    elif kind == ValueKind.INT:
        target.int_value = int(text)
    elif kind == ValueKind.DOUBLE:
        target.double_value = float(text)
    elif kind == ValueKind.BYTES:
        target.bytes_value = base64.b64decode(text)
    elif kind == ValueKind.JSON:
        _put_json(target, msgspec.json.decode(text))
    else:
        target.string_value = text


def _put_json(target: Any, value: Any) -> None:
    if isinstance(value, list):
        # An empty list is an array too.
        target.array_value.SetInParent()
        for one in value:
            _put_json(target.array_value.values.add(), one)
    elif isinstance(value, dict):
        target.kvlist_value.SetInParent()
        for key, one in value.items():
            _put_json(target.kvlist_value.values.add(key=key).value, one)
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, str):
        target.string_value = value


def _id(text: str | None) -> bytes:
    try:
        return bytes.fromhex(text or "")
    except ValueError:
        # An exemplar of Prometheus may call anything a trace.
        return b""


def _time(value: int | None) -> int:
    return max(value or 0, 0)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
