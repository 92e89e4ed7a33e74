"""Predicates over column statistics: which files surely hold no matching row.

A file is dropped only when its statistics prove that no row can match; whatever is unknown keeps it. `<` and
`<=` differ at the edge. Nulls match no comparison. NaN compares as engines do that sort it above all numbers
(DuckDB, Spark), so a column that may hold NaN is never dropped by its greatest value. Integers and floats are
compared exactly, never through rounding. Several predicates must all hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor, isinf, isnan
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.format.block import FileBlock, Flag, Mask, Rows, StatColumn
from penstock.catalog.format.statistics import Scalar, string_above
from penstock.errors import InvalidInput
from penstock.undecodable import UNDECODABLE

__all__ = ["Predicate", "parse_predicate", "surviving"]

_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
OPERATORS: Final = (*_COMPARISONS, "in", "starts_with", "is_null", "is_not_null")
# Each value of `in` costs a pass over the rows; of a longer list only the least and the greatest are compared.
_VALUES_MAX: Final = 64
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Bound: TypeAlias = "pa.Array[Any]"
_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
_ARROW: Final[Mapping[str, Callable[..., Any]]] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "=": pc.equal,
}


@dataclass(frozen=True, slots=True)
class Predicate:
    """A column, an operator and a value: a sequence for `in`, none for `is_null` and `is_not_null`.

    A `datetime` stands for its nanoseconds since the Unix epoch and must have a zone.
    """

    column: str
    op: str
    value: Any = None

    def __post_init__(self) -> None:
        if self.op not in OPERATORS:
            raise InvalidInput(f"predicate operator {self.op!r}", f"the operators are {', '.join(OPERATORS)}")
        object.__setattr__(self, "value", self._checked())

    def _checked(self) -> Any:
        if self.op == "in":
            if isinstance(self.value, str) or not isinstance(self.value, Iterable):
                raise self._refusal("`in` takes a sequence of values")
            return tuple(self._scalar(value) for value in self.value)
        if self.op in ("is_null", "is_not_null"):
            return None
        if self.op == "starts_with" and not isinstance(self.value, str):
            raise self._refusal("`starts_with` takes a string")
        return self._scalar(self.value)

    def _scalar(self, value: Any) -> Scalar:
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise self._refusal("a datetime must have a zone")
            return (value - _UNIX_EPOCH) // timedelta(microseconds=1) * 1000
        if isinstance(value, bool | int | float | str):
            return value
        raise self._refusal(f"a value of type {type(value).__name__} cannot be compared")

    def _refusal(self, why: str) -> InvalidInput:
        return InvalidInput(f"predicate on {self.column!r} cannot be used", why)


def parse_predicate(text: str) -> Predicate:
    """`status>=500`, `name=api`, `name^=ap` (starts with), `name is null`: a value that is JSON is taken as such."""
    import msgspec

    for ending, op in ((" is not null", "is_not_null"), (" is null", "is_null")):
        if text.lower().endswith(ending):
            return Predicate(text[: -len(ending)].strip(), op)
    for sign, op in (
        ("^=", "starts_with"),
        ("!=", "!="),
        ("<=", "<="),
        (">=", ">="),
        ("<", "<"),
        (">", ">"),
        ("=", "="),
    ):
        column, found, value = text.partition(sign)
        if found and column.strip():
            try:
                parsed = msgspec.json.decode(value.encode())
            except UNDECODABLE:
                parsed = value.strip()
            return Predicate(column.strip(), op, value.strip() if op == "starts_with" else parsed)
    raise InvalidInput(f"predicate {text!r} cannot be read", "it must be like `column<=value` or `column is null`")


def surviving(block: FileBlock, rows: Rows, predicates: Sequence[Predicate]) -> Rows:
    """The rows whose files may hold a matching row."""
    return surviving_stats(block.stats, rows, predicates)


def surviving_stats(stats: Mapping[str, StatColumn], rows: Rows, predicates: Sequence[Predicate]) -> Rows:
    for predicate in predicates:
        found = stats.get(predicate.column)
        if found is not None and len(rows):
            rows = rows[~_Proof(found, rows).excludes(predicate)]
    return rows


class _Proof:
    """What the statistics of one column prove of some rows."""

    def __init__(self, stats: StatColumn, rows: Rows) -> None:
        self._stats = stats
        self._rows = rows
        self._take = rows
        self._flags = stats.flags[rows]

    def excludes(self, predicate: Predicate) -> Mask:
        """True where no row of the file can match."""
        op, value = predicate.op, predicate.value
        all_null = self._has(Flag.ALL_NULL)
        if op == "is_null":
            return self._has(Flag.PRESENT) & ~self._has(Flag.HAS_NULLS) & ~all_null
        if op == "is_not_null":
            return all_null
        if op == "in":
            return all_null | self._excludes_all(value)
        if op == "starts_with":
            return all_null | self._excludes_prefix(value)
        return all_null | self._excludes_value(op, value)

    def _excludes_all(self, values: tuple[Scalar, ...]) -> Mask:
        if len(values) > _VALUES_MAX:
            numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
            strings = [value for value in values if isinstance(value, str)]
            if len(numbers) + len(strings) < len(values) or any(isnan(number) for number in numbers):
                return self._none()
            excluded = ~self._none()
            for group in (numbers, strings):
                if group:
                    # Outside of all of them: above the greatest, or below the least.
                    above, below = self._side(">", max(group), low=True), self._side("<", min(group), low=False)
                    excluded &= above | below
            return excluded
        excluded = ~self._none()
        for value in values:
            excluded &= self._excludes_value("=", value)
        return excluded

    def _excludes_prefix(self, prefix: str) -> Mask:
        excluded = self._side("<", prefix, low=False)
        above = string_above(prefix)
        return excluded if above is None else excluded | self._side(">=", above, low=True)

    def _excludes_value(self, op: str, value: Scalar) -> Mask:
        if isinstance(value, float) and isnan(value):
            return self._none()
        if op == "<":
            return self._side(">=", value, low=True)
        if op == "<=":
            return self._side(">", value, low=True)
        if op == ">":
            return self._side("<=", value, low=False) & ~self._may_hold_nan(value)
        if op == ">=":
            return self._side("<", value, low=False) & ~self._may_hold_nan(value)
        if op == "=":
            return self._side(">", value, low=True) | self._side("<", value, low=False)
        # Not equal: every row has exactly this value.
        exact = ~self._has(Flag.MIN_CUT | Flag.MAX_CUT) & ~self._may_hold_nan(value)
        return self._side("=", value, low=True) & self._side("=", value, low=False) & exact

    def _side(self, op: str, value: Scalar, *, low: bool) -> Mask:
        """Whether the least (`low`) or the greatest value stands so to `value`; False where it is not known."""
        answer = self._none()
        for kind, bounds in self._stats.bounds.items():
            if _comparable(kind, value):
                answer |= _compared(bounds[0 if low else 1].take(self._take), kind, op, value)
        return answer

    def _may_hold_nan(self, value: Scalar) -> Mask:
        """Said so, or not denied of floats; integers beside a float may be a float column's whole numbers."""
        known = self._has(Flag.NAN_KNOWN)
        floats = self._none() | isinstance(value, float)
        if "d" in self._stats.bounds:
            low, high = (bound.take(self._take) for bound in self._stats.bounds["d"])
            floats = floats | ~(np.asarray(low.is_null()) & np.asarray(high.is_null()))
        return self._has(Flag.HAS_NAN) | (floats & ~known)

    def _has(self, flag: int) -> Mask:
        found: Mask = (self._flags & flag) != 0
        return found

    def _none(self) -> Mask:
        return np.zeros(len(self._rows), bool)


def _comparable(kind: str, value: Scalar) -> bool:
    if isinstance(value, bool):
        return kind == "b"
    return kind == "s" if isinstance(value, str) else kind in "id"


def _compared(bound: _Bound, kind: str, op: str, value: Any) -> Mask:
    if kind in "sb":
        return np.asarray(_ARROW[op](bound, pa.scalar(value, bound.type)).fill_null(False))
    known = ~np.asarray(bound.is_null())
    numbers = bound.fill_null(0).to_numpy(zero_copy_only=False)
    against_integers = kind == "i"
    if against_integers and isinstance(value, float):
        return known & _integers_to_float(numbers, op, value)
    if not against_integers and isinstance(value, int):
        return known & _floats_to_integer(numbers, op, value)
    found: Mask = known & _COMPARE[op](numbers, value)
    return found


def _integers_to_float(numbers: Any, op: str, value: float) -> Mask:
    """Integers beside a float, without rounding one to the other."""
    if isinf(value):
        return np.full(len(numbers), op in ("<", "<=") if value > 0 else op in (">", ">="))
    if op == "=" and value != floor(value):
        return np.zeros(len(numbers), bool)
    nearest = ceil(value) if op in ("<", ">=") else floor(value)
    found: Mask = _COMPARE[op](numbers, nearest)
    return found


def _floats_to_integer(numbers: Any, op: str, value: int) -> Mask:
    """Floats beside an integer that may lie between two floats, or beyond all of them."""
    try:
        nearest = float(value)
    except OverflowError:
        return np.full(len(numbers), op in ("<", "<=") if value > 0 else op in (">", ">="))
    if int(nearest) != value:
        if op == "=":
            return np.zeros(len(numbers), bool)
        # The nearest float is itself on one side, so only one of < and <= (or > and >=) leaves it there.
        upward = nearest > value
        op = {"<": "<", "<=": "<"}.get(op, ">=") if upward else {">": ">", ">=": ">"}.get(op, "<=")
    found: Mask = _COMPARE[op](numbers, nearest)
    return found
