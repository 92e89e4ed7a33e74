"""Which expressions are the same at every step of a query: those whose selectors all have a fixed time (`@`)."""

from __future__ import annotations

from penstock.timeseries.promql.syntax.tree import (
    CallExpr,
    Expr,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    VectorSelector,
    children,
)

__all__ = ["is_constant_in_time"]

# Their result depends on the time of the step, whatever their arguments.
_OF_STEP = frozenset(
    [
        "day_of_month",
        "day_of_week",
        "day_of_year",
        "days_in_month",
        "end",
        "hour",
        "info",
        "minute",
        "month",
        "predict_linear",
        "range",
        "start",
        "step",
        "time",
        "timestamp",
        "year",
    ]
)


def is_constant_in_time(expr: Expr) -> bool:
    """Such an expression is evaluated once, and its result repeated."""
    if isinstance(expr, VectorSelector):
        return expr.modifiers.at is not None
    if isinstance(expr, MatrixSelector):
        return expr.selector.modifiers.at is not None
    if isinstance(expr, SubqueryExpr):
        return expr.modifiers.at is not None
    if isinstance(expr, NumberLiteral | StringLiteral):
        return True
    if isinstance(expr, CallExpr) and expr.function in _OF_STEP:
        return expr.function == "timestamp" and _is_fixed_selector(expr.arguments[0])
    return all(is_constant_in_time(child) for child in children(expr))


def _is_fixed_selector(expr: Expr) -> bool:
    while isinstance(expr, ParenExpr):
        expr = expr.inner
    return isinstance(expr, VectorSelector) and expr.modifiers.at is not None
