"""The typed attributes of rows: five types, each with one form in Arrow that everything is brought to.

Nothing is guessed: a value of a type that an attribute does not have is refused by name, in rows and in
filters alike. Integers are not floats, and a number is never a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.vector.arrays import Column, compute

__all__ = ["ATTRIBUTES_MAX", "AttributeType", "Scalar", "attribute_columns", "scalar_type"]

Scalar: TypeAlias = str | int | float | bool | datetime

# Each attribute is a shelf of its own: enough for any schema, and a bound on what one row can ask for.
ATTRIBUTES_MAX: Final = 64
# Names lie in the head, which every commit writes again.
_NAME_BYTES_MAX: Final = 1024
_INTEGER_MIN, _INTEGER_MAX = -(1 << 63), (1 << 63) - 1


class AttributeType(StrEnum):
    """The type of an attribute column."""

    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    BOOL = "bool"
    TIMESTAMP = "timestamp"

    @property
    def arrow(self) -> pa.DataType:
        """The one form values of this type are kept in."""
        return _ARROW[self]

    def scalar(self, value: Scalar) -> Column:
        """A value of a filter in that form."""
        if self is AttributeType.TIMESTAMP and isinstance(value, datetime):
            value = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return pa.scalar(value, self.arrow)


_ARROW: Final[dict[AttributeType, pa.DataType]] = {
    AttributeType.STRING: pa.string(),
    AttributeType.INTEGER: pa.int64(),
    AttributeType.FLOAT: pa.float64(),
    AttributeType.BOOL: pa.bool_(),
    # Microseconds in UTC: what Python's datetime holds.
    AttributeType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}
# In Python's own numbers: the first scalar that pyarrow makes of a Python object imports pandas.
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT_MIN, _MOMENT_MAX = (
    (end - _UNIX_EPOCH) // timedelta(microseconds=1)
    for end in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
)


def scalar_type(value: object) -> AttributeType | None:
    """The type of a value in a filter; None if it has none of the five."""
    # Order matters: a bool is an int to Python.
    if isinstance(value, bool):
        return AttributeType.BOOL
    if isinstance(value, int):
        return AttributeType.INTEGER if _INTEGER_MIN <= value <= _INTEGER_MAX else None
    if isinstance(value, float):
        return AttributeType.FLOAT
    if isinstance(value, str):
        return AttributeType.STRING
    return AttributeType.TIMESTAMP if isinstance(value, datetime) else None


def attribute_columns(column: Column, known: Mapping[str, AttributeType]) -> dict[str, Column]:
    """The fields of an `attributes` column, each in the form of its type; fields without any value are left out."""
    columns: dict[str, Column] = {}
    seen: set[str] = set()
    for field, values in zip(column.type, column.flatten(), strict=True):
        if not field.name or field.name in seen:
            raise InvalidInput(f"attribute {field.name!r:.60}", "names are not empty and occur once", "rename it")
        seen.add(field.name)
        if len(field.name.encode()) > _NAME_BYTES_MAX:
            raise InvalidInput(f"attribute {field.name[:40]!r}…", f"a name has at most {_NAME_BYTES_MAX} bytes")
        if values.null_count == len(values):
            continue
        columns[field.name] = _canonical(field.name, values, known.get(field.name))
    if len({*known, *columns}) > ATTRIBUTES_MAX:
        names = ", ".join(sorted({*columns} - {*known})[:5])
        raise InvalidInput(f"new attributes {names}", f"a collection has at most {ATTRIBUTES_MAX} attributes")
    return columns


@cache
def attribute_type(kind: pa.DataType) -> AttributeType | None:
    """The attribute type that an Arrow type is brought to."""
    if pa.types.is_dictionary(kind):
        return attribute_type(kind.value_type)
    checks = {
        AttributeType.STRING: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        AttributeType.INTEGER: (pa.types.is_integer,),
        AttributeType.FLOAT: (pa.types.is_floating,),
        AttributeType.BOOL: (pa.types.is_boolean,),
        AttributeType.TIMESTAMP: (pa.types.is_timestamp, pa.types.is_date),
    }
    return next((found for found, tests in checks.items() if any(test(kind) for test in tests)), None)


def _canonical(name: str, values: Column, known: AttributeType | None) -> Column:
    found = attribute_type(values.type)
    if found is None:
        raise InvalidInput(
            f"attribute {name!r} is {values.type}",
            f"the types of attributes are {', '.join(AttributeType)}",
            "convert the column",
        )
    if known is not None and found is not known:
        raise InvalidInput(f"attribute {name!r} is {found}", f"in this collection it is {known}", "convert the column")
    try:
        if found is AttributeType.TIMESTAMP and (pa.types.is_date(values.type) or values.type.tz is None):
            values = compute.assume_timezone(values.cast(pa.timestamp("us")), "UTC")
        values = values if values.type == found.arrow else values.cast(found.arrow)
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"attribute {name!r} has a value that does not fit {found.arrow}", str(error)) from error
    if found is AttributeType.TIMESTAMP:
        _check_years(name, values)
    return values


def _check_years(name: str, moments: Column) -> None:
    """Refuse what Python's datetime cannot hold: a row with it could be stored and never be read."""
    ends = compute.min_max(moments)
    if ends["min"].value < _MOMENT_MIN or ends["max"].value > _MOMENT_MAX:
        raise InvalidInput(f"attribute {name!r} has a time out of range", "years are 1 to 9999", "leave it out")


def describe(value: Any) -> str:
    """A value and its Python type, short enough for an error."""
    return f"{value!r:.60} ({type(value).__name__})"
