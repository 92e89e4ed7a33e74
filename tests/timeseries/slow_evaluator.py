"""PromQL the slow and obvious way: one step at a time, one series at a time, one sample at a time, in plain Python.

Covers what the property tests generate, and nothing else. It shares the parser with the engine, and no arithmetic.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from fractions import Fraction

from penstock.timeseries.promql.syntax.tree import (
    AggregateExpr,
    At,
    BinaryExpr,
    CallExpr,
    Expr,
    MatrixSelector,
    Modifiers,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, float]
Samples = list[tuple[int, float]]
LOOKBACK_MS = 300_000


class SlowEvaluator:
    """Series by labels; every sample is (milliseconds, value)."""

    def __init__(self, series: dict[Labels, Samples], start_ms: int, end_ms: int) -> None:
        self.series = series
        self.start_ms = start_ms
        self.end_ms = end_ms

    def at(self, expr: Expr, time: int) -> Vector | float:
        if isinstance(expr, ParenExpr):
            return self.at(expr.inner, time)
        if isinstance(expr, NumberLiteral):
            return expr.value
        if isinstance(expr, UnaryExpr):
            found = self.at(expr.operand, time)
            return {unnamed(labels): -value for labels, value in found.items()} if isinstance(found, dict) else -found
        if isinstance(expr, VectorSelector):
            return self._instant(expr, self._looked_at(expr.modifiers, time))
        if isinstance(expr, AggregateExpr):
            return self._aggregate(expr, time)
        if isinstance(expr, BinaryExpr):
            return self._binary(expr, time)
        assert isinstance(expr, CallExpr)
        return self._call(expr, time)

    def _looked_at(self, modifiers: Modifiers, time: int) -> int:
        if modifiers.at is At.START:
            time = self.start_ms
        elif modifiers.at is At.END:
            time = self.end_ms
        elif isinstance(modifiers.at, int):
            time = modifiers.at
        offset = modifiers.offset or 0.0
        assert isinstance(offset, float)
        return time - round(offset * 1000)

    def _matching(self, expr: VectorSelector) -> list[Labels]:
        return [
            labels
            for labels in self.series
            if all(matcher.predicate()(dict(labels).get(matcher.name, "")) for matcher in expr.matchers)
        ]

    def _instant(self, expr: VectorSelector, time: int) -> Vector:
        out: Vector = {}
        for labels in self._matching(expr):
            seen = [value for at, value in self.series[labels] if time - LOOKBACK_MS < at <= time]
            if seen:
                out[labels] = seen[-1]
        return out

    def _ranges(self, expr: Expr, time: int) -> tuple[dict[Labels, Samples], int, int]:
        """Samples by series, and the bounds of the window."""
        if isinstance(expr, MatrixSelector):
            assert isinstance(expr.range, float)
            end = self._looked_at(expr.selector.modifiers, time)
            start = end - round(expr.range * 1000)
            found = {
                labels: [(at, value) for at, value in self.series[labels] if start < at <= end]
                for labels in self._matching(expr.selector)
            }
            return found, start, end
        assert isinstance(expr, SubqueryExpr)
        assert isinstance(expr.range, float)
        assert isinstance(expr.step, float)
        end = self._looked_at(expr.modifiers, time)
        start, step = end - round(expr.range * 1000), round(expr.step * 1000)
        out: dict[Labels, Samples] = {}
        for at in range(start - start % step, end + 1, step):
            if start < at:
                vector = self.at(expr.inner, at)
                assert isinstance(vector, dict)
                for labels, value in vector.items():
                    out.setdefault(labels, []).append((at, value))
        return out, start, end

    def _call(self, expr: CallExpr, time: int) -> Vector:
        if expr.function in RANGE_FUNCTIONS:
            found, start, end = self._ranges(expr.arguments[-1], time)
            function = RANGE_FUNCTIONS[expr.function]
            values = {labels: function(samples, start, end) for labels, samples in found.items() if samples}
            return {unnamed(labels): value for labels, value in values.items() if value is not None}
        vector = self.at(expr.arguments[0], time)
        assert isinstance(vector, dict)
        return {unnamed(labels): VECTOR_FUNCTIONS[expr.function](value) for labels, value in vector.items()}

    def _aggregate(self, expr: AggregateExpr, time: int) -> Vector:
        vector = self.at(expr.operand, time)
        assert isinstance(vector, dict)
        groups: dict[Labels, list[float]] = {}
        for labels, value in vector.items():
            gone = {*expr.grouping, "__name__"}
            key = tuple(pair for pair in labels if (pair[0] not in gone if expr.without else pair[0] in expr.grouping))
            groups.setdefault(key, []).append(value)
        return {labels: AGGREGATES[expr.operator](values) for labels, values in groups.items()}

    def _binary(self, expr: BinaryExpr, time: int) -> Vector | float:
        left, right = self.at(expr.left, time), self.at(expr.right, time)
        if isinstance(left, dict) and isinstance(right, dict):
            return _matched(expr, left, right)
        if not isinstance(left, dict) and not isinstance(right, dict):
            return OPERATORS[expr.operator](left, right)
        vector = left if isinstance(left, dict) else right
        assert isinstance(vector, dict)
        out: Vector = {}
        for labels, value in vector.items():
            sides = (value, right) if isinstance(left, dict) else (left, value)
            result = OPERATORS[expr.operator](*sides)  # type: ignore[arg-type]
            if expr.operator not in COMPARISONS:
                out[unnamed(labels)] = result
            elif expr.returns_bool:
                out[unnamed(labels)] = float(result)
            elif result:
                out[labels] = value
        return out


def unnamed(labels: Labels) -> Labels:
    return tuple(pair for pair in labels if pair[0] != "__name__")


def _matched(expr: BinaryExpr, left: Vector, right: Vector) -> Vector:
    """One-to-one on the labels named, and the set operators."""

    def key(labels: Labels) -> Labels:
        if expr.matching.on:
            return tuple(pair for pair in labels if pair[0] in expr.matching.labels)
        return tuple(pair for pair in unnamed(labels) if pair[0] not in expr.matching.labels)

    others = {key(labels): value for labels, value in right.items()}
    if expr.operator == "and":
        return {labels: value for labels, value in left.items() if key(labels) in others}
    if expr.operator == "unless":
        return {labels: value for labels, value in left.items() if key(labels) not in others}
    if expr.operator == "or":
        known = {key(labels) for labels in left}
        return {**left, **{labels: value for labels, value in right.items() if key(labels) not in known}}
    out: Vector = {}
    for labels, value in left.items():
        if key(labels) in others:
            out[key(labels)] = OPERATORS[expr.operator](value, others[key(labels)])
    return out


def _exact_mean(values: list[float]) -> float:
    return float(sum(map(Fraction, values)) / len(values))


def _exact_variance(values: list[float]) -> float:
    return float(statistics.pvariance([Fraction(value) for value in values]))


def _growth(samples: Samples, *, counter: bool) -> float:
    total = samples[-1][1] - samples[0][1]
    if counter:
        total += sum(before for (_, before), (_, after) in itertools.pairwise(samples) if after < before)
    return total


def _extrapolated(counter: bool, per_second: bool) -> Callable[[Samples, int, int], float | None]:
    def function(samples: Samples, start: int, end: int) -> float | None:
        if len(samples) < 2:
            return None
        growth = _growth(samples, counter=counter)
        sampled = (samples[-1][0] - samples[0][0]) / 1000
        spacing = sampled / (len(samples) - 1)
        before, after = (samples[0][0] - start) / 1000, (end - samples[-1][0]) / 1000
        before = spacing / 2 if before >= spacing * 1.1 else before
        after = spacing / 2 if after >= spacing * 1.1 else after
        if counter and growth > 0 and samples[0][1] >= 0:
            before = min(before, sampled * samples[0][1] / growth)
        extended = growth * (sampled + before + after) / sampled
        return extended / ((end - start) / 1000) if per_second else extended

    return function


def _quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    rank = q * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] * (1 - (rank - low)) + ordered[high] * (rank - low)


def _slope(samples: Samples, start: int, end: int) -> float | None:
    if len(samples) < 2:
        return None
    if len({value for _, value in samples}) == 1:
        return 0.0
    times = [Fraction(at, 1000) for at, _ in samples]
    values = [Fraction(value) for _, value in samples]
    return float(statistics.linear_regression(times, values).slope)


def _over(function: Callable[[list[float]], float]) -> Callable[[Samples, int, int], float | None]:
    return lambda samples, start, end: function([value for _, value in samples])


RANGE_FUNCTIONS: dict[str, Callable[[Samples, int, int], float | None]] = {
    "rate": _extrapolated(counter=True, per_second=True),
    "increase": _extrapolated(counter=True, per_second=False),
    "delta": _extrapolated(counter=False, per_second=False),
    "deriv": _slope,
    "avg_over_time": _over(_exact_mean),
    "sum_over_time": _over(lambda values: float(sum(map(Fraction, values)))),
    "min_over_time": _over(min),
    "max_over_time": _over(max),
    "count_over_time": _over(lambda values: float(len(values))),
    "stdvar_over_time": _over(_exact_variance),
    "quantile_over_time": _over(lambda values: _quantile(values, 0.3)),
    "changes": _over(lambda values: float(sum(a != b for a, b in itertools.pairwise(values)))),
    "resets": _over(lambda values: float(sum(b < a for a, b in itertools.pairwise(values)))),
}
VECTOR_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "ceil": lambda value: float(math.ceil(value)),
    "floor": lambda value: float(math.floor(value)),
    "sgn": lambda value: float((value > 0) - (value < 0)),
}
AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "sum": lambda values: float(sum(map(Fraction, values))),
    "avg": _exact_mean,
    "min": min,
    "max": max,
    "count": lambda values: float(len(values)),
    "group": lambda values: 1.0,
    "stdvar": _exact_variance,
    "quantile": lambda values: _quantile(values, 0.3),
}
COMPARISONS: dict[str, Callable[[float, float], float]] = {
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
}
OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    **COMPARISONS,
}
