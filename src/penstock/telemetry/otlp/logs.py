"""Log records of OTLP as rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.telemetry.columns.attributes import any_values, attribute_columns
from penstock.telemetry.columns.building import field, hex_ids, nanoseconds, pc
from penstock.telemetry.columns.rows import DecodedRows, RowSource, accepted, assembled, text_or_null
from penstock.telemetry.columns.schemas import LOGS
from penstock.telemetry.otlp.source import open_request
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["log_rows"]


def log_rows(request: pa.RecordBatch, source: RowSource, limits: DecodeLimits) -> DecodedRows:
    """All records of a request. One without a time has the time at which it was observed, or else received."""
    found = open_request(request, "resource_logs", "scope_logs", "log_records", limits)
    records = found.items
    times, no_time = nanoseconds(field(records, "time_unix_nano"))
    observed, no_observed = nanoseconds(field(records, "observed_time_unix_nano"))
    trace_ids, bad_trace = hex_ids(field(records, "trace_id"), 16)
    span_ids, bad_span = hex_ids(field(records, "span_id"), 8)
    body, body_kinds = any_values(field(records, "body"), limits)
    attributes = attribute_columns(field(records, "attributes"), limits)
    rows = len(records)
    columns = {
        "time": pc.coalesce(times, observed),
        "observed_time": observed,
        "severity": field(records, "severity_number"),
        "severity_text": text_or_null(field(records, "severity_text")),
        "body": body,
        "body_type": pa.array(body_kinds, pa.int8()),
        "event_name": text_or_null(field(records, "event_name")),
        "trace_id": trace_ids,
        "span_id": span_ids,
        "flags": field(records, "flags").cast(pa.int64()),
        "attributes": attributes.map(),
        "attribute_types": attributes.types(),
        "dropped_attributes": field(records, "dropped_attributes_count").cast(pa.int64()),
        **found.columns(np.arange(rows)),
    }
    return accepted(
        assembled(LOGS, columns, rows, source),
        [
            (no_time | no_observed, "records have a time beyond the year 2262"),
            (bad_trace, "records have a trace id that is not 16 bytes long"),
            (bad_span, "records have a span id that is not 8 bytes long"),
        ],
    )
