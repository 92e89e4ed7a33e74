"""Selectors and subqueries: from the source's columns to frames and windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput
from penstock.timeseries.promql.columns.frame import Presence, VectorFrame, empty_frame
from penstock.timeseries.promql.columns.grid import Grid, subquery_grid
from penstock.timeseries.promql.columns.windows import Windows, last_before, windows_of
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.matchers import Matcher
from penstock.timeseries.promql.source import SeriesColumns, Times, is_stale
from penstock.timeseries.promql.syntax.tree import (
    Duration,
    MatrixSelector,
    Modifiers,
    RangeBounds,
    SubqueryExpr,
    VectorSelector,
)

__all__ = [
    "info_times",
    "instant",
    "positive",
    "range_windows",
    "reach",
    "sample_times",
    "subquery_windows",
    "times_of",
]


def instant(expr: VectorSelector, context: EvaluationContext) -> VectorFrame:
    """The newest sample of each series within the lookback of each step."""
    if expr.modifiers.bounds is RangeBounds.SMOOTHED:
        return _smoothed(expr, context)
    columns, positions, present = _newest(expr, context)
    context.count(present)
    values = columns.values[positions] if columns.sample_count else np.zeros(positions.shape)
    return _frame(columns, np.where(present, values, 0.0), present).without_empty()


def sample_times(expr: VectorSelector, context: EvaluationContext) -> VectorFrame:
    """The same, with the seconds of each sample's own time for its value."""
    columns, positions, present = _newest(expr, context)
    context.count(present)
    return _times_of_samples(columns, positions, present)


def info_times(matchers: tuple[Matcher, ...], times: Times, context: EvaluationContext) -> VectorFrame:
    """Times of the newest samples at each of these times: one a step, or one for all."""
    columns = _select(matchers, *reach(Modifiers(), times, context.config.lookback_ms, None), context)
    return _times_of_samples(columns, *_newest_of(columns, times, context))


def _times_of_samples(columns: SeriesColumns, positions: npt.NDArray[np.int64], present: Presence) -> VectorFrame:
    times = columns.timestamps[positions] / 1000 if columns.sample_count else np.zeros(positions.shape)
    return _frame(columns, np.where(present, times, 0.0), present).without_empty()


def _smoothed(expr: VectorSelector, context: EvaluationContext) -> VectorFrame:
    """The value on the line between the samples around each step, or the one before it while none follows."""
    times = times_of(expr.modifiers, context)
    first_ms, last_ms = reach(expr.modifiers, times, context.config.lookback_ms, None)
    columns = _select(expr.matchers, first_ms, last_ms, context)
    columns = _without(columns, is_stale(columns.values))
    if not columns.sample_count:
        return empty_frame(context.grid.steps)
    lookback = context.config.lookback_ms
    before, behind = last_before(columns, times) - 1, last_before(columns, times - 1)
    found = before >= last_before(columns, times - lookback)
    followed = behind < last_before(columns, times + lookback)
    before, behind = np.where(found, before, 0), np.where(found & followed, behind, 0)
    older, newer = columns.values[before], columns.values[behind]
    apart = columns.timestamps[behind] - columns.timestamps[before]
    since = times[None, :] - columns.timestamps[before]
    along = older + (newer - older) * since / np.where(apart > 0, apart, 1)
    values = np.where(followed & (apart > 0), along, older)
    if len(times) != context.grid.steps:
        shape = (len(columns.labels), context.grid.steps)
        values, found = np.broadcast_to(values, shape), np.broadcast_to(found, shape)
    context.count(found)
    return _frame(columns, np.where(found, values, 0.0), found).without_empty()


def range_windows(expr: MatrixSelector, context: EvaluationContext) -> Windows:
    """The samples of a range before each step; staleness markers are no samples.

    Windows of anchored and smoothed ranges hold what lies within the lookback of their bounds, too.
    """
    range_ms = positive(context, expr.range)
    modifiers = expr.selector.modifiers
    ends = times_of(modifiers, context)
    first_ms, last_ms = reach(modifiers, ends, context.config.lookback_ms, range_ms)
    columns = _select(expr.selector.matchers, first_ms, last_ms, context)
    columns = _without(columns, is_stale(columns.values))
    unnamed = np.zeros(len(columns.labels), np.bool_)
    before, behind = int(ends[0]) - range_ms + 1 - first_ms, last_ms - int(ends[-1])
    windows = windows_of(columns, ends, range_ms, unnamed, context.grid.steps, before_ms=before, behind_ms=behind)
    context.count(windows.counts)
    return windows


def reach(modifiers: Modifiers, times: Times, lookback_ms: int, range_ms: int | None) -> tuple[int, int]:
    """The first and last millisecond that a selector reads for these times; without a range it is an instant one."""
    before = (range_ms or 0) + (lookback_ms if range_ms is None or modifiers.bounds is not None else 0)
    behind = lookback_ms if modifiers.bounds is RangeBounds.SMOOTHED else 0
    return int(times[0]) - before + 1, int(times[-1]) + behind


def subquery_windows(
    expr: SubqueryExpr, context: EvaluationContext, evaluate: Callable[[EvaluationContext], VectorFrame]
) -> Windows:
    """The values of an expression in a range before each step."""
    range_ms = positive(context, expr.range)
    step_ms = context.config.subquery_step_ms if expr.step is None else positive(context, expr.step)
    ends = times_of(expr.modifiers, context)
    grid = subquery_grid(int(ends[0]), int(ends[-1]), range_ms, step_ms)
    context.budget.check_cells(1, grid.steps)
    if grid.steps == 0:
        frame = VectorFrame([], np.empty((0, 0)), np.empty((0, 0), np.bool_), np.empty(0, np.bool_))
    else:
        frame = evaluate(context.within(grid).uncounted())
    windows = windows_of(_columns(frame, grid), ends, range_ms, frame.unnamed, context.grid.steps)
    context.count(windows.counts)
    return windows


def times_of(modifiers: Modifiers, context: EvaluationContext) -> Times:
    """The times at which a selector looks: one for each step, or one for all of them."""
    offset = 0 if modifiers.offset is None else context.milliseconds(modifiers.offset)
    at = context.at_ms(modifiers)
    times = context.grid.times_ms if at is None else np.array([at], dtype=np.int64)
    return times - offset


def positive(context: EvaluationContext, duration: Duration) -> int:
    """Milliseconds of a range or step, which arithmetic may have made zero or less."""
    found = context.milliseconds(duration)
    if found <= 0:
        raise InvalidInput("a duration of the expression is not positive", "ranges and steps must be greater than 0")
    return found


def _newest(expr: VectorSelector, context: EvaluationContext) -> tuple[SeriesColumns, npt.NDArray[np.int64], Presence]:
    times = times_of(expr.modifiers, context)
    columns = _select(expr.matchers, *reach(Modifiers(), times, context.config.lookback_ms, None), context)
    return columns, *_newest_of(columns, times, context)


def _newest_of(
    columns: SeriesColumns, times: Times, context: EvaluationContext
) -> tuple[npt.NDArray[np.int64], Presence]:
    """Positions of the samples that stand at these times, and where there is one."""
    lookback = context.config.lookback_ms
    positions = last_before(columns, times) - 1
    found = positions >= columns.offsets[:-1][:, None]
    positions = np.maximum(positions, 0)
    if columns.sample_count:
        fresh = columns.timestamps[positions] > (times - lookback)[None, :]
        found &= fresh & ~is_stale(columns.values)[positions]
    if len(times) != context.grid.steps:
        shape = (len(columns.labels), context.grid.steps)
        positions, found = np.broadcast_to(positions, shape), np.broadcast_to(found, shape)
    return positions, found


def _frame(columns: SeriesColumns, values: npt.NDArray[np.float64], present: Presence) -> VectorFrame:
    return VectorFrame(columns.labels, values, present, np.zeros(len(columns.labels), np.bool_))


def _select(matchers: tuple[Matcher, ...], start_ms: int, end_ms: int, context: EvaluationContext) -> SeriesColumns:
    context.budget.check_time()
    columns = context.source.select(matchers, start_ms, end_ms)
    context.budget.check_cells(1, columns.sample_count)
    context.budget.check_cells(len(columns.labels), context.grid.steps)
    return columns


def _without(columns: SeriesColumns, gone: Presence) -> SeriesColumns:
    if not gone.any():
        return columns
    before = np.concatenate([[0], np.cumsum(gone)])
    return dataclasses.replace(
        columns,
        offsets=columns.offsets - before[columns.offsets],
        timestamps=columns.timestamps[~gone],
        values=columns.values[~gone],
    )


def _columns(frame: VectorFrame, grid: Grid) -> SeriesColumns:
    """The cells of a frame as samples at the times of its steps."""
    counts = frame.present.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    _, steps = np.nonzero(frame.present)
    times = grid.times_ms[steps] if len(steps) else np.empty(0, np.int64)
    return SeriesColumns(frame.labels, offsets, times, frame.values[frame.present])
