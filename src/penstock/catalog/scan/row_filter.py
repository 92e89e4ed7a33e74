"""Predicates and times as a filter of rows, with exactly the meaning that planning gives them.

Nulls match no comparison; NaN is greater than every number, as DuckDB and Spark order it; integers and floats are
compared exactly. A column that a table does not have is null in every row.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from math import ceil, floor, isinf, isnan
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from penstock.catalog.change.predicate import Predicate
from penstock.errors import InvalidInput

__all__ = ["NOTHING", "conjunction", "moment", "row_filter", "time_filter"]

NOTHING: Final[pc.Expression] = pc.scalar(False)
_EVERYTHING: Final[pc.Expression] = pc.scalar(True)
_UNITS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_INT64: Final = (-(2**63), 2**63 - 1)
_FLOAT_MAX: Final = sys.float_info.max


def row_filter(schema: pa.Schema, predicates: Sequence[Predicate]) -> pc.Expression | None:
    """A filter for the rows that match all predicates; None without predicates."""
    return conjunction([_one(schema, each) for each in predicates])


def time_filter(schema: pa.Schema, column: str, start: int | None, end: int | None) -> pc.Expression | None:
    """Times in `[start, end)`, in nanoseconds, of a column that is a timestamp or counts nanoseconds."""
    if start is None and end is None:
        return None
    if column not in schema.names:
        raise InvalidInput(
            f"rows cannot be chosen by time: there is no column {column!r}",
            f"the files have {', '.join(schema.names[:20])}",
            "name the column with time_column, or leave start and end out",
        )
    bounds = [] if start is None else [Predicate(column, ">=", start)]
    return row_filter(schema, [*bounds, *([] if end is None else [Predicate(column, "<", end)])])


def conjunction(parts: Sequence[pc.Expression | None]) -> pc.Expression | None:
    found = [part for part in parts if part is not None]
    return reduce(lambda one, other: one & other, found) if found else None


def moment(kind: Any, nanoseconds: int) -> pa.Scalar[Any]:
    """A time as a value of a timestamp column, rounded down."""
    found: pa.Scalar[Any] = pa.scalar(nanoseconds // _UNITS[kind.unit], kind)
    return found


def _one(schema: pa.Schema, predicate: Predicate) -> pc.Expression:
    op = predicate.op
    if predicate.column not in schema.names:
        return _EVERYTHING if op == "is_null" else NOTHING
    column: Any = pc.field(predicate.column)
    kind = _plain(schema.field(predicate.column).type)
    found: pc.Expression
    if op in ("is_null", "is_not_null"):
        found = column.is_null() if op == "is_null" else column.is_valid()
        return found
    if op == "in":
        values = [_compared(column, kind, "=", value, predicate) for value in predicate.value]
        return reduce(lambda one, other: one | other, values) if values else NOTHING
    if op == "starts_with":
        if not _is_text(kind):
            raise _mismatch(predicate, kind)
        found = pc.starts_with(column, predicate.value)
        return found
    return _compared(column, kind, op, predicate.value, predicate)


def _compared(column: pc.Expression, kind: pa.DataType, op: str, value: Any, asked: Predicate) -> pc.Expression:
    if pat.is_timestamp(kind) and isinstance(value, int) and not isinstance(value, bool):
        return _counted(column, kind, op, value, _UNITS[kind.unit])
    if pat.is_boolean(kind) and isinstance(value, bool):
        return _plainly(column, op, pa.scalar(value))
    if _is_text(kind) and isinstance(value, str):
        return _plainly(column, op, pa.scalar(value, kind))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _mismatch(asked, kind)
    if pat.is_integer(kind):
        return _integer(column, kind, op, value)
    if pat.is_floating(kind):
        return _float(column, kind, op, value)
    raise _mismatch(asked, kind)


def _plainly(column: Any, op: str, value: Any) -> pc.Expression:
    found: pc.Expression
    match op:
        case "=":
            found = column == value
        case "!=":
            found = column != value
        case "<":
            found = column < value
        case "<=":
            found = column <= value
        case ">":
            found = column > value
        case _:
            found = column >= value
    return found


def _always(column: Any, *, when: bool) -> pc.Expression:
    """A comparison whose answer is the same for every value that is not null."""
    found: pc.Expression = column.is_valid() if when else NOTHING
    return found


def _counted(column: pc.Expression, kind: pa.DataType, op: str, value: int, unit: int) -> pc.Expression:
    """A whole number beside a column that counts in `unit`: the edge is moved, never rounded over."""
    if value % unit and op in ("=", "!="):
        return _always(column, when=op == "!=")
    edge = -(-value // unit) if op in ("<", ">=") else value // unit
    low, high = _limits(kind)
    if not low <= edge <= high:
        is_above = edge > high
        return _always(column, when=op == "!=" or (op in ("<", "<=") if is_above else op in (">", ">=")))
    return _plainly(column, op, pa.scalar(edge, kind))


def _integer(column: pc.Expression, kind: pa.DataType, op: str, value: int | float) -> pc.Expression:
    if isinstance(value, int):
        return _counted(column, kind, op, value, 1)
    if isnan(value) or (isinf(value) and value > 0):
        return _always(column, when=op in ("<", "<=", "!="))
    if isinf(value):
        return _always(column, when=op in (">", ">=", "!="))
    if value != floor(value) and op in ("=", "!="):
        return _always(column, when=op == "!=")
    return _counted(column, kind, op, ceil(value) if op in ("<", ">=") else floor(value), 1)


def _float(column: pc.Expression, kind: pa.DataType, op: str, value: int | float) -> pc.Expression:
    number = (
        float(value)
        if not isinstance(value, int) or abs(value) <= 2**1000
        else (_FLOAT_MAX if value > 0 else -_FLOAT_MAX)
    )
    if isnan(number):
        return _beside_nan(column, op)
    if isinstance(value, int) and int(number) != value:
        # The integer lies between two floats: the nearest is itself on one side of it.
        if op in ("=", "!="):
            return _always(column, when=op == "!=")
        is_above = int(number) > value
        op = {"<": "<", "<=": "<"}.get(op, ">=") if is_above else {">": ">", ">=": ">"}.get(op, "<=")
    found = _plainly(column.cast(pa.float64()) if kind != pa.float64() else column, op, pa.scalar(number))
    return found | pc.is_nan(column) if op in (">", ">=") else found


def _beside_nan(column: Any, op: str) -> pc.Expression:
    is_nan: pc.Expression = pc.is_nan(column)
    not_nan: pc.Expression = ~is_nan
    match op:
        case "=" | ">=":
            return is_nan
        case "!=" | "<":
            return not_nan
        case "<=":
            return _always(column, when=True)
        case _:
            return NOTHING


def _limits(kind: pa.DataType) -> tuple[int, int]:
    if not pat.is_integer(kind):
        return _INT64
    bits = kind.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pat.is_signed_integer(kind) else (0, 2**bits - 1)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pat.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return pat.is_string(kind) or pat.is_large_string(kind)


def _mismatch(predicate: Predicate, kind: pa.DataType) -> InvalidInput:
    return InvalidInput(
        f"column {predicate.column!r} cannot be compared with {predicate.value!r}",
        f"it is of type {kind}",
        "give a value of that type",
    )
