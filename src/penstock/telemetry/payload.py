"""Telemetry in the queue: batches of Arrow streams, each of which names its table, behind the envelope of Arrow records.

The same form that a relay gives to what it takes from a quiver, so one reader serves both. OTLP requests as they came
are read too: the envelope says which they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.records import ArrowEnvelope, Signal, TelemetryEnvelope
from penstock.telemetry.arrow.stream import encode_arrow, read_arrow
from penstock.telemetry.columns.rows import RowSource
from penstock.telemetry.columns.schemas import SCHEMAS, TABLES, signal_of
from penstock.telemetry.otlp.decode import decode_otlp
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["decode_records", "encode_records", "narrowed", "whole_table"]

# In the metadata of a stream's schema: the slot of a bundle, which is the name of the table.
_SLOT: Final = b"penstock.slot"
_OTLP_SLOTS: Final = {f"otlp_{name}": signal for signal, name in TABLES.items()}
_OTLP_COLUMN: Final = "request"
# Telemetry that is in the queue was within bounds when it came; this one is for bytes that were damaged since. Columns
# are bounded by their bytes alone: rows of many requests lie together here, under whatever bounds they came.
_STORED: Final = DecodeLimits(
    request_bytes_max=1 << 30, unpacked_bytes_max=4 << 30, rows_max=1 << 26, columns_max=1 << 24, cells_max=1 << 40
)


# Of samples of remote write, and of gauges and sums of OTLP.
_SAMPLES: Final = ("tenant", "time", "metric", "type", "convention", "labels", "value")
_NUMBERS: Final = (
    *_SAMPLES,
    "unit",
    "description",
    "temporality",
    "monotonic",
    "start_time",
    "label_types",
    "resource",
    "resource_types",
    "scope",
    "scope_version",
    "scope_attributes",
    "scope_attribute_types",
    "int_value",
    "flags",
)
_NARROW: Final = {Signal.METRICS: (_SAMPLES, _NUMBERS)}


def encode_records(tables: Mapping[str, pa.Table | pa.RecordBatch]) -> tuple[list[bytes], bytes]:
    """The records of a batch, a stream a table, and the envelope that goes before them as metadata."""
    if not tables:
        raise InvalidInput("there is nothing to send", "a batch has at least one table")
    if "" in tables:
        # Whoever reads the batch could not tell whose rows these are, and would stop there.
        raise InvalidInput("a table has no name", "its rows could not be queried", "name it")
    signals = {signal_of(name) for name in tables}
    signal = next(iter(signals)) if len(signals) == 1 else None
    return [encode_arrow(table, {_SLOT: name.encode()}) for name, table in tables.items()], ArrowEnvelope(
        signal
    ).encode()


def decode_records(
    records: Sequence[Any],
    envelope: bytes,
    received_ns: int,
    limits: DecodeLimits = _STORED,
    *,
    leaves_out_empty: bool = False,
) -> dict[str, list[pa.Table]]:
    """Tables by name; those of signals whole, or if asked without columns that are null in every row. `Corrupt` for records that are not what the envelope says, `Unsupported` for another envelope."""
    try:
        return _decoded(records, envelope, RowSource("", received_ns), limits, leaves_out_empty)
    except InvalidInput as error:
        raise Corrupt("a batch of telemetry cannot be read", str(error)) from error


def _decoded(
    records: Sequence[Any], envelope: bytes, source: RowSource, limits: DecodeLimits, leaves_out_empty: bool
) -> dict[str, list[pa.Table]]:
    found: dict[str, list[pa.Table]] = {}
    for signal, record in ((_otlp_signal(envelope), bytes(record)) for record in records):
        if signal is not None:
            _add(found, TABLES[signal], _otlp_table(signal, record, source, limits))
            continue
        table = read_arrow(record, limits, optional=_signal_columns if leaves_out_empty else None)
        metadata = dict(table.schema.metadata or {})
        slot = metadata.pop(_SLOT, b"").decode(errors="replace")
        if slot in _OTLP_SLOTS:
            for request in _requests(table, slot):
                _add(found, TABLES[_OTLP_SLOTS[slot]], _otlp_table(_OTLP_SLOTS[slot], request, source, limits))
        elif slot:
            table = table.replace_schema_metadata(metadata or None)
            _add(found, slot, table if leaves_out_empty else whole_table(table, slot))
        else:
            raise InvalidInput("an Arrow stream does not say which table it is for", "penstock.slot is missing")
    return found


def whole_table(table: pa.Table, name: str) -> pa.Table:
    """A table with all columns of its signal in schema order, followed by others; a table of your own unchanged."""
    signal = signal_of(name)
    if signal is None:
        return table
    fields: list[Any] = list(table.schema)
    columns: list[Any] = list(table.columns)
    have = set(table.schema.names)
    for place, field in enumerate(SCHEMAS[signal]):
        if field.name not in have and field.nullable:
            fields.insert(place, field)
            columns.insert(place, pa.nulls(table.num_rows, field.type))
    metadata: Any = table.schema.metadata
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata))


def narrowed(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Rows as they are stored at the edge: without the columns that samples and numbers never have, where all are null.

    A column of nulls takes as many bytes as one of values, and most rows of metrics have values in seven columns of 37.
    There are few such sets of columns, whatever is sent: rows of one set are stored together. `whole_table` gives the
    columns back.
    """
    signal = signal_of(name)
    if signal is None or not batch.schema.equals(SCHEMAS[signal]):
        return batch
    full = {at for at, column in enumerate(batch.columns) if column.null_count < batch.num_rows}
    for schema, places in _narrow_schemas(signal):
        if full <= set(places):
            return pa.RecordBatch.from_arrays([batch.column(at) for at in places], schema=schema)
    return batch


@lru_cache(maxsize=len(TABLES))
def _narrow_schemas(signal: Signal) -> list[tuple[pa.Schema, list[int]]]:
    """The sets of columns, fewest first, and where these are among all."""
    whole = SCHEMAS[signal]
    metadata: Any = whole.metadata
    places = [[whole.get_field_index(one) for one in names] for names in _NARROW.get(signal, ())]
    return [(pa.schema([whole.field(at) for at in sorted(chosen)], metadata), sorted(chosen)) for chosen in places]


def _signal_columns(schema: pa.Schema) -> list[str]:
    """Columns that need not be read where they hold nothing: everybody knows that they are there."""
    signal = signal_of((schema.metadata or {}).get(_SLOT, b"").decode(errors="replace"))
    return [] if signal is None else SCHEMAS[signal].names


def _otlp_signal(envelope: bytes) -> Signal | None:
    """The signal of OTLP requests; None for Arrow streams."""
    try:
        return TelemetryEnvelope.decode(envelope).signal
    except Unsupported:
        ArrowEnvelope.decode(envelope[: ArrowEnvelope.SIZE])
        return None


def _requests(table: pa.Table, slot: str) -> list[bytes]:
    if _OTLP_COLUMN not in table.schema.names or not pa.types.is_binary(table.schema.field(_OTLP_COLUMN).type):
        raise InvalidInput(f"slot {slot!r} has no binary column {_OTLP_COLUMN!r}")
    return [one for one in table.column(_OTLP_COLUMN).to_pylist() if one is not None]


def _otlp_table(signal: Signal, request: bytes, source: RowSource, limits: DecodeLimits) -> pa.Table:
    return pa.Table.from_batches([decode_otlp(signal, request, source, limits).batch])


def _add(found: dict[str, list[pa.Table]], name: str, table: pa.Table) -> None:
    found.setdefault(name, []).append(table)
