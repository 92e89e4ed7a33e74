"""Walks a syntax tree: scalars become rows of steps, instant vectors frames, range vectors windows."""

from __future__ import annotations

import dataclasses

import numpy as np

from penstock.errors import Unsupported
from penstock.timeseries.promql.columns.frame import Cells, VectorFrame
from penstock.timeseries.promql.columns.operators import ARITHMETIC, COMPARISON, computed
from penstock.timeseries.promql.columns.windows import Windows
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.evaluation.aggregation import aggregate, count_values
from penstock.timeseries.promql.evaluation.calls import call
from penstock.timeseries.promql.evaluation.matching import combine, set_operation
from penstock.timeseries.promql.evaluation.ranking import limit_ratio, ranked
from penstock.timeseries.promql.evaluation.selectors import instant, range_windows, subquery_windows
from penstock.timeseries.promql.functions.bounds import bounded_samples
from penstock.timeseries.promql.functions.histograms import warn_of_quantiles
from penstock.timeseries.promql.syntax.invariance import is_constant_in_time
from penstock.timeseries.promql.syntax.parser import SET_OPERATORS
from penstock.timeseries.promql.syntax.tree import (
    AggregateExpr,
    BinaryExpr,
    CallExpr,
    Expr,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    RangeBounds,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    ValueType,
    VectorSelector,
)
from penstock.timeseries.promql.syntax.typecheck import type_of

__all__ = ["Evaluator", "unwrapped"]


def unwrapped(expr: Expr) -> Expr:
    """Without parentheses around it."""
    while isinstance(expr, ParenExpr):
        expr = expr.inner
    return expr


class Evaluator:
    """One evaluation of a checked tree over the steps of its context."""

    def __init__(self, context: EvaluationContext) -> None:
        self.context = context

    def string(self, expr: Expr) -> str:
        plain = unwrapped(expr)
        assert isinstance(plain, StringLiteral)
        return plain.value

    def scalar(self, expr: Expr) -> Cells:
        """A value for each step."""
        expr = unwrapped(expr)
        if isinstance(expr, NumberLiteral):
            return np.full(self.context.grid.steps, expr.value)
        if isinstance(expr, UnaryExpr):
            operand = self.scalar(expr.operand)
            return -operand if expr.operator == "-" else operand
        if isinstance(expr, BinaryExpr):
            left, right = self.scalar(expr.left), self.scalar(expr.right)
            return computed(expr.operator, left, right, returns_bool=True)[0]
        assert isinstance(expr, CallExpr)
        found = call(self, expr)
        assert isinstance(found, np.ndarray)
        return found

    def vector(self, expr: Expr) -> VectorFrame:
        expr = unwrapped(expr)
        self.context.budget.check_time()
        if self.context.grid.steps > 1 and is_constant_in_time(expr):
            return self._once(expr)
        if isinstance(expr, VectorSelector):
            return instant(expr, self.context)
        if isinstance(expr, UnaryExpr):
            frame = self.vector(expr.operand)
            return frame.with_values(-frame.values, unnamed=True) if expr.operator == "-" else frame
        if isinstance(expr, BinaryExpr):
            return self._binary(expr)
        if isinstance(expr, AggregateExpr):
            return self._aggregate(expr)
        assert isinstance(expr, CallExpr)
        found = call(self, expr)
        assert isinstance(found, VectorFrame)
        return found

    def _once(self, expr: Expr) -> VectorFrame:
        """What is the same at every step, evaluated at the first."""
        grid = self.context.grid
        first = dataclasses.replace(grid, end_ms=grid.start_ms)
        frame = Evaluator(self.context.within(first)).vector(expr)
        shape = (len(frame.labels), grid.steps)
        self.context.budget.check_cells(*shape)
        return frame.with_values(np.broadcast_to(frame.values, shape), present=np.broadcast_to(frame.present, shape))

    def matrix(self, expr: Expr) -> Windows:
        expr = unwrapped(expr)
        if isinstance(expr, MatrixSelector):
            return range_windows(expr, self.context)
        assert isinstance(expr, SubqueryExpr)
        inner = expr.inner
        return subquery_windows(expr, self.context, lambda context: Evaluator(context).vector(inner))

    def whole_matrix(self, expr: Expr) -> Windows:
        """The range vector of an instant query, with samples at the bounds of anchored and smoothed ranges."""
        windows = self.matrix(expr)
        plain = unwrapped(expr)
        extension = plain.selector.modifiers.bounds if isinstance(plain, MatrixSelector) else None
        if extension is None:
            return windows
        columns = bounded_samples(windows, smoothed=extension is RangeBounds.SMOOTHED)
        low, high = columns.offsets[:-1, None], columns.offsets[1:, None]
        return dataclasses.replace(windows, columns=columns, low=low, high=high)

    def _binary(self, expr: BinaryExpr) -> VectorFrame:
        if expr.operator not in ARITHMETIC and expr.operator not in COMPARISON and expr.operator not in SET_OPERATORS:
            raise Unsupported(f"the operator {expr.operator} is not supported", "it trims native histograms")
        left_type, right_type = type_of(expr.left), type_of(expr.right)
        if left_type is ValueType.VECTOR and right_type is ValueType.VECTOR:
            left, right = self.vector(expr.left), self.vector(expr.right)
            if expr.operator in SET_OPERATORS:
                return set_operation(expr.operator, left, right, expr.matching)
            return combine(expr, left, right, self.context)
        return self._with_scalar(expr, scalar_left=left_type is ValueType.SCALAR)

    def _with_scalar(self, expr: BinaryExpr, *, scalar_left: bool) -> VectorFrame:
        frame = self.vector(expr.right if scalar_left else expr.left)
        scalar = self.scalar(expr.left if scalar_left else expr.right)[None, :]
        left, right = (scalar, frame.values) if scalar_left else (frame.values, scalar)
        values, kept = computed(expr.operator, left, right, returns_bool=expr.returns_bool)
        if kept is None:
            return frame.with_values(values, unnamed=True)
        # A comparison keeps the vector's value, on whichever side that is.
        return frame.with_values(frame.values, present=frame.present & kept).without_empty()

    def _aggregate(self, expr: AggregateExpr) -> VectorFrame:
        if expr.operator == "count_values":
            assert expr.parameter is not None
            frame, label = self.vector(expr.operand), self.string(expr.parameter)
            return count_values(frame, label, expr.grouping, self.context, without=expr.without)
        parameter = None if expr.parameter is None else self.scalar(expr.parameter)
        frame = self.vector(expr.operand)
        if parameter is not None and expr.parameter is not None:
            if expr.operator == "limit_ratio":
                return limit_ratio(frame, parameter, self.context, unwrapped(expr.parameter).place)
            if expr.operator != "quantile":
                return ranked(expr.operator, frame, parameter, expr.grouping, without=expr.without)
            # Of all that are too large the largest, of all that are too small the smallest, and NaN.
            largest, smallest = np.fmax.reduce(parameter), np.fmin.reduce(parameter)
            extremes = np.array([largest, min(smallest, 0.0), parameter.max()])
            warn_of_quantiles(extremes, self.context, unwrapped(expr.parameter).place)
        return aggregate(expr.operator, frame, parameter, expr.grouping, without=expr.without)
