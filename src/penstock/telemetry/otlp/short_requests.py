"""Short OTLP requests as rows, walked in Python: the rows of the decoders in bulk, for a fraction of the work.

Only what most senders send is known here: gauges, sums and histograms without exemplars, log records, and spans without
events and links, with attributes that are text, numbers or truth values. Anything else, and everything that must be
refused, is `Uncommon`, and the decoders in bulk decide about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import isnan
from typing import Any, Final

from penstock.records import Signal
from penstock.telemetry.columns.few_rows import FewRows, Uncommon, entries_of, nanoseconds_of, text_of
from penstock.telemetry.columns.rows import DecodedRows, RowSource
from penstock.telemetry.columns.schemas import LOGS, METRICS, OTLP, TRACES
from penstock.telemetry.otlp.metrics import NO_RECORDED_VALUE, TEMPORALITIES
from penstock.telemetry.otlp.traces import SPAN_KINDS, STATUS_CODES
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["short_rows"]

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
# In the order in which the decoder in bulk has them.
_METRIC_KINDS: Final = ("gauge", "sum", "histogram")


def short_rows(signal: Signal, requests: Sequence[Any], source: RowSource, limits: DecodeLimits) -> DecodedRows:
    """Rows of requests that are parsed; `Uncommon` where one holds anything out of the ordinary."""
    return DecodedRows(_READERS[signal](requests, source, limits))


def _metric_rows(requests: Sequence[Any], source: RowSource, limits: DecodeLimits) -> Any:
    metrics: dict[str, list[tuple[Any, _Source]]] = {kind: [] for kind in _METRIC_KINDS}
    for scoped, origin in _scopes(requests, "resource_metrics", "scope_metrics", limits):
        for metric in scoped.metrics:
            kind = metric.WhichOneof("data")
            if kind is None:
                continue
            if kind not in metrics or not metric.name:
                raise Uncommon
            metrics[kind].append((metric, origin))
    rows, count = FewRows(), 0
    for kind, found in metrics.items():
        for metric, origin in found:
            count += _add_points(rows, kind, metric, origin, limits)
    return rows.assembled(METRICS, _some(count), source)


def _add_points(rows: FewRows, kind: str, metric: Any, origin: _Source, limits: DecodeLimits) -> int:
    data = getattr(metric, kind)
    points = data.data_points
    temporality = None
    if kind != "gauge":
        number = data.aggregation_temporality
        if number not in (1, 2):
            raise Uncommon
        temporality = TEMPORALITIES[number]
    times, starts, flags = rows.column("time"), rows.column("start_time"), rows.column("flags")
    labels = rows.maps("labels", "label_types")
    for point in points:
        times.append(nanoseconds_of(point.time_unix_nano))
        starts.append(nanoseconds_of(point.start_time_unix_nano))
        if point.flags > _INT32_MAX or point.exemplars:
            raise Uncommon
        flags.append(point.flags)
        labels.add(entries_of(point.attributes, limits))
    if kind == "histogram":
        _add_histograms(rows, points)
    else:
        _add_numbers(rows, points)
    count = len(points)
    rows.repeat(
        count,
        metric=metric.name,
        type=kind,
        convention=OTLP,
        unit=metric.unit or None,
        description=metric.description or None,
        temporality=temporality,
        monotonic=data.is_monotonic if kind == "sum" else None,
    )
    origin.repeat(rows, count)
    return count


def _add_numbers(rows: FewRows, points: Any) -> None:
    values, ints = rows.column("value"), rows.column("int_value")
    for point in points:
        kind = point.WhichOneof("value")
        if kind == "as_double":
            values.append(point.as_double)
            ints.append(None)
        elif kind == "as_int":
            values.append(float(point.as_int))
            ints.append(point.as_int)
        elif point.flags & NO_RECORDED_VALUE:
            values.append(None)
            ints.append(None)
        else:
            raise Uncommon
    rows.repeat(len(points), count=None, sum=None, min=None, max=None, bounds=None, counts=None)


def _add_histograms(rows: FewRows, points: Any) -> None:
    for point in points:
        bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
        if len(counts) != len(bounds) + 1 and (counts or bounds):
            raise Uncommon
        if max(point.count, *counts, 0) > _INT64_MAX or not _rise(bounds):
            raise Uncommon
        rows.repeat(1, count=point.count, bounds=bounds, counts=counts)
        for name in ("sum", "min", "max"):
            rows.column(name).append(getattr(point, name) if point.HasField(name) else None)
    rows.repeat(len(points), value=None, int_value=None)


def _rise(bounds: Sequence[float]) -> bool:
    """A bound that is no number is in no order, also where it is the only one."""
    return all(one < other for one, other in pairwise(bounds)) and not any(isnan(one) for one in bounds[:1])


def _log_rows(requests: Sequence[Any], source: RowSource, limits: DecodeLimits) -> Any:
    rows, count = FewRows(), 0
    attributes = rows.maps("attributes", "attribute_types")
    for scoped, origin in _scopes(requests, "resource_logs", "scope_logs", limits):
        for record in scoped.log_records:
            time, observed = nanoseconds_of(record.time_unix_nano), nanoseconds_of(record.observed_time_unix_nano)
            body, kind = text_of(record.body)
            attributes.add(entries_of(record.attributes, limits))
            rows.repeat(
                1,
                time=time or observed,
                observed_time=observed,
                severity=record.severity_number,
                severity_text=record.severity_text or None,
                body=body,
                body_type=kind,
                event_name=record.event_name or None,
                trace_id=_hex(record.trace_id, 16),
                span_id=_hex(record.span_id, 8),
                flags=record.flags,
                dropped_attributes=record.dropped_attributes_count,
            )
        origin.repeat(rows, len(scoped.log_records))
        count += len(scoped.log_records)
    return rows.assembled(LOGS, _some(count), source)


def _span_rows(requests: Sequence[Any], source: RowSource, limits: DecodeLimits) -> Any:
    rows, count = FewRows(), 0
    attributes = rows.maps("attributes", "attribute_types")
    for scoped, origin in _scopes(requests, "resource_spans", "scope_spans", limits):
        for span in scoped.spans:
            if span.events or span.links:
                raise Uncommon
            start, end = nanoseconds_of(span.start_time_unix_nano), nanoseconds_of(span.end_time_unix_nano)
            attributes.add(entries_of(span.attributes, limits))
            rows.repeat(
                1,
                time=start,
                end_time=end,
                duration_ns=end - start if start and end else None,
                trace_id=_required(_hex(span.trace_id, 16)),
                span_id=_required(_hex(span.span_id, 8)),
                parent_span_id=_hex(span.parent_span_id, 8),
                trace_state=span.trace_state or None,
                name=span.name,
                kind=_named(span.kind, SPAN_KINDS),
                status=_named(span.status.code, STATUS_CODES),
                status_message=span.status.message or None,
                flags=span.flags,
                dropped_attributes=span.dropped_attributes_count,
            )
        origin.repeat(rows, len(scoped.spans))
        count += len(scoped.spans)
    return rows.assembled(TRACES, _some(count), source)


_READERS: Final[dict[Signal, Callable[[Sequence[Any], RowSource, DecodeLimits], Any]]] = {
    Signal.METRICS: _metric_rows,
    Signal.LOGS: _log_rows,
    Signal.TRACES: _span_rows,
}


class _Source:
    """A resource and a scope within it."""

    def __init__(self, resource: Any, scope: Any, limits: DecodeLimits) -> None:
        self._resource, self._scope = resource, entries_of(scope.attributes, limits)
        self._name, self._version = scope.name or None, scope.version or None

    def repeat(self, rows: FewRows, count: int) -> None:
        rows.maps("resource", "resource_types").add(self._resource, count)
        rows.maps("scope_attributes", "scope_attribute_types").add(self._scope, count)
        rows.repeat(count, scope=self._name, scope_version=self._version)


def _scopes(requests: Sequence[Any], outer: str, inner: str, limits: DecodeLimits) -> Iterator[tuple[Any, _Source]]:
    for request in requests:
        for found in getattr(request, outer):
            resource = entries_of(found.resource.attributes, limits)
            for scoped in getattr(found, inner):
                yield scoped, _Source(resource, scoped.scope, limits)


def _some(count: int) -> int:
    if not count:
        raise Uncommon
    return count


def _hex(identity: bytes, size: int) -> str | None:
    """Lower-case hexadecimal; none where it is empty or zero."""
    if not identity:
        return None
    if len(identity) != size:
        raise Uncommon
    return identity.hex() if any(identity) else None


def _required(identity: str | None) -> str:
    if identity is None:
        raise Uncommon
    return identity


def _named(number: int, known: tuple[str, ...]) -> str:
    return known[number] if 0 <= number < len(known) else known[0]
