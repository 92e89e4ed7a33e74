"""The Arrow schemas of metrics, logs and traces, version 1, and the names every table shares. Format: docs/format/telemetry.md.

A row is a data point, a log record or a span. `time` is what rows are partitioned and sorted by in every table, and
`tenant` says whose they are. Attributes are maps of strings; the column named `…_types` beside a map says, entry by
entry, what each value was before it became a string, so that nothing is lost on the way back to OTLP.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import pyarrow as pa

from penstock.errors import Unsupported
from penstock.records import Signal

__all__ = [
    "LOGS",
    "METRICS",
    "NANOSECONDS",
    "OTLP",
    "PROMETHEUS",
    "SCHEMAS",
    "TABLES",
    "TENANT",
    "TIME",
    "TRACES",
    "VERSION",
    "ValueKind",
    "query_schema",
    "schema_of",
    "signal_of",
]

VERSION: Final = 1
TENANT: Final = "tenant"
TIME: Final = "time"
# Whose names a metric and its labels have.
OTLP: Final = "otlp"
PROMETHEUS: Final = "prometheus"
NANOSECONDS: Final = pa.timestamp("ns", tz="UTC")

_STRINGS: Final = pa.map_(pa.string(), pa.string())
_KINDS: Final = pa.list_(pa.int8())
_COUNTS: Final = pa.list_(pa.int64())


class ValueKind(IntEnum):
    """What an attribute's value was before it became a string."""

    STRING = 0
    BOOL = 1
    INT = 2
    DOUBLE = 3
    # In base 64.
    BYTES = 4
    # An array or a list of keys and values, as JSON.
    JSON = 5
    EMPTY = 6


def _attributes(name: str, kinds: str) -> list[Any]:
    return [pa.field(name, _STRINGS), pa.field(kinds, _KINDS)]


def _source() -> list[Any]:
    """Where telemetry of all signals comes from: the resource and the instrumentation scope."""
    return [
        *_attributes("resource", "resource_types"),
        pa.field("scope", pa.string()),
        pa.field("scope_version", pa.string()),
        *_attributes("scope_attributes", "scope_attribute_types"),
    ]


def _versioned(signal: Signal, fields: list[Any]) -> pa.Schema:
    metadata: dict[bytes | str, bytes | str] = {
        "penstock.signal": signal.name.lower(),
        "penstock.version": str(VERSION),
    }
    shared: list[Any] = [pa.field(TENANT, pa.string()), pa.field(TIME, NANOSECONDS, nullable=False)]
    return pa.schema([*shared, *fields], metadata)


METRICS: Final = _versioned(
    Signal.METRICS,
    [
        pa.field("metric", pa.string(), nullable=False),
        # Of OTLP: gauge, sum, histogram, exponential_histogram, summary. Of Prometheus: counter, gauge, unknown, and
        # the kind of family that a sample is a part of.
        pa.field("type", pa.string(), nullable=False),
        # Whose names these are: otlp, still to be mapped to series, or prometheus, final as they stand.
        pa.field("convention", pa.string(), nullable=False),
        pa.field("unit", pa.string()),
        pa.field("description", pa.string()),
        # cumulative or delta; null where the type has none.
        pa.field("temporality", pa.string()),
        pa.field("monotonic", pa.bool_()),
        pa.field("start_time", NANOSECONDS),
        *_attributes("labels", "label_types"),
        *_source(),
        pa.field("value", pa.float64()),
        # Set beside `value` where the sender counts in whole numbers: a double holds them up to 2^53 only.
        pa.field("int_value", pa.int64()),
        # Bit 0: no value was recorded, the series ends here.
        pa.field("flags", pa.int32()),
        pa.field("count", pa.int64()),
        pa.field("sum", pa.float64()),
        pa.field("min", pa.float64()),
        pa.field("max", pa.float64()),
        pa.field("bounds", pa.list_(pa.float64())),
        pa.field("counts", _COUNTS),
        pa.field("scale", pa.int32()),
        pa.field("zero_count", pa.int64()),
        pa.field("zero_threshold", pa.float64()),
        pa.field("positive_offset", pa.int32()),
        pa.field("positive_counts", _COUNTS),
        pa.field("negative_offset", pa.int32()),
        pa.field("negative_counts", _COUNTS),
        pa.field("quantiles", pa.list_(pa.struct([("quantile", pa.float64()), ("value", pa.float64())]))),
        pa.field(
            "exemplars",
            pa.list_(
                pa.struct(
                    [
                        ("time", NANOSECONDS),
                        ("value", pa.float64()),
                        ("int_value", pa.int64()),
                        ("trace_id", pa.string()),
                        ("span_id", pa.string()),
                        ("attributes", _STRINGS),
                        ("attribute_types", _KINDS),
                    ]
                )
            ),
        ),
    ],
)

LOGS: Final = _versioned(
    Signal.LOGS,
    [
        pa.field("observed_time", NANOSECONDS),
        pa.field("severity", pa.int32()),
        pa.field("severity_text", pa.string()),
        pa.field("body", pa.string()),
        pa.field("body_type", pa.int8()),
        pa.field("event_name", pa.string()),
        pa.field("trace_id", pa.string()),
        pa.field("span_id", pa.string()),
        pa.field("flags", pa.int64()),
        *_attributes("attributes", "attribute_types"),
        pa.field("dropped_attributes", pa.int64()),
        *_source(),
    ],
)

TRACES: Final = _versioned(
    Signal.TRACES,
    [
        pa.field("end_time", NANOSECONDS),
        pa.field("duration_ns", pa.int64()),
        pa.field("trace_id", pa.string(), nullable=False),
        pa.field("span_id", pa.string(), nullable=False),
        pa.field("parent_span_id", pa.string()),
        pa.field("trace_state", pa.string()),
        pa.field("name", pa.string()),
        # unspecified, internal, server, client, producer, consumer
        pa.field("kind", pa.string()),
        # unset, ok, error
        pa.field("status", pa.string()),
        pa.field("status_message", pa.string()),
        pa.field("flags", pa.int64()),
        *_attributes("attributes", "attribute_types"),
        pa.field("dropped_attributes", pa.int64()),
        *_source(),
        pa.field(
            "events",
            pa.list_(
                pa.struct(
                    [
                        ("time", NANOSECONDS),
                        ("name", pa.string()),
                        ("attributes", _STRINGS),
                        ("attribute_types", _KINDS),
                    ]
                )
            ),
        ),
        pa.field(
            "links",
            pa.list_(
                pa.struct(
                    [
                        ("trace_id", pa.string()),
                        ("span_id", pa.string()),
                        ("trace_state", pa.string()),
                        ("attributes", _STRINGS),
                        ("attribute_types", _KINDS),
                    ]
                )
            ),
        ),
    ],
)

SCHEMAS: Final = {Signal.METRICS: METRICS, Signal.LOGS: LOGS, Signal.TRACES: TRACES}
_FROM_ONE_SENDER: Final = frozenset({"tenant", "scope", "scope_version"})
_REPEATED: Final = {
    Signal.METRICS: _FROM_ONE_SENDER | {"metric", "type", "convention", "unit", "description", "temporality"},
    Signal.LOGS: _FROM_ONE_SENDER | {"severity_text", "event_name"},
    Signal.TRACES: _FROM_ONE_SENDER | {"name", "kind", "status", "trace_state"},
}
# The table, and the slot of a bundle, that each signal goes to.
TABLES: Final = {signal: signal.name.lower() for signal in Signal}


def schema_of(signal: Signal, version: int = VERSION) -> pa.Schema:
    """The columns of a signal; `Unsupported` for a version of the future."""
    if version != VERSION:
        raise Unsupported(f"version {version} of the {TABLES[signal]} schema cannot be read", f"this is {VERSION}")
    return SCHEMAS[signal]


def query_schema(signal: Signal) -> pa.Schema:
    """The columns of a signal for engines of queries: text of which many rows have the same is of the type dictionary."""
    coded = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([one.with_type(coded) if one.name in _REPEATED[signal] else one for one in schema_of(signal)])


def signal_of(table: str) -> Signal | None:
    """The signal of a table's name; None for a table of your own."""
    return next((signal for signal, name in TABLES.items() if name == table), None)
