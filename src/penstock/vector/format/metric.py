"""How near two vectors are. Every score here grows with nearness, whatever the metric.

Lists are kept by Euclidean distance in all three metrics. Under cosine vectors and centres are brought to length
one, where both agree: centres of any length would draw queries to the loosest clusters. Under dot the lists are
clusters in space and only their order of probing is by dot.
"""

from __future__ import annotations

from enum import StrEnum
from math import sqrt
from typing import Final

import numpy as np

from penstock.vector.arrays import Floats

__all__ = ["MAGNITUDE_MAX", "DistanceMetric", "all_between", "squared_lengths"]

# Sums of squares of such numbers over any sensible dimension stay finite in four-byte floats.
MAGNITUDE_MAX: Final = 1e15

# Between these, squares of lengths are full floats: nothing has vanished and nothing overflowed.
_SQUARE_MIN: Final = 1e-25
_SQUARE_MAX: Final = 1e35

# So many values are looked at sooner than an array kernel is called: a single query has one.
_FEW: Final = 4


class DistanceMetric(StrEnum):
    """COSINE: the angle alone counts. DOT: longer vectors win. L2: the distance in space."""

    COSINE = "cosine"
    DOT = "dot"
    L2 = "l2"

    def prepare(self, vectors: Floats, squares: Floats | None = None) -> Floats:
        """Vectors as they are compared and clustered; `squares` of their lengths, if somebody has them already."""
        if self is not DistanceMetric.COSINE:
            return np.ascontiguousarray(vectors, np.float32)
        if squares is None:
            squares = squared_lengths(vectors)
        if len(vectors) == 1 and _SQUARE_MIN < (square := squares.item()) < _SQUARE_MAX:
            # One number is sooner had from Python's own root, which rounds to the same.
            return vectors / np.float32(sqrt(square))
        if all_between(squares, _SQUARE_MIN, _SQUARE_MAX):
            usual: Floats = np.divide(vectors, np.sqrt(squares)[:, None], dtype=np.float32)
            return usual
        # The largest component first: a tiny or huge vector must not lose its direction to rounding.
        peak = np.abs(vectors).max(axis=1, keepdims=True, initial=np.float32(0))
        scaled = vectors / np.where(peak > 0, peak, np.float32(1))
        length = np.linalg.norm(scaled, axis=1, keepdims=True)
        prepared: Floats = np.ascontiguousarray(scaled / np.where(length > 0, length, np.float32(1)), np.float32)
        return prepared

    def similarity(self, scores: Floats) -> Floats:
        """What a caller is shown: cosine similarity, dot product, or the distance in space with a minus sign."""
        if self is not DistanceMetric.L2:
            return scores
        shown: Floats = -np.sqrt(np.maximum(-scores, np.float32(0)))
        return shown

    def closeness(self, scores: Floats) -> Floats:
        """Scores as numbers from zero on, of which a share can be taken: a distance becomes 1 / (1 + distance)."""
        if self is not DistanceMetric.L2:
            return scores
        shown: Floats = np.float32(1) / (np.float32(1) - self.similarity(scores))
        return shown

    def scores_of_kernel(self, values: Floats) -> Floats:
        """Scores from what a faiss scan returns: squared distances under L2, products otherwise."""
        return -values if self is DistanceMetric.L2 else values


def squared_lengths(vectors: Floats) -> Floats:
    """The square of each vector's length, to the same bit for one vector and for many."""
    if len(vectors) == 1:
        # What `vecdot` does for each, without its preparations.
        return np.array([vectors[0].dot(vectors[0])])
    squares: Floats = np.vecdot(vectors, vectors)
    return squares


def all_between(values: Floats, low: float, high: float) -> bool:
    """Whether no value is at or beyond a bound; NaN is beyond both."""
    if len(values) <= _FEW:
        return all(low < value < high for value in values.tolist())
    return bool(values.min() > low and values.max() < high)
