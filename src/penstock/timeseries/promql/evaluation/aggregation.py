"""Aggregations that make one series of a group: sum, avg, min, max, count, group, stddev, stdvar, quantile, count_values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput
from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame, empty_frame
from penstock.timeseries.promql.columns.quantiles import sorted_quantile
from penstock.timeseries.promql.columns.ragged import blocks
from penstock.timeseries.promql.columns.summing import compensated_mean, compensated_sum, variance
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.labels import Labels, drop, replace, signature, signatures
from penstock.timeseries.promql.syntax.number_text import plain_text

__all__ = ["AGGREGATES", "aggregate", "count_values", "group_numbers", "runs_of"]

# Of values (groups × members × steps), which of them exist, and how many do.
Aggregate = Callable[[Cells, Presence, Cells], Cells]


def _extreme(reduce: np.ufunc) -> Aggregate:
    def found(values: Cells, shown: Presence, _: Cells) -> Cells:
        # NaN gives way to every other value.
        extreme: Cells = reduce.reduce(np.where(shown, values, np.nan), axis=1)
        return extreme

    return found


AGGREGATES: dict[str, Aggregate] = {
    "avg": lambda values, shown, counts: compensated_mean(values, counts),
    "count": lambda values, shown, counts: counts,
    "group": lambda values, shown, counts: np.ones_like(counts),
    "max": _extreme(np.fmax),
    "min": _extreme(np.fmin),
    "stddev": lambda values, shown, counts: np.sqrt(variance(values, shown, counts)),
    "stdvar": variance,
    "sum": lambda values, shown, counts: compensated_sum(values),
}


def group_numbers(
    labels: list[Labels], grouping: tuple[str, ...], *, without: bool
) -> tuple[list[Labels], npt.NDArray[np.int64]]:
    """The groups by first appearance, and the group of each series."""
    found = signatures(labels, grouping, on=not without)
    groups = list(dict.fromkeys(found))
    numbers = {group: number for number, group in enumerate(groups)}
    return groups, np.fromiter(map(numbers.__getitem__, found), np.int64, len(found))


def runs_of(
    owners: npt.NDArray[np.int64], groups: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows ordered by group, where each group starts in that order, and its length."""
    order = np.argsort(owners, kind="stable")
    lengths = np.bincount(owners, minlength=groups)
    return order, np.cumsum(lengths) - lengths, lengths


def aggregate(
    operator: str, frame: VectorFrame, parameter: Cells | None, grouping: tuple[str, ...], *, without: bool
) -> VectorFrame:
    """One series for each group; a group exists at a step if any of its series does."""
    if not frame.labels:
        return empty_frame(frame.steps)
    labels, owners = group_numbers(frame.labels, grouping, without=without)
    order, starts, lengths = runs_of(owners, len(labels))
    values = np.zeros((len(labels), frame.steps))
    present = np.zeros(values.shape, np.bool_)
    function = AGGREGATES.get(operator) or _quantile(parameter)
    for groups, positions, members in blocks(starts, lengths, width=frame.steps):
        rows = order[positions]
        shown = frame.present[rows] & members[:, :, None]
        counts = shown.sum(axis=1).astype(np.float64)
        cells = np.where(shown, frame.values[rows], 0.0)
        values[groups] = function(cells, shown, np.maximum(counts, 1.0))
        present[groups] = counts > 0
    unnamed = np.zeros(len(labels), np.bool_)
    np.logical_or.at(unnamed, owners, frame.unnamed)
    return VectorFrame(labels, np.where(present, values, 0.0), present, unnamed)


def _quantile(parameter: Cells | None) -> Aggregate:
    assert parameter is not None

    def found(values: Cells, shown: Presence, _: Cells) -> Cells:
        return sorted_quantile(values, shown, np.broadcast_to(parameter[None, :], (len(values), len(parameter))))

    return found


def count_values(
    frame: VectorFrame, label: str, grouping: tuple[str, ...], context: EvaluationContext, *, without: bool
) -> VectorFrame:
    """How many series have each value; the value becomes a label."""
    if not label:
        raise InvalidInput(f"invalid label name {label}".rstrip(), "count_values needs a label to put the value into")
    if not frame.present.any():
        return empty_frame(frame.steps)
    group_of = signature(grouping if without else (*grouping, label), on=not without)
    # Rows of one kind have the same group for the same value.
    kinds, owners = group_numbers([drop(labels, (label,)) for labels in frame.labels], grouping, without=without)
    rows, steps = np.nonzero(frame.present)
    # By their bits: zero and negative zero are told apart, and NaNs of all kinds meet in one label.
    bits, codes = np.unique(frame.values[rows, steps].view(np.int64), return_inverse=True)
    texts = [plain_text(value) for value in bits.view(np.float64).tolist()]
    pairs, codes = np.unique(owners[rows] * len(bits) + codes.ravel(), return_inverse=True)
    numbers: dict[Labels, int] = {}
    groups = np.empty(len(pairs), np.int64)
    for place, (kind, value) in enumerate(zip(*(part.tolist() for part in np.divmod(pairs, len(bits))), strict=True)):
        group = group_of(replace(kinds[kind], label, texts[value]))
        groups[place] = numbers.setdefault(group, len(numbers))
        context.budget.check_cells(len(numbers), frame.steps)
    cells = np.zeros((len(numbers), frame.steps))
    np.add.at(cells, (groups[codes.ravel()], steps), 1.0)
    return VectorFrame(list(numbers), cells, cells > 0, np.zeros(len(numbers), np.bool_))
