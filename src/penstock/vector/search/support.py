"""Rows of one document support each other: a page with two good passages is a better answer than one with a single one.

The best row of a group gets what the whole group is worth: the words of its best row, a share of the words of the
second best, and the nearest of its vectors. Words and vectors often find different passages of the right document. The
other rows keep their scores, so that one document does not fill an answer. Pure.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.vector.arrays import Array, Column
from penstock.vector.search.fusion import Ranking, best_places

__all__ = ["SUPPORT_MAX", "group_codes", "supported"]

# 0.15 to 0.35 are equally good on average; more makes long documents win (docs/decisions/0014-answers.md).
_SECOND_SHARE: Final = 0.25
# The best row of a group may have at most so much of the best score of a row alone.
SUPPORT_MAX: Final = 1 + _SECOND_SHARE
_NO_GROUP: Final = -1
# So few are numbered before Arrow's kernels would be loaded.
_FEW_ROWS: Final = 64


def group_codes(values: Column) -> Array:
    """A number for each different value, in the order of the rows; -1 for rows without one."""
    if len(values) > _FEW_ROWS:
        codes: Array = values.dictionary_encode().indices.fill_null(_NO_GROUP).to_numpy(zero_copy_only=False)
        return codes
    numbers: dict[object, int] = {None: _NO_GROUP}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values.to_pylist()], np.int64)


def supported(ranking: Ranking, groups: Array, count: int) -> Ranking:
    """The best `count` rows of a ranking whose rows are of these groups."""
    scores = ranking.scores.astype(np.float64)
    near = np.zeros_like(scores) if ranking.near is None else ranking.near.astype(np.float64)
    words = scores - near
    places = np.flatnonzero(groups != _NO_GROUP)
    if len(places):
        # Group by group, the best words first.
        order = places[np.lexsort((-words[places], groups[places]))]
        firsts = np.flatnonzero(np.diff(groups[order], prepend=_NO_GROUP))
        worth = words[order[firsts]] + np.maximum.reduceat(near[order], firsts)
        paired = np.diff(firsts, append=len(order)) > 1
        worth[paired] += _SECOND_SHARE * np.maximum(words[order[firsts[paired] + 1]], 0)
        # Rows come best first: the one with the least place is the best of its group.
        scores[np.minimum.reduceat(order, firsts)] = worth
    best = best_places(scores, count)
    return Ranking(ranking.ids[best], scores[best].astype(np.float32))
