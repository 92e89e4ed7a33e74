"""Binary operators between vectors: which series find each other, and what becomes of them.

Label sets are matched once; after that every operation works on whole matrices.
"""

from __future__ import annotations

import dataclasses
from itertools import chain

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput
from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame, empty_frame, merged
from penstock.timeseries.promql.columns.operators import ARITHMETIC, computed
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.evaluation.aggregation import runs_of
from penstock.timeseries.promql.labels import (
    Labels,
    projected,
    replace_each,
    set_text,
    signatures,
    values_of,
    without_metadata,
)
from penstock.timeseries.promql.syntax.tree import BinaryExpr, Cardinality, VectorMatching

__all__ = ["combine", "set_operation"]

Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class _Sides:
    """Two frames and the match group of each of their series."""

    many: VectorFrame
    one: VectorFrame
    many_groups: Numbers
    one_groups: Numbers
    groups: list[Labels]

    def present_in(self, frame: VectorFrame, owners: Numbers) -> npt.NDArray[np.int64]:
        """How many series of each group exist at each step."""
        counts = np.zeros((len(self.groups), frame.steps), np.int64)
        np.add.at(counts, owners, frame.present)
        return counts


def _sides(many: VectorFrame, one: VectorFrame, matching: VectorMatching) -> _Sides:
    keys = [signatures(side.labels, matching.labels, on=matching.on) for side in (many, one)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(chain(*keys)))}
    owners = [np.fromiter(map(numbers.__getitem__, own), np.int64, len(own)) for own in keys]
    return _Sides(many, one, owners[0], owners[1], list(numbers))


def set_operation(operator: str, left: VectorFrame, right: VectorFrame, matching: VectorMatching) -> VectorFrame:
    """`and`, `or` and `unless`: series stay as they are, or go."""
    sides = _sides(left, right, matching)
    if operator == "or":
        taken = sides.present_in(left, sides.many_groups) > 0
        added = right.with_values(right.values, present=right.present & ~taken[sides.one_groups]).without_empty()
        return merged(_stacked(left, added))
    other = sides.present_in(right, sides.one_groups)[sides.many_groups] > 0
    kept = left.present & (other if operator == "and" else ~other)
    return left.with_values(left.values, present=kept).without_empty()


def _stacked(*frames: VectorFrame) -> VectorFrame:
    return VectorFrame(
        [labels for frame in frames for labels in frame.labels],
        np.concatenate([frame.values for frame in frames]),
        np.concatenate([frame.present for frame in frames]),
        np.concatenate([frame.unnamed for frame in frames]),
    )


def combine(expr: BinaryExpr, left: VectorFrame, right: VectorFrame, context: EvaluationContext) -> VectorFrame:
    """Arithmetic and comparison between the series of two vectors that match."""
    matching = expr.matching
    swapped = matching.cardinality is Cardinality.ONE_TO_MANY
    sides = _sides(right, left, matching) if swapped else _sides(left, right, matching)
    _refuse_ambiguous_one(sides, matching, swapped=swapped)
    pairs = _pairs(sides, context)
    # As in Prometheus, `fill_left` is the value of the many side, even where group_right puts that to the right.
    filled = [*_filled_one(sides, matching.fill_right), *_filled_many(sides, matching.fill_left, pairs)]
    parts = [pairs, *filled]
    return _applied(expr, sides, parts, swapped=swapped)


@dataclasses.dataclass(frozen=True)
class _Pairs:
    """Rows to compute: the labels of both sides, their values, and where both exist."""

    groups: Numbers
    many_labels: list[Labels]
    one_labels: list[Labels]
    many: Cells
    one: Cells
    present: Presence


def _pairs(sides: _Sides, context: EvaluationContext) -> _Pairs:
    order, starts, lengths = runs_of(sides.one_groups, len(sides.groups))
    partners = lengths[sides.many_groups]
    context.budget.check_cells(int(partners.sum()), sides.many.steps)
    many = np.repeat(np.arange(len(sides.many_groups)), partners)
    place = np.arange(len(many)) - np.repeat(np.cumsum(partners) - partners, partners)
    one = order[starts[sides.many_groups[many]] + place]
    return _Pairs(
        sides.many_groups[many],
        [sides.many.labels[row] for row in many],
        [sides.one.labels[row] for row in one],
        sides.many.values[many],
        sides.one.values[one],
        sides.many.present[many] & sides.one.present[one],
    )


def _filled_one(sides: _Sides, fill: float | None) -> list[_Pairs]:
    """Series of the many side that found nothing meet the fill value."""
    if fill is None:
        return []
    found = sides.present_in(sides.one, sides.one_groups)[sides.many_groups] > 0
    labels = [sides.groups[group] for group in sides.many_groups]
    values = np.full(sides.many.values.shape, fill)
    return [
        _Pairs(sides.many_groups, sides.many.labels, labels, sides.many.values, values, sides.many.present & ~found)
    ]


def _filled_many(sides: _Sides, fill: float | None, pairs: _Pairs) -> list[_Pairs]:
    """Series of the one side that nothing found meet the fill value."""
    if fill is None:
        return []
    met = np.zeros((len(sides.groups), sides.one.steps), np.bool_)
    np.logical_or.at(met, pairs.groups, pairs.present)
    labels = [sides.groups[group] for group in sides.one_groups]
    values = np.full(sides.one.values.shape, fill)
    present = sides.one.present & ~met[sides.one_groups]
    return [_Pairs(sides.one_groups, labels, sides.one.labels, values, sides.one.values, present)]


def _applied(expr: BinaryExpr, sides: _Sides, parts: list[_Pairs], *, swapped: bool) -> VectorFrame:
    groups = np.concatenate([part.groups for part in parts])
    if not len(groups):
        return empty_frame(sides.many.steps)
    many = np.concatenate([part.many for part in parts])
    one = np.concatenate([part.one for part in parts])
    present = np.concatenate([part.present for part in parts])
    labels = [own for part in parts for own in _result_labels(part, expr)]
    _refuse_ambiguous_many(expr.matching, groups, labels, present)
    left, right = (one, many) if swapped else (many, one)
    values, kept = computed(expr.operator, left, right, returns_bool=expr.returns_bool)
    shown = present if kept is None else present & kept
    frame = VectorFrame(labels, np.where(shown, values, 0.0), shown, np.full(len(labels), expr.returns_bool))
    return merged(frame).without_empty()


def _result_labels(pairs: _Pairs, expr: BinaryExpr) -> list[Labels]:
    matching = expr.matching
    labels = without_metadata(pairs.many_labels) if expr.operator in ARITHMETIC else pairs.many_labels
    if matching.cardinality is Cardinality.ONE_TO_ONE:
        labels = projected(labels, matching.labels, kept=matching.on)
    for name in matching.include:
        labels = replace_each(labels, name, values_of(pairs.one_labels, name))
    return labels


def _refuse_ambiguous_one(sides: _Sides, matching: VectorMatching, *, swapped: bool) -> None:
    """The one side must have one series for each match group, wherever there is anything to match."""
    twice = sides.present_in(sides.one, sides.one_groups) > 1
    some = sides.many.covered()
    if matching.fill_left is not None or matching.fill_right is not None:
        some = np.ones_like(some)
    wrong = np.argwhere(twice & some[None, :])
    if len(wrong):
        group, step = int(wrong[0, 0]), int(wrong[0, 1])
        rows = np.flatnonzero((sides.one_groups == group) & sides.one.present[:, step])[:2]
        raise InvalidInput(
            f"found duplicate series for the match group {set_text(sides.groups[group])} on the "
            f"{'left' if swapped else 'right'} hand-side of the operation: "
            f"[{', '.join(set_text(labels) for labels in sorted(sides.one.labels[row] for row in rows))}];many-to-many matching not allowed: "
            "matching labels must be unique on one side",
            "series of the other side would find several partners",
        )


def _refuse_ambiguous_many(matching: VectorMatching, groups: Numbers, labels: list[Labels], present: Presence) -> None:
    """One result for each match group, or, with a group modifier, for each set of labels in it."""
    one_to_one = matching.cardinality is Cardinality.ONE_TO_ONE
    numbers: dict[tuple[int, Labels], int] = {}
    keys = [
        numbers.setdefault((group, () if one_to_one else own), len(numbers))
        for group, own in zip(groups.tolist(), labels, strict=True)
    ]
    if len(numbers) == len(keys):
        return
    counts = np.zeros((len(numbers), present.shape[1]), np.int64)
    np.add.at(counts, np.array(keys), present)
    if (counts > 1).any():
        raise InvalidInput(
            "multiple matches for labels",
            "many-to-one matching must be explicit (group_left/group_right)"
            if one_to_one
            else "grouping labels must ensure unique matches",
        )
