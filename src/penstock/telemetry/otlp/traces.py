"""Spans of OTLP as rows, with their events and links."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.telemetry.columns.attributes import attribute_columns
from penstock.telemetry.columns.building import field, hex_ids, lists, nanoseconds, pc, taken, to_ints, to_lists
from penstock.telemetry.columns.rows import DecodedRows, RowSource, accepted, assembled, text_or_null
from penstock.telemetry.columns.schemas import TRACES
from penstock.telemetry.otlp.source import open_request
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["SPAN_KINDS", "STATUS_CODES", "span_rows"]

SPAN_KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUS_CODES: Final = ("unset", "ok", "error")


def span_rows(request: pa.RecordBatch, source: RowSource, limits: DecodeLimits) -> DecodedRows:
    """All spans of a request. A span without the identities that OTLP requires is rejected."""
    found = open_request(request, "resource_spans", "scope_spans", "spans", limits)
    spans = found.items
    rows = len(spans)
    starts, no_start = nanoseconds(field(spans, "start_time_unix_nano"))
    ends, no_end = nanoseconds(field(spans, "end_time_unix_nano"))
    trace_ids, _ = hex_ids(field(spans, "trace_id"), 16)
    span_ids, _ = hex_ids(field(spans, "span_id"), 8)
    parents, bad_parent = hex_ids(field(spans, "parent_span_id"), 8)
    attributes = attribute_columns(field(spans, "attributes"), limits)
    no_trace, no_span = np.asarray(trace_ids.is_null()), np.asarray(span_ids.is_null())
    columns = {
        "time": starts,
        "end_time": ends,
        "duration_ns": pc.subtract(ends.cast(pa.int64()), starts.cast(pa.int64())),
        "trace_id": pc.fill_null(trace_ids, ""),
        "span_id": pc.fill_null(span_ids, ""),
        "parent_span_id": parents,
        "trace_state": text_or_null(field(spans, "trace_state")),
        "name": field(spans, "name"),
        "kind": _named(field(spans, "kind"), SPAN_KINDS),
        "status": _named(pc.fill_null(field(spans, "status", "code"), 0), STATUS_CODES),
        "status_message": text_or_null(field(spans, "status", "message")),
        "flags": field(spans, "flags").cast(pa.int64()),
        "attributes": attributes.map(),
        "attribute_types": attributes.types(),
        "dropped_attributes": field(spans, "dropped_attributes_count").cast(pa.int64()),
        "events": _events(field(spans, "events"), limits),
        "links": _links(field(spans, "links"), limits),
        **found.columns(np.arange(rows)),
    }
    return accepted(
        assembled(TRACES, columns, rows, source),
        [
            (no_start | no_end, "spans have a time beyond the year 2262"),
            (no_trace, "spans have no trace id of 16 bytes"),
            (no_span, "spans have no span id of 8 bytes"),
            (bad_parent, "spans have a parent id that is not 8 bytes long"),
        ],
    )


def _named(numbers: Any, known: tuple[str, ...]) -> Any:
    """An enumeration by name; numbers of a later release of OTLP count as the first."""
    codes = to_ints(numbers)
    return taken(pa.array(known), np.where((codes >= 0) & (codes < len(known)), codes, 0))


def _events(array: Any, limits: DecodeLimits) -> Any:
    items, offsets = lists(array)
    if len(items) == 0:
        return pa.nulls(len(array), TRACES.field("events").type)
    limits.check_rows(len(items))
    found = attribute_columns(field(items, "attributes"), limits)
    times, _ = nanoseconds(field(items, "time_unix_nano"))
    columns = [times, field(items, "name"), found.map(), found.types()]
    return to_lists(pa.StructArray.from_arrays(columns, ["time", "name", "attributes", "attribute_types"]), offsets)


def _links(array: Any, limits: DecodeLimits) -> Any:
    items, offsets = lists(array)
    if len(items) == 0:
        return pa.nulls(len(array), TRACES.field("links").type)
    limits.check_rows(len(items))
    found = attribute_columns(field(items, "attributes"), limits)
    columns = [
        hex_ids(field(items, "trace_id"), 16)[0],
        hex_ids(field(items, "span_id"), 8)[0],
        text_or_null(field(items, "trace_state")),
        found.map(),
        found.types(),
    ]
    names = ["trace_id", "span_id", "trace_state", "attributes", "attribute_types"]
    return to_lists(pa.StructArray.from_arrays(columns, names), offsets)
