"""Arrow IPC as it comes from a client, and as telemetry travels: streams, packed with zstd.

A stream of a signal must have that signal's columns, each of the type in its schema; columns may be missing, and
are null then. A stream for a table of your own may have any columns. Nothing is cast in silence.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Final

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.records import Signal
from penstock.telemetry.arrow.ipc_bounds import empty_columns, unpacked_size
from penstock.telemetry.columns.building import constant
from penstock.telemetry.columns.rows import DecodedRows, RowSource, assembled, one_batch
from penstock.telemetry.columns.schemas import SCHEMAS, TABLES, TENANT
from penstock.telemetry.columns.storable import check_storable, rows_with_repeated_keys
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["conform", "decode_arrow", "encode_arrow", "read_arrow", "with_tenant"]

_LIMITS: Final = DecodeLimits()
_FILE_MAGIC: Final = b"ARROW1"


def decode_arrow(
    body: bytes, source: RowSource, signal: Signal | None = None, limits: DecodeLimits = _LIMITS
) -> DecodedRows:
    """A stream of one signal, or of a table of your own, with the tenant set to the sender's."""
    table = read_arrow(body, limits)
    if signal is None:
        return DecodedRows(one_batch(with_tenant(table, source.tenant)))
    return DecodedRows(conform(one_batch(table), signal, source))


def read_arrow(
    body: bytes, limits: DecodeLimits = _LIMITS, *, optional: Callable[[pa.Schema], Collection[str]] | None = None
) -> pa.Table:
    """All rows of a stream, checked to the last offset; `InvalidInput` for anything else.

    Of the columns that `optional` names, those that the headers call null in every row are left out: unpacking nothing
    takes as long as unpacking something, and most columns of a signal are empty in most batches.
    """
    limits.check_request(len(body))
    if body[: len(_FILE_MAGIC)] == _FILE_MAGIC:
        raise InvalidInput("the body is an Arrow file", "a stream is expected", "write it with new_stream")
    limits.check_unpacked(unpacked_size(body))
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            names = set(optional(reader.schema)) if optional is not None else set()
            empty = empty_columns(body, reader.schema) if names else set()
            kept = [at for at, field in enumerate(reader.schema) if at not in empty or field.name not in names]
            table = reader.read_all() if len(kept) == len(reader.schema) else _columns(body, kept)
        table.validate(full=True)
    except (
        struct.error,
        pa.ArrowException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        MemoryError,
        OverflowError,
    ) as error:
        raise InvalidInput("the Arrow stream cannot be read", str(error)[:200]) from error
    limits.check_rows(table.num_rows)
    limits.check_columns(table.num_columns, table.num_rows)
    _check_names(table.schema)
    return table


def _columns(body: bytes, kept: list[int]) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(body), options=pa.ipc.IpcReadOptions(included_fields=kept)) as reader:
        return reader.read_all()


def encode_arrow(table: pa.Table | pa.RecordBatch, metadata: dict[bytes, bytes] | None = None) -> bytes:
    """A stream, packed with zstd."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if metadata:
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def conform(batch: pa.RecordBatch, signal: Signal, source: RowSource) -> pa.RecordBatch:
    """The batch with all columns of its signal; `InvalidInput` names a column that is unknown or of another type."""
    schema = SCHEMAS[signal]
    for field in batch.schema:
        index = schema.get_field_index(field.name)
        if index < 0:
            raise InvalidInput(
                f"column {field.name!r} is not one of {TABLES[signal]}", "", "send it to a table of your own"
            )
        if field.type != schema.field(index).type:
            raise InvalidInput(
                f"column {field.name!r} has type {field.type}",
                f"in {TABLES[signal]} it must be {schema.field(index).type}",
            )
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns.pop(TENANT, None)
    if "time" not in columns:
        raise InvalidInput(f"rows of {TABLES[signal]} have no column 'time'")
    found = assembled(schema, columns, batch.num_rows, source)
    for field in schema:
        if not field.nullable and found.column(field.name).null_count:
            raise InvalidInput(f"column {field.name!r} of {TABLES[signal]} has rows without a value")
        if rows_with_repeated_keys(found.column(field.name)).any():
            raise InvalidInput(f"column {field.name!r} of {TABLES[signal]} has a map with a duplicate key")
    return found


def with_tenant(table: pa.Table, tenant: str) -> pa.Table:
    """The table with its tenant as the first column, whatever a client wrote there.

    `InvalidInput` names a column that no table can have.
    """
    _check_names(table.schema)
    if TENANT in table.schema.names:
        table = table.drop_columns([TENANT])
    table = table.add_column(0, TENANT, [constant(tenant, pa.string(), table.num_rows)])
    check_storable(table)
    return table


def _check_names(schema: pa.Schema) -> None:
    names = schema.names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"column {twice!r} occurs twice")
    if "" in names:
        raise InvalidInput("a column has no name")
