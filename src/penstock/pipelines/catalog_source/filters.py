"""Filters that Spark pushes down, as predicates of the catalog.

Spark sees times cut to microseconds, so a bound is widened by what the cut may hide. Filters that have no predicate are
left to Spark, which evaluates all of them again on what it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import datasource as spark

from penstock.catalog import Predicate
from penstock.pipelines.spark.times import microseconds

__all__ = ["predicates_of"]

_OPERATORS: Final = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_MICROSECOND: Final = 1000


def predicates_of(filters: Iterable[spark.Filter], schema: pa.Schema) -> list[Predicate]:
    """Of columns that the table has, by the schema of its files."""
    return [predicate for each in filters for predicate in _predicates(each, schema)]


def _predicates(filter: Any, schema: pa.Schema) -> Iterator[Predicate]:
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in schema.names:
        return
    column, kind = attribute[0], schema.field(attribute[0]).type
    if isinstance(filter, spark.IsNull | spark.IsNotNull):
        yield Predicate(column, "is_null" if isinstance(filter, spark.IsNull) else "is_not_null")
    elif isinstance(filter, spark.StringStartsWith) and pat.is_string(kind):
        yield Predicate(column, "starts_with", filter.value)
    elif isinstance(filter, spark.In) and filter.value and all(_fits(value, kind) for value in filter.value):
        yield Predicate(column, "in", filter.value)
    elif (op := _OPERATORS.get(type(filter))) is not None:
        if pat.is_timestamp(kind) and isinstance(filter.value, datetime):
            yield from _times(column, op, filter.value)
        elif _fits(filter.value, kind):
            yield Predicate(column, op, filter.value)


def _times(column: str, op: str, value: datetime) -> Iterator[Predicate]:
    moment = microseconds(value) * _MICROSECOND
    if op in (">", ">=", "="):
        yield Predicate(column, ">=", moment)
    if op in ("<=", "="):
        yield Predicate(column, "<", moment + _MICROSECOND)
    if op == "<":
        yield Predicate(column, "<", moment)


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Floats stay with Spark: it rounds and orders them in its own way."""
    if isinstance(value, bool):
        return bool(pat.is_boolean(kind))
    if isinstance(value, int):
        return bool(pat.is_integer(kind))
    return isinstance(value, str) and bool(pat.is_string(kind))
