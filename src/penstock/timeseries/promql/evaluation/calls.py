"""Calls of functions: from the arguments of an expression to the families that compute."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Protocol

import numpy as np

from penstock.errors import InvalidInput, Unsupported
from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame, empty_frame, single
from penstock.timeseries.promql.columns.windows import Windows
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.evaluation.info_reference import info_lookup_times
from penstock.timeseries.promql.evaluation.selections import label_matchers
from penstock.timeseries.promql.evaluation.selectors import info_times, sample_times
from penstock.timeseries.promql.functions import bounds, histograms, rates, regression, relabeling
from penstock.timeseries.promql.functions.elementwise import DATES, ELEMENTWISE, clamp, larger, round_to, smaller
from penstock.timeseries.promql.functions.info import info_matchers, with_info
from penstock.timeseries.promql.functions.over_time import OVER_TIME, TIMESTAMPS, edge, quantile_over_time
from penstock.timeseries.promql.labels import EMPTY_LABELS, METRIC_NAME, Labels, labels_from, metric_names
from penstock.timeseries.promql.matchers import MatchKind
from penstock.timeseries.promql.syntax.signatures import UNSUPPORTED
from penstock.timeseries.promql.syntax.tree import (
    CallExpr,
    Expr,
    MatrixSelector,
    ParenExpr,
    RangeBounds,
    SubqueryExpr,
    TextSpan,
    VectorSelector,
)

__all__ = ["call"]

_EXTENDED = {
    RangeBounds.ANCHORED: ("changes", "delta", "increase", "rate", "resets"),
    RangeBounds.SMOOTHED: ("delta", "increase", "rate"),
}
_COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")


class ArgumentEvaluator(Protocol):
    """What a call needs to evaluate its arguments."""

    context: EvaluationContext

    def string(self, expr: Expr) -> str: ...

    def scalar(self, expr: Expr) -> Cells: ...

    def vector(self, expr: Expr) -> VectorFrame: ...

    def matrix(self, expr: Expr) -> Windows: ...


Call = Callable[[ArgumentEvaluator, CallExpr], VectorFrame | Cells]


def call(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame | Cells:
    if expr.function in UNSUPPORTED:
        raise Unsupported(f"the function {expr.function} is not supported", UNSUPPORTED[expr.function])
    _check_extensions(expr)
    name = expr.function
    if name in ELEMENTWISE:
        frame = evaluator.vector(expr.arguments[0])
        return frame.with_values(ELEMENTWISE[name](frame.values), unnamed=True)
    if name in OVER_TIME:
        return evaluator.matrix(expr.arguments[0]).reduce(OVER_TIME[name])
    if name in TIMESTAMPS:
        return TIMESTAMPS[name](evaluator.matrix(expr.arguments[0]))
    if name in DATES:
        return _date(evaluator, expr)
    return _CALLS[name](evaluator, expr)


def _date(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    function = DATES[expr.function]
    if not expr.arguments:
        return single(function(evaluator.context.grid.times_ms / 1000))
    frame = evaluator.vector(expr.arguments[0])
    return frame.with_values(function(frame.values), unnamed=True)


def _rate(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    windows = evaluator.matrix(expr.arguments[0])
    counter, per_second = expr.function != "delta", expr.function == "rate"
    extension = _extension(expr.arguments[0])
    if extension is None:
        frame = rates.extrapolated(windows, counter=counter, per_second=per_second)
    else:
        smoothed = extension is RangeBounds.SMOOTHED
        frame = bounds.bounded_growth(windows, smoothed=smoothed, counter=counter, per_second=per_second)
    if expr.function != "delta":
        argument = _plain(expr.arguments[0])
        # The samples of a subquery are nowhere in the expression.
        place = TextSpan(0, 0) if isinstance(argument, SubqueryExpr) else argument.place
        for name in metric_names(compress(frame.labels, frame.seen().tolist())):
            if not name.endswith(_COUNTER_SUFFIXES):
                evaluator.context.notes.inform(
                    f'metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "{name}"', place
                )
    return frame


def _steps_between(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    windows = evaluator.matrix(expr.arguments[0])
    if _extension(expr.arguments[0]) is not None:
        windows = bounds.anchored(windows)
    return rates.changes(windows) if expr.function == "changes" else rates.resets(windows)


def _extension(expr: Expr) -> RangeBounds | None:
    """The bounds that a range asks for, if it does."""
    plain = _plain(expr)
    return plain.selector.modifiers.bounds if isinstance(plain, MatrixSelector) else None


def _check_extensions(expr: CallExpr) -> None:
    """Windows of anchored and smoothed ranges hold samples outside of the range, which few functions understand."""
    for argument in expr.arguments:
        extension = _extension(argument)
        if extension is not None and expr.function not in _EXTENDED[extension]:
            raise InvalidInput(
                f"{extension.value} modifier can only be used with: {', '.join(_EXTENDED[extension])}"
                f" - not with {expr.function}",
                "it adds what stood at the bounds of a range",
            )


def _last_two(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    is_rate = expr.function == "irate"
    return rates.last_two(evaluator.matrix(expr.arguments[0]), counter=is_rate, per_second=is_rate)


def _timestamp(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    argument = _plain(expr.arguments[0])
    if isinstance(argument, VectorSelector):
        frame = sample_times(argument, evaluator.context)
        return frame.with_values(frame.values, unnamed=True)
    frame = evaluator.vector(argument)
    times = np.broadcast_to(evaluator.context.grid.times_ms / 1000, frame.values.shape)
    return frame.with_values(times, unnamed=True)


def _absent(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    if expr.function == "absent":
        present = evaluator.vector(expr.arguments[0]).covered()
    else:
        present = np.any(evaluator.matrix(expr.arguments[0]).counts > 0, axis=0)
    labels = _labels_for_absent(_plain(expr.arguments[0]))
    return single(np.ones(evaluator.context.grid.steps), ~present, labels).without_empty()


def _labels_for_absent(expr: Expr) -> Labels:
    """What the matchers say of the series that is missing, where they say one thing."""
    selector = expr.selector if isinstance(expr, MatrixSelector) else expr
    if not isinstance(selector, VectorSelector):
        return EMPTY_LABELS
    known: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in selector.matchers:
        if matcher.name == METRIC_NAME:
            continue
        if matcher.kind is MatchKind.EQUAL and matcher.name not in seen:
            known[matcher.name] = matcher.value
            seen.add(matcher.name)
        else:
            known.pop(matcher.name, None)
    return labels_from(known)


def _scalar(evaluator: ArgumentEvaluator, expr: CallExpr) -> Cells:
    """The value of the only series, where there is only one."""
    frame = evaluator.vector(expr.arguments[0])
    alone = frame.present.sum(axis=0) == 1
    return np.where(alone, np.where(frame.present, frame.values, 0.0).sum(axis=0), np.nan)


def _sorted(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    frame = evaluator.vector(expr.arguments[0])
    if evaluator.context.grid.steps > 1:
        evaluator.context.notes.warn(
            "sort is ineffective for range queries since results are always ordered by labels", expr.place
        )
        return frame
    if not frame.labels:
        return frame
    descending = expr.function.endswith("_desc")
    if expr.function.startswith("sort_by_label"):
        names = [evaluator.string(argument) for argument in expr.arguments[1:]]
        return relabeling.sort_by_label(frame, names, descending=descending)
    return relabeling.sort_by_value(frame, descending=descending)


def _clamp(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    frame = evaluator.vector(expr.arguments[0])
    limits = [evaluator.scalar(argument) for argument in expr.arguments[1:]]
    everything = np.full(evaluator.context.grid.steps, np.inf)
    if expr.function == "clamp_min":
        return clamp(frame, limits[0], everything)
    if expr.function == "clamp_max":
        return clamp(frame, -everything, limits[0])
    return clamp(frame, limits[0], limits[1])


def _round(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    frame = evaluator.vector(expr.arguments[0])
    steps = evaluator.context.grid.steps
    return round_to(frame, evaluator.scalar(expr.arguments[1]) if len(expr.arguments) > 1 else np.ones(steps))


def _predict(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    windows = evaluator.matrix(expr.arguments[0])
    return regression.predict_linear(windows, evaluator.scalar(expr.arguments[1]), evaluator.context.grid.times_ms)


def _smoothing(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    windows = evaluator.matrix(expr.arguments[0])
    factors = [evaluator.scalar(argument) for argument in expr.arguments[1:]]
    return regression.double_exponential_smoothing(windows, factors[0], factors[1])


def _quantile_over_time(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    q, windows = evaluator.scalar(expr.arguments[0]), evaluator.matrix(expr.arguments[1])
    used: Presence = np.any(windows.counts > 0, axis=0)
    histograms.warn_of_quantiles(q[used], evaluator.context, _plain(expr.arguments[0]).place)
    return quantile_over_time(windows, q)


def _histogram_quantile(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    q, frame = evaluator.scalar(expr.arguments[0]), evaluator.vector(expr.arguments[1])
    histograms.warn_of_quantiles(q, evaluator.context, _plain(expr.arguments[0]).place)
    return histograms.histogram_quantile(q, frame, evaluator.context, _plain(expr.arguments[1]).place)


def _histogram_quantiles(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    frame, label = evaluator.vector(expr.arguments[0]), evaluator.string(expr.arguments[1])
    quantiles = [evaluator.scalar(argument) for argument in expr.arguments[2:]]
    for q, argument in zip(quantiles, expr.arguments[2:], strict=True):
        histograms.warn_of_quantiles(q, evaluator.context, _plain(argument).place)
    return histograms.histogram_quantiles(label, quantiles, frame, evaluator.context, _plain(expr.arguments[0]).place)


def _histogram_fraction(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    lower, upper = evaluator.scalar(expr.arguments[0]), evaluator.scalar(expr.arguments[1])
    frame = evaluator.vector(expr.arguments[2])
    return histograms.histogram_fraction(lower, upper, frame, evaluator.context, _plain(expr.arguments[2]).place)


def _of_native_histograms(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    """These ignore plain samples, and there are no others."""
    evaluator.vector(expr.arguments[0])
    return empty_frame(evaluator.context.grid.steps)


def _label_replace(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    texts = [evaluator.string(argument) for argument in expr.arguments[1:]]
    return relabeling.label_replace(evaluator.vector(expr.arguments[0]), texts[0], texts[1], texts[2], texts[3])


def _label_join(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    target, separator, *sources = (evaluator.string(argument) for argument in expr.arguments[1:])
    return relabeling.label_join(evaluator.vector(expr.arguments[0]), target, separator, sources)


def _info(evaluator: ArgumentEvaluator, expr: CallExpr) -> VectorFrame:
    frame = evaluator.vector(expr.arguments[0])
    asked = info_matchers(label_matchers(expr))
    times = info_lookup_times(expr.arguments[0], evaluator.context)
    described = info_times((*asked.names, *asked.data), times, evaluator.context)
    return with_info(frame, described, asked)


def _constant(evaluator: ArgumentEvaluator, expr: CallExpr) -> Cells:
    query = evaluator.context.query
    range_ms = query.end_ms - query.start_ms
    value = {
        "pi": np.pi,
        "start": query.start_ms / 1000,
        "end": query.end_ms / 1000,
        "range": range_ms / 1000,
        # Unlike in a duration, a query of one time has no step here.
        "step": query.step_ms / 1000 if range_ms else 0.0,
    }[expr.function]
    return np.full(evaluator.context.grid.steps, value)


def _of_two(evaluator: ArgumentEvaluator, expr: CallExpr) -> Cells:
    left, right = (evaluator.scalar(argument) for argument in expr.arguments)
    return larger(left, right) if expr.function == "max_of" else smaller(left, right)


def _plain(expr: Expr) -> Expr:
    while isinstance(expr, ParenExpr):
        expr = expr.inner
    return expr


_CALLS: dict[str, Call] = {
    "absent": _absent,
    "absent_over_time": _absent,
    "changes": _steps_between,
    "clamp": _clamp,
    "clamp_max": _clamp,
    "clamp_min": _clamp,
    "delta": _rate,
    "deriv": lambda evaluator, expr: regression.deriv(evaluator.matrix(expr.arguments[0])),
    "double_exponential_smoothing": _smoothing,
    "end": _constant,
    "first_over_time": lambda evaluator, expr: edge(evaluator.matrix(expr.arguments[0]), last=False),
    "histogram_avg": _of_native_histograms,
    "histogram_count": _of_native_histograms,
    "histogram_fraction": _histogram_fraction,
    "histogram_quantile": _histogram_quantile,
    "histogram_quantiles": _histogram_quantiles,
    "histogram_stddev": _of_native_histograms,
    "histogram_stdvar": _of_native_histograms,
    "histogram_sum": _of_native_histograms,
    "idelta": _last_two,
    "increase": _rate,
    "info": _info,
    "irate": _last_two,
    "label_join": _label_join,
    "label_replace": _label_replace,
    "last_over_time": lambda evaluator, expr: edge(evaluator.matrix(expr.arguments[0]), last=True),
    "max_of": _of_two,
    "min_of": _of_two,
    "pi": _constant,
    "predict_linear": _predict,
    "quantile_over_time": _quantile_over_time,
    "range": _constant,
    "rate": _rate,
    "resets": _steps_between,
    "round": _round,
    "scalar": _scalar,
    "sort": _sorted,
    "sort_by_label": _sorted,
    "sort_by_label_desc": _sorted,
    "sort_desc": _sorted,
    "start": _constant,
    "step": _constant,
    "time": lambda evaluator, expr: evaluator.context.grid.times_ms / 1000,
    "timestamp": _timestamp,
    "vector": lambda evaluator, expr: single(evaluator.scalar(expr.arguments[0])),
}
