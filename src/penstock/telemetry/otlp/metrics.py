"""Metrics of OTLP as rows: one data point a row, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.telemetry.columns.attributes import attribute_columns
from penstock.telemetry.columns.building import (
    constant,
    counts64,
    field,
    hex_ids,
    lists,
    nanoseconds,
    opened,
    pc,
    taken,
    to_ints,
    to_lists,
)
from penstock.telemetry.columns.rows import DecodedRows, RowSource, accepted, assembled, text_of_rows, together
from penstock.telemetry.columns.schemas import METRICS, OTLP
from penstock.telemetry.otlp.outline import opened_parts
from penstock.telemetry.otlp.source import OtlpItems, open_request
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["NO_RECORDED_VALUE", "TEMPORALITIES", "metric_rows"]

_Mask: TypeAlias = npt.NDArray[np.bool_]
_Columns: TypeAlias = dict[str, Any]
_Faults: TypeAlias = list[tuple[_Mask, str]]

TEMPORALITIES: Final = (None, "delta", "cumulative")
NO_RECORDED_VALUE: Final = 1


def metric_rows(request: pa.RecordBatch, source: RowSource, limits: DecodeLimits) -> DecodedRows:
    """All points of a request. Points that cannot be kept are counted and left out."""
    found = open_request(request, "resource_metrics", "scope_metrics", "metrics", limits)
    parts = [
        _points(found, kind, columns, source, limits)
        for kind, columns in _KINDS.items()
        if field(found.items, kind).null_count < len(found.items)
    ]
    limits.check_rows(sum(part.batch.num_rows for part in parts))
    return together(METRICS, parts)


def _points(found: OtlpItems, kind: str, columns_of: _Reader, source: RowSource, limits: DecodeLimits) -> DecodedRows:
    data, present = opened_parts(field(found.items, kind), _message(kind))
    points, data_of = opened(field(data, "data_points"))
    metric_of = data_of if present is None else present[data_of]
    limits.check_rows(len(points))
    names = field(found.items, "name")
    times, no_time = nanoseconds(field(points, "time_unix_nano"))
    starts, no_start = nanoseconds(field(points, "start_time_unix_nano"))
    flags = np.asarray(field(points, "flags")).view(np.int32)
    labels = attribute_columns(field(points, "attributes"), limits)
    columns: _Columns = {
        "time": times,
        "start_time": starts,
        "metric": taken(names, metric_of),
        "type": constant(kind, pa.string(), len(points)),
        "convention": constant(OTLP, pa.string(), len(points)),
        "unit": text_of_rows(field(found.items, "unit"), metric_of),
        "description": text_of_rows(field(found.items, "description"), metric_of),
        "labels": labels.map(),
        "label_types": labels.types(),
        "flags": pa.array(flags),
        **found.columns(metric_of),
    }
    faults: _Faults = [
        (np.asarray(pc.equal(names, ""))[metric_of], "points have a metric without a name"),
        (no_time | no_start, "points have a time beyond the year 2262"),
    ]
    if kind in ("sum", "histogram", "exponential_histogram"):
        numbers = to_ints(taken(field(data, "aggregation_temporality"), data_of))
        known = (numbers == 1) | (numbers == 2)
        columns["temporality"] = taken(pa.array(TEMPORALITIES, pa.string()), np.where(known, numbers, 0))
        faults.append((~known, f"points of a {kind} say neither cumulative nor delta"))
    if kind == "sum":
        columns["monotonic"] = taken(field(data, "is_monotonic"), data_of)
    recorded = (flags & NO_RECORDED_VALUE) == 0
    more, more_faults = columns_of(points, recorded)
    columns |= more
    if kind != "summary":
        columns["exemplars"] = _exemplars(field(points, "exemplars"), limits)
    return accepted(assembled(METRICS, columns, len(points), source), faults + more_faults)


_Reader: TypeAlias = Callable[[Any, _Mask], tuple[_Columns, _Faults]]


def _numbers(points: Any, recorded: _Mask) -> tuple[_Columns, _Faults]:
    value, ints = field(points, "as_double"), field(points, "as_int")
    if ints.null_count < len(ints):
        value = pc.coalesce(value, ints.cast(pa.float64(), safe=False))
    missing = np.asarray(value.is_null()) & recorded
    return {"value": value, "int_value": ints}, [(missing, "points have no value")]


def _histograms(points: Any, recorded: _Mask) -> tuple[_Columns, _Faults]:
    count, too_many = counts64(field(points, "count"))
    counts, too_large = _count_lists(field(points, "bucket_counts"))
    bounds = field(points, "explicit_bounds")
    buckets, edges = (to_ints(pc.list_value_length(one)) for one in (counts, bounds))
    uneven = (buckets != 0) & (buckets != edges + 1) | (buckets == 0) & (edges != 0)
    columns = {"count": count, "counts": counts, "bounds": bounds, **_extent(points)}
    return columns, [
        (too_many | too_large, "histograms have a count over 2^63"),
        (uneven, "histograms do not have one bucket more than bounds"),
        (_unsorted(bounds), "histograms have bounds that do not rise"),
    ]


def _exponential_histograms(points: Any, recorded: _Mask) -> tuple[_Columns, _Faults]:
    count, too_many = counts64(field(points, "count"))
    zeros, too_many_zeros = counts64(field(points, "zero_count"))
    columns: _Columns = {
        "count": count,
        "zero_count": zeros,
        "scale": field(points, "scale"),
        "zero_threshold": field(points, "zero_threshold"),
        **_extent(points),
    }
    too_large = too_many | too_many_zeros
    for side in ("positive", "negative"):
        columns[f"{side}_offset"] = field(points, side, "offset")
        columns[f"{side}_counts"], over = _count_lists(field(points, side, "bucket_counts"))
        too_large = too_large | over
    return columns, [(too_large, "histograms have a count over 2^63")]


def _summaries(points: Any, recorded: _Mask) -> tuple[_Columns, _Faults]:
    count, too_many = counts64(field(points, "count"))
    columns = {"count": count, "sum": field(points, "sum"), "quantiles": field(points, "quantile_values")}
    return columns, [(too_many, "summaries have a count over 2^63")]


_KINDS: Final[dict[str, _Reader]] = {
    "gauge": _numbers,
    "sum": _numbers,
    "histogram": _histograms,
    "exponential_histogram": _exponential_histograms,
    "summary": _summaries,
}


_MESSAGES: Final = {
    "gauge": "Gauge",
    "sum": "Sum",
    "histogram": "Histogram",
    "exponential_histogram": "ExponentialHistogram",
    "summary": "Summary",
    "exemplar": "Exemplar",
}


def _message(part: str) -> Any:
    """The class of a part of a metric."""
    from opentelemetry.proto.metrics.v1 import metrics_pb2

    return getattr(metrics_pb2, _MESSAGES[part])


def _extent(points: Any) -> _Columns:
    return {name: field(points, name) for name in ("sum", "min", "max")}


def _count_lists(array: Any) -> tuple[Any, _Mask]:
    """Lists of counts as signed numbers, null where the list was, and in which rows one is too large."""
    items, offsets = lists(array)
    numbers, too_large = counts64(items)
    rows = np.repeat(np.arange(len(array)), np.diff(offsets))
    over = np.bincount(rows[too_large], minlength=len(array)) > 0 if too_large.any() else np.zeros(len(array), np.bool_)
    found = to_lists(numbers, offsets)
    return (pc.if_else(array.is_valid(), found, pa.scalar(None, found.type)) if array.null_count else found), over


def _unsorted(bounds: Any) -> _Mask:
    """Rows in which a bound is not above the one before."""
    items, offsets = lists(bounds)
    rows = np.repeat(np.arange(len(bounds)), np.diff(offsets))
    values = np.asarray(items.to_numpy(zero_copy_only=False), dtype=np.float64)
    falls = ~(values[1:] > values[:-1]) & (rows[1:] == rows[:-1])
    # A bound that is no number is in no order.
    bad = np.append(falls, False) | np.isnan(values) if len(values) else np.zeros(0, np.bool_)
    return np.bincount(rows[bad], minlength=len(bounds)) > 0


def _exemplars(array: Any, limits: DecodeLimits) -> Any:
    """Exemplars with an identity of the wrong size keep the rest; they are hints, and not worth a point."""
    kind = METRICS.field("exemplars").type
    items, offsets = lists(array)
    if len(items) == 0:
        return constant(None, kind, len(array))
    items, _ = opened_parts(items, _message("exemplar"))
    times, _ = nanoseconds(field(items, "time_unix_nano"))
    ints = field(items, "as_int")
    found = attribute_columns(field(items, "filtered_attributes"), limits)
    columns = {
        "time": times,
        "value": pc.coalesce(field(items, "as_double"), ints.cast(pa.float64(), safe=False)),
        "int_value": ints,
        "trace_id": hex_ids(field(items, "trace_id"), 16)[0],
        "span_id": hex_ids(field(items, "span_id"), 8)[0],
        "attributes": found.map(),
        "attribute_types": found.types(),
    }
    structs = pa.StructArray.from_arrays(list(columns.values()), list(columns))
    return to_lists(structs, offsets)
