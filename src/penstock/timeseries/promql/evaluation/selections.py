"""What an expression is going to read, told before it is evaluated: a source whose reading waits can fetch it first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from penstock.timeseries.promql.columns.grid import subquery_grid
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.evaluation.info_reference import info_lookup_times
from penstock.timeseries.promql.evaluation.selectors import positive, reach, times_of
from penstock.timeseries.promql.functions.info import info_matchers
from penstock.timeseries.promql.matchers import Matcher
from penstock.timeseries.promql.syntax.tree import (
    CallExpr,
    Expr,
    MatrixSelector,
    Modifiers,
    SubqueryExpr,
    VectorSelector,
    children,
)

__all__ = ["SeriesSelection", "label_matchers", "selections"]


@dataclasses.dataclass(frozen=True)
class SeriesSelection:
    """The arguments of one `select` of a source."""

    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int


def selections(expr: Expr, context: EvaluationContext) -> Iterator[SeriesSelection]:
    """One for each selector, in the order of the expression."""
    if isinstance(expr, VectorSelector):
        yield _read(expr, None, context)
    elif isinstance(expr, MatrixSelector):
        yield _read(expr.selector, positive(context, expr.range), context)
    elif isinstance(expr, SubqueryExpr):
        step_ms = context.config.subquery_step_ms if expr.step is None else positive(context, expr.step)
        ends = times_of(expr.modifiers, context)
        grid = subquery_grid(int(ends[0]), int(ends[-1]), positive(context, expr.range), step_ms)
        context.budget.check_cells(1, grid.steps)
        if grid.steps:
            yield from selections(expr.inner, context.within(grid))
    elif isinstance(expr, CallExpr) and expr.function == "info":
        yield from selections(expr.arguments[0], context)
        yield _info_selection(expr, context)
    else:
        for child in children(expr):
            yield from selections(child, context)


def _info_selection(expr: CallExpr, context: EvaluationContext) -> SeriesSelection:
    """The info series of a call, from the times that it looks at."""
    asked = info_matchers(label_matchers(expr))
    times = info_lookup_times(expr.arguments[0], context)
    return SeriesSelection((*asked.names, *asked.data), *reach(Modifiers(), times, context.config.lookback_ms, None))


def label_matchers(expr: CallExpr) -> tuple[Matcher, ...]:
    """The matchers that a call of `info` is given."""
    second = expr.arguments[1] if len(expr.arguments) > 1 else None
    return second.matchers if isinstance(second, VectorSelector) else ()


def _read(expr: VectorSelector, range_ms: int | None, context: EvaluationContext) -> SeriesSelection:
    times = times_of(expr.modifiers, context)
    return SeriesSelection(expr.matchers, *reach(expr.modifiers, times, context.config.lookback_ms, range_ms))
