"""The rows of an answer as values that JSON and a terminal can show."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pat

__all__ = ["answer_rows"]

# In the place of a time within a list, a map or a struct that Python has no value for, such as the year 5,881,580.
OUT_OF_RANGE: Final = "<value out of range>"


def answer_rows(table: pa.Table) -> list[list[Any]]:
    """Row by row, because columns of an answer may have the same name. Dates and times are texts."""
    return [list(row) for row in zip(*(_values(column) for column in table.columns), strict=True)]


def _values(column: Any) -> list[Any]:
    if pat.is_timestamp(column.type) or pat.is_date(column.type):
        # Arrow writes also those that are beyond the years of Python.
        column = column.cast(pa.string())
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        found = [_value(one) for one in column]
    return found


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return OUT_OF_RANGE
