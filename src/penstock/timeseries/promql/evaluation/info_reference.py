"""When a call of `info` looks at its info series: at the time that the vectors of its argument share, if there is one.

`info(up @ 120)` and `info(last_over_time(up[5m:1m] offset 6m))` describe series as of the time that they read. Vectors
that look at different times, or that no selector makes (`vector(1)`), have no such time in common: then info series
are looked at where the step stands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.source import Times
from penstock.timeseries.promql.syntax.tree import CallExpr, Expr, SubqueryExpr, ValueType, VectorSelector, children
from penstock.timeseries.promql.syntax.typecheck import type_of

__all__ = ["info_lookup_times"]

_VECTORS = (ValueType.VECTOR, ValueType.MATRIX)


@dataclasses.dataclass(frozen=True)
class _Reference:
    """A fixed time, or how far before each step."""

    at_ms: int | None
    offset_ms: int


_STEP = _Reference(None, 0)


def info_lookup_times(argument: Expr, context: EvaluationContext) -> Times:
    """One time for each step, or one for all of them."""
    found = set(_references(argument, (), context))
    reference = next(iter(found)) if len(found) == 1 else None
    if reference is None:
        reference = _STEP
    if reference.at_ms is None:
        return context.grid.times_ms - reference.offset_ms
    return np.array([reference.at_ms], dtype=np.int64)


def _references(
    expr: Expr, around: tuple[SubqueryExpr, ...], context: EvaluationContext
) -> Iterator[_Reference | None]:
    """Where each vector of an expression looks; None for one that no selector makes."""
    if isinstance(expr, VectorSelector):
        yield _reference(expr, around, context)
        return
    inside = (*around, expr) if isinstance(expr, SubqueryExpr) else around
    # The second argument of `info` is written as a selector, but is none.
    parts = expr.arguments[:1] if isinstance(expr, CallExpr) and expr.function == "info" else children(expr)
    vectors = [part for part in parts if type_of(part) in _VECTORS]
    if not vectors:
        yield None
    for part in vectors:
        yield from _references(part, inside, context)


def _reference(expr: VectorSelector, around: tuple[SubqueryExpr, ...], context: EvaluationContext) -> _Reference:
    """Offsets of subqueries around a selector add up, until a fixed time makes those further out irrelevant."""
    offset_ms = 0
    for modifiers in (expr.modifiers, *(subquery.modifiers for subquery in reversed(around))):
        if modifiers.offset is not None:
            offset_ms += context.milliseconds(modifiers.offset)
        at = context.at_ms(modifiers)
        if at is not None:
            return _Reference(at - offset_ms, 0)
    return _Reference(None, offset_ms)
