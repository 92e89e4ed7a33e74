"""How near two vectors are. Every score here grows with nearness, whatever the metric.

Lists are kept by Euclidean distance in all three metrics: under cosine vectors are brought to length one
first, where both agree; under dot the lists are clusters in space and only their order of probing is by dot.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import numpy as np

from penstock.vector.arrays import Floats

__all__ = ["MAGNITUDE_MAX", "Metric"]

# Sums of squares of such numbers over any sensible dimension stay finite in four-byte floats.
MAGNITUDE_MAX: Final = 1e15


class Metric(StrEnum):
    """COSINE: the angle alone counts. DOT: longer vectors win. L2: the distance in space."""

    COSINE = "cosine"
    DOT = "dot"
    L2 = "l2"

    def prepare(self, vectors: Floats) -> Floats:
        """Vectors as they are compared and clustered."""
        if self is not Metric.COSINE:
            return np.ascontiguousarray(vectors, np.float32)
        # The largest component first: a tiny or huge vector must not lose its direction to rounding.
        peak = np.abs(vectors).max(axis=1, keepdims=True, initial=np.float32(0))
        scaled = vectors / np.where(peak > 0, peak, np.float32(1))
        length = np.linalg.norm(scaled, axis=1, keepdims=True)
        prepared: Floats = np.ascontiguousarray(scaled / np.where(length > 0, length, np.float32(1)), np.float32)
        return prepared

    def scores(self, queries: Floats, rows: Floats) -> Floats:
        """Nearness of each query to its own rows: queries (m, d), rows (m, r, d), both prepared."""
        if self is Metric.L2:
            apart = rows - queries[:, None, :]
            squared: Floats = -np.einsum("mrd,mrd->mr", apart, apart)
            return squared
        product: Floats = np.einsum("md,mrd->mr", queries, rows)
        return product

    def similarity(self, scores: Floats) -> Floats:
        """What a caller is shown: cosine similarity, dot product, or the distance in space with a minus sign."""
        if self is not Metric.L2:
            return scores
        shown: Floats = -np.sqrt(np.maximum(-scores, np.float32(0)))
        return shown

    def scores_of_kernel(self, values: Floats) -> Floats:
        """Scores from what a faiss scan returns: squared distances under L2, products otherwise."""
        return -values if self is Metric.L2 else values
