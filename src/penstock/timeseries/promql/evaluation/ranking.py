"""Aggregations that choose series and leave them as they are: topk, bottomk, limitk, limit_ratio."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput
from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame, empty_frame
from penstock.timeseries.promql.columns.ragged import blocks
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.evaluation.aggregation import group_numbers, runs_of
from penstock.timeseries.promql.labels import fraction
from penstock.timeseries.promql.syntax.number_text import go_text
from penstock.timeseries.promql.syntax.tree import TextSpan

__all__ = ["limit_ratio", "ranked"]

_INTEGER_MAX = 2.0**63


def ranked(operator: str, frame: VectorFrame, count: Cells, grouping: tuple[str, ...], *, without: bool) -> VectorFrame:
    """The first k series of each group and step: the largest, the smallest, or any."""
    if (count < 1).all():
        return empty_frame(frame.steps)
    if np.isnan(count).any():
        raise InvalidInput("Parameter value is NaN", f"{operator} takes a number of series")
    for wrong, word in ((count >= _INTEGER_MAX, "overflows"), (count <= -_INTEGER_MAX, "underflows")):
        if wrong.any():
            value = go_text(float(count[wrong][0]))
            raise InvalidInput(f"Scalar value {value} {word} int64", f"{operator} takes a number of series")
    if not frame.labels:
        return frame
    labels, owners = group_numbers(frame.labels, grouping, without=without)
    ranks = _ranks(operator, frame, owners, len(labels))
    kept = frame.present & (ranks < np.trunc(count)[None, :])
    chosen = frame.with_values(frame.values, present=kept)
    if frame.steps == 1:
        # The order of an instant query's answer is the ranking.
        chosen = chosen.take(np.lexsort((ranks[:, 0], owners)))
    return chosen.without_empty()


def _ranks(operator: str, frame: VectorFrame, owners: npt.NDArray[np.int64], groups: int) -> npt.NDArray[np.int64]:
    """The place of each series within its group, at each step."""
    order, starts, lengths = runs_of(owners, groups)
    ranks = np.zeros(frame.present.shape, np.int64)
    for _, positions, members in blocks(starts, lengths, width=frame.steps):
        rows = order[positions]
        shown = frame.present[rows] & members[:, :, None]
        if operator == "limitk":
            places = np.cumsum(shown, axis=1) - 1
        else:
            values = frame.values[rows]
            places = _places(-values if operator == "topk" else values, shown)
        ranks[rows[members]] = places[members]
    return ranks


def _places(keys: Cells, shown: Presence) -> npt.NDArray[np.int64]:
    """Places by rising key along axis 1: numbers, then NaN, then what does not exist; equal ones keep their order."""
    order = np.argsort(np.where(shown, keys, np.nan), axis=1, kind="stable")
    missing = np.take_along_axis(~shown, order, axis=1)
    order = np.take_along_axis(order, np.argsort(missing, axis=1, kind="stable"), axis=1)
    return np.argsort(order, axis=1, kind="stable")


def limit_ratio(frame: VectorFrame, ratio: Cells, context: EvaluationContext, place: TextSpan) -> VectorFrame:
    """About this share of all series, always the same ones; a negative ratio chooses the others."""
    if np.isnan(ratio).any():
        raise InvalidInput("Ratio value is NaN", "it must lie between -1 and 1")
    for extreme, limit in ((float(ratio.max()), 1), (float(ratio.min()), -1)):
        if extreme * limit > 1:
            text = go_text(extreme)
            context.notes.warn(f"ratio value should be between -1 and 1, got {text}, capping to {limit}", place)
    bounded = np.clip(ratio, -1.0, 1.0)[None, :]
    offsets = np.array([fraction(labels) for labels in frame.labels])[:, None]
    kept = np.where(bounded >= 0, offsets < bounded, offsets >= 1.0 + bounded) & (bounded != 0)
    return frame.with_values(frame.values, present=frame.present & kept).without_empty()
