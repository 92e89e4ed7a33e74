"""One ranking from two: how near a row's vector is, and how well its text answers.

Reciprocal rank (the default) adds 1 / (60 + rank) over both rankings and needs no scale: right for two rankings that
are equally good. A weighted sum takes each score as a share of the best one of its ranking and mixes the shares: a weak
model gets a small say, and what a row gets does not depend on how many others were looked at. A row that one ranking
lacks gets nothing from it.

Words that a text does not have score nothing, but no two texts are so far apart that a model finds nothing in common:
its scores have no zero of their own. They are counted from the row that is three quarters down the ranking, so that
rows which are as near as most get nothing from it, like those behind the ranking's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import InvalidInput
from penstock.vector.arrays import Array, Floats, Ids, distinct

__all__ = ["BY_RANK", "Fusion", "Ranking", "best_places", "fuse"]

# The constant of the method's authors: it keeps the first place of one ranking from outweighing all of the other.
_RANK_OFFSET: Final = 60.0
# Where in a ranking of vectors what is near ends and what is ordinary begins: the best of four places on any thirteen of
# fourteen sets of questions (docs/decisions/0014-answers.md).
_ORDINARY_PLACE: Final = 0.75
# Among fewer rows nothing is ordinary; and of a deeper ranking this much is asked, so that it says the same.
_ORDINARY_ROWS_MIN: Final = 32
_ORDINARY_ROWS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Fusion:
    """How to join two rankings: by rank, or by score with this share for the vectors."""

    vector_weight: float | None = None

    def __post_init__(self) -> None:
        if self.vector_weight is not None and not 0 <= self.vector_weight <= 1:
            raise InvalidInput(f"vector_weight = {self.vector_weight}", "it is a fraction, from 0 to 1")

    @classmethod
    def reciprocal(cls) -> Fusion:
        return cls()

    @classmethod
    def weighted(cls, vector_weight: float) -> Fusion:
        return cls(vector_weight)


# What a search uses that does not say.
BY_RANK: Final = Fusion()


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rows of one query, best first."""

    ids: Ids
    scores: Floats
    # What of each score comes from the vectors, where two rankings were mixed by their scores.
    near: Floats | None = None

    @classmethod
    def none(cls) -> Ranking:
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))


def fuse(vectors: Ranking, texts: Ranking, how: Fusion, count: int | None = None) -> Ranking:
    """The best `count` rows of both rankings together, or all; of equals the older row first."""
    ids = distinct(np.concatenate([vectors.ids, texts.ids]))
    close, told = _scores_of(vectors, ids, how, _ordinary(vectors.scores)), _scores_of(texts, ids, how)
    if how.vector_weight is None:
        total = close + told
        best = np.argsort(-total, kind="stable")[:count]
        return Ranking(ids[best], total[best].astype(np.float32))
    near = how.vector_weight * close
    total = near + (1 - how.vector_weight) * told
    best = np.argsort(-total, kind="stable")[:count]
    return Ranking(ids[best], total[best].astype(np.float32), near[best].astype(np.float32))


def _scores_of(ranking: Ranking, ids: Ids, how: Fusion, ordinary: float = 0.0) -> Array:
    """What each of the rows `ids` gets from one ranking; nothing where it is not there, or no better than `ordinary`."""
    scores = np.zeros(len(ids), np.float64)
    by_rank = how.vector_weight is None
    gained = 1.0 / (_RANK_OFFSET + 1 + np.arange(len(ranking.ids))) if by_rank else _shares(ranking.scores, ordinary)
    scores[np.searchsorted(ids, ranking.ids)] = gained
    return scores


def best_places(scores: Array, count: int) -> Array:
    """Places of the highest scores, of equals the first."""
    if len(scores) > count:
        # Everything that ties with the last place is looked at, so that equals are chosen by age.
        edge = np.partition(scores, len(scores) - count)[len(scores) - count]
        near = np.flatnonzero(scores >= edge)
    else:
        near = np.arange(len(scores))
    chosen: Array = near[np.argsort(-scores[near], kind="stable")][:count]
    return chosen


def _ordinary(scores: Floats) -> float:
    """The score of rows that are near to a query by chance; never below zero, nor the best score itself."""
    rows = min(len(scores), _ORDINARY_ROWS_MAX)
    if rows < _ORDINARY_ROWS_MIN:
        return 0.0
    found = max(float(scores[int(_ORDINARY_PLACE * (rows - 1))]), 0.0)
    return found if found < scores[0] else 0.0


def _shares(scores: Floats, ordinary: float = 0.0) -> Floats:
    """Scores above what is ordinary as shares of the best; what is no better counts nothing."""
    above = np.maximum(scores - np.float32(ordinary), 0)
    best = above.max(initial=0)
    shares: Floats = above / best if best > 0 else np.zeros_like(scores)
    return shares
