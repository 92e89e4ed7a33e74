"""Lines of JSON as rows of a table: one object a line, columns and types found in the data.

Whole numbers become int64, others double; texts that are all ISO 8601 times become moments in nanoseconds. A column whose rows
disagree is refused with the column named, never cast. Each line is read twice, first by a parser with a bound on
nesting, because the one that makes columns has none.
"""

from __future__ import annotations

import io
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import json as arrow_json

from penstock.errors import InvalidInput
from penstock.records import Signal
from penstock.telemetry.arrow.json_columns import moments, signal_columns
from penstock.telemetry.arrow.stream import conform, with_tenant
from penstock.telemetry.columns.rows import DecodedRows, RowSource, one_batch
from penstock.telemetry.columns.schemas import SCHEMAS
from penstock.telemetry.wire.limits import DecodeLimits
from penstock.undecodable import UNDECODABLE

__all__ = ["decode_json_lines"]

_LIMITS: Final = DecodeLimits()
_DEPTH_MAX: Final = 64
_BLOCK_BYTES_MIN: Final = 1 << 16


def decode_json_lines(
    body: bytes, source: RowSource, signal: Signal | None = None, limits: DecodeLimits = _LIMITS
) -> DecodedRows:
    """Rows of a table of your own, or of a signal with the types of its columns, as far as JSON allows.

    In a signal's table an object of texts is a map, and a whole number may stand where a double belongs.
    """
    limits.check_unpacked(len(body))
    lines = [line for line in body.split(b"\n") if line.strip()]
    if not lines:
        raise InvalidInput("there are no rows", "the body has no line", "send one JSON object on each line")
    limits.check_rows(len(lines))
    names: set[str] = set()
    for number, line in enumerate(lines, 1):
        # Before anything is made of them: lines that share no names make a table of mostly nothing.
        names |= _check_line(number, line)
        limits.check_columns(len(names), len(lines))
    options = arrow_json.ReadOptions(use_threads=False, block_size=max(_BLOCK_BYTES_MIN, len(body) + 1))
    parsing = arrow_json.ParseOptions(newlines_in_values=False)
    try:
        table = arrow_json.read_json(io.BytesIO(b"\n".join(lines) + b"\n"), options, parsing)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
        raise InvalidInput("the rows cannot be kept", str(error)[:300], "give each column one type") from error
    if table.num_rows != len(lines):
        raise InvalidInput("the rows cannot be read", f"{len(lines)} lines gave {table.num_rows} rows")
    if not table.num_columns:
        raise InvalidInput("the rows have no columns", "every object is empty")
    table = moments(table)
    if signal is None:
        return DecodedRows(one_batch(with_tenant(_without_empty_objects(table), source.tenant)))
    return DecodedRows(conform(one_batch(signal_columns(table, SCHEMAS[signal])), signal, source))


def _without_empty_objects(table: pa.Table) -> pa.Table:
    """A column of objects that have no fields in any row says nothing, and Parquet cannot hold it: it is null."""
    for place, field in enumerate(table.schema):
        if pa.types.is_struct(field.type) and field.type.num_fields == 0:
            nothing: Any = pa.nulls(table.num_rows)
            table = table.set_column(place, field.name, nothing)
    return table


def _check_line(number: int, line: bytes) -> set[str]:
    """One object, nested no deeper than a person writes; all names in it, however deep."""
    try:
        found = msgspec.json.decode(line)
    except UNDECODABLE as error:
        raise InvalidInput(f"line {number} is not JSON", str(error)[:200]) from error
    if not isinstance(found, dict):
        raise InvalidInput(f"line {number} is not an object", f"it is a {type(found).__name__}")
    level, here, names = 0, list[object]([found]), set[str]()
    while here:
        level += 1
        if level > _DEPTH_MAX:
            raise InvalidInput(f"line {number} is nested too deeply", f"the bound is {_DEPTH_MAX} levels")
        names.update(*[one for one in here if isinstance(one, dict)])
        here = [
            inner
            for one in here
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
    return names
