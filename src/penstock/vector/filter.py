"""Filters over attributes: equality, membership, ranges and presence, joined by and, or and not.

```python
where = (attribute("lang") == "en") & (attribute("stars").between(3, 5) | ~attribute("draft").is_in([True]))
```

A row without a value for an attribute matches no comparison with it, and so matches the negation of one;
`attribute(name).is_null()` finds such rows, and `is_not_null()` all others. Floats
compare as numbers do: 0.0 and -0.0 are equal, and NaN is neither equal to anything nor less nor greater.
A filter that names an unknown attribute, or compares it with a value of another type, is refused before
anything is read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.vector.arrays import Bools, Column, compute
from penstock.vector.attributes import AttributeType, Scalar, describe, scalar_type

__all__ = [
    "And",
    "Attribute",
    "Filter",
    "In",
    "IsNull",
    "Not",
    "Or",
    "Range",
    "attribute",
    "check_filter",
    "filter_attributes",
    "filter_key",
    "match_values",
]

# A filter is walked recursively: deeper ones are a program, or an attack.
_DEPTH_MAX: Final = 64


class Filter:
    """What all filters can do: be joined."""

    def __and__(self, other: Filter) -> And:
        return And((self, _filter(other)))

    def __or__(self, other: Filter) -> Or:
        return Or((self, _filter(other)))

    def __invert__(self) -> Not:
        return Not(self)


@dataclass(frozen=True)
class In(Filter):
    """The attribute has one of these values."""

    name: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Range(Filter):
    """The attribute lies between two values; None leaves an end open."""

    name: str
    low: Scalar | None = None
    high: Scalar | None = None
    low_included: bool = True
    high_included: bool = True


@dataclass(frozen=True)
class IsNull(Filter):
    """The row has no value for the attribute."""

    name: str


@dataclass(frozen=True)
class And(Filter):
    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Or(Filter):
    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Not(Filter):
    part: Filter


class Attribute:
    """An attribute by name, compared with Python's own operators."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, value: object) -> In:  # type: ignore[override]
        return In(self.name, (value,))  # type: ignore[arg-type]

    def __ne__(self, value: object) -> Not:  # type: ignore[override]
        return Not(self == value)

    def __lt__(self, value: Scalar) -> Range:
        return Range(self.name, high=self._bound(value), high_included=False)

    def __le__(self, value: Scalar) -> Range:
        return Range(self.name, high=self._bound(value))

    def __gt__(self, value: Scalar) -> Range:
        return Range(self.name, low=self._bound(value), low_included=False)

    def __ge__(self, value: Scalar) -> Range:
        return Range(self.name, low=self._bound(value))

    def between(self, low: Scalar, high: Scalar) -> Range:
        """From `low` to `high`, both included."""
        return Range(self.name, self._bound(low), self._bound(high))

    def is_in(self, values: Iterable[Scalar]) -> In:
        # The letters of a text are texts too, and would be taken for the values.
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            what = f"the filter asks whether {self.name!r} is in {describe(values)}"
            raise InvalidInput(what, "is_in takes several values", "put it into a list")
        return In(self.name, tuple(values))

    def is_null(self) -> IsNull:
        """Rows that have no value for it."""
        return IsNull(self.name)

    def is_not_null(self) -> Not:
        """Rows that have a value for it, whatever it is."""
        return Not(self.is_null())

    def _bound(self, value: Scalar | None) -> Scalar:
        """An open end must be meant: a bound that a program did not have would match, or delete, every row."""
        if value is None:
            what = f"the filter compares {self.name!r} with None"
            raise InvalidInput(what, "None is no value", "leave the comparison out, or use is_null()")
        return value


def attribute(name: str) -> Attribute:
    if not isinstance(name, str):
        raise InvalidInput(f"a filter on attribute {describe(name)}", "an attribute is named by a text")
    return Attribute(name)


def check_filter(where: Filter, known: Mapping[str, AttributeType], depth: int = 0) -> None:
    """Refuse a filter that cannot mean anything in a collection with these attributes."""
    if depth > _DEPTH_MAX:
        raise InvalidInput("the filter is too deep", f"filters nest at most {_DEPTH_MAX} levels")
    match where:
        case And(parts) | Or(parts):
            for part in parts:
                check_filter(part, known, depth + 1)
        case Not(part):
            check_filter(part, known, depth + 1)
        case In(name, values):
            _check_values(name, values, known)
        case IsNull(name):
            _check_values(name, (), known)
        case Range(name, low, high):
            _check_values(name, tuple(end for end in (low, high) if end is not None), known)
            if known[name] is AttributeType.BOOL:
                raise InvalidInput(f"the filter asks for a range of {name!r}", "it is a bool, which has no order")
        case _:
            raise InvalidInput(f"the filter has a part {describe(where)}", "filters are made with attribute(name)")


def filter_attributes(where: Filter) -> set[str]:
    """The attributes that a filter looks at."""
    match where:
        case And(parts) | Or(parts):
            return set().union(*map(filter_attributes, parts))
        case Not(part):
            return filter_attributes(part)
        case In(name) | Range(name) | IsNull(name):
            return {name}
        case _:
            return set()


def filter_key(where: Filter) -> Hashable:
    """Equal for filters that select the same rows of every collection that takes them both."""
    match where:
        case And(parts) | Or(parts):
            return type(where), tuple(map(filter_key, parts))
        case Not(part):
            return Not, filter_key(part)
        case In(name, values):
            return In, name, tuple(map(_value_key, values))
        case IsNull(name):
            return IsNull, name
        case Range(name, low, high, low_included, high_included):
            return Range, name, _value_key(low), _value_key(high), low_included, high_included
    raise AssertionError(where)


def _value_key(value: Scalar | None) -> Hashable:
    # Python takes 1, 1.0 and True for one key, and both zeros. A float's text tells what it is, NaN included.
    return type(value), repr(value) if isinstance(value, float) else value


def match_values(where: In | Range, kind: AttributeType, values: Column) -> Bools:
    """Which values of one attribute a comparison matches; values are never missing."""
    if isinstance(where, In):
        return _bools(compute.is_in(values, pa.array(_wanted(where, kind), kind.arrow)))
    matched = np.ones(len(values), np.bool_)
    if where.low is not None:
        compare = compute.greater_equal if where.low_included else compute.greater
        matched &= _bools(compare(values, kind.scalar(where.low)))
    if where.high is not None:
        compare = compute.less_equal if where.high_included else compute.less
        matched &= _bools(compare(values, kind.scalar(where.high)))
    return matched


def _wanted(where: In, kind: AttributeType) -> list[Scalar]:
    """The values that equal one of a filter's. Arrow compares their bytes here; as in ranges, -0.0 is 0.0 and NaN nothing."""
    values: list[Scalar] = [kind.scalar(value).as_py() for value in where.values]
    if kind is AttributeType.FLOAT:
        values = [value for value in values if value == value] + [0.0, -0.0] * (0.0 in values)
    return values


def _check_values(name: str, values: tuple[Scalar, ...], known: Mapping[str, AttributeType]) -> None:
    kind = known.get(name)
    if kind is None:
        listed = ", ".join(sorted(known)) or "none"
        raise InvalidInput(f"the filter names attribute {name!r}", f"the collection's attributes are: {listed}")
    for value in values:
        found = scalar_type(value)
        if found is None:
            raise InvalidInput(
                f"the filter compares {name!r} with {describe(value)}",
                f"the types of attributes are {', '.join(AttributeType)}",
                "convert the value",
            )
        # An integer is a fine bound for a float attribute: 3 means 3.0.
        if found is not kind and not (found is AttributeType.INTEGER and kind is AttributeType.FLOAT):
            raise InvalidInput(f"the filter compares {name!r} with {describe(value)}", f"the attribute is {kind}")
        try:
            kind.scalar(value)
        except ValueError as error:
            raise InvalidInput(f"the filter compares {name!r} with {describe(value)}", str(error)) from error


def _filter(part: object) -> Filter:
    if not isinstance(part, Filter):
        raise InvalidInput(f"a filter was joined with {describe(part)}", "filters can only be joined with filters")
    return part


def _bools(answer: Column) -> Bools:
    bools: Bools = answer.to_numpy(zero_copy_only=False).astype(np.bool_)
    return bools
