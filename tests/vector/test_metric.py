"""Metrics: larger is nearer, whatever the metric."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.vector.metric import MAGNITUDE_MAX, Metric


@pytest.mark.parametrize("scale", [1e-30, 1.0, MAGNITUDE_MAX])
def test_cosine_keeps_the_direction_of_tiny_and_huge_vectors(scale: float) -> None:
    prepared = Metric.COSINE.prepare(np.array([[3.0, 4.0]], np.float32) * np.float32(scale))
    assert np.allclose(prepared, [[0.6, 0.8]], atol=1e-6)


@pytest.mark.parametrize(
    ("metric", "expected"), [("cosine", [1.0, 0.0]), ("dot", [2.0, 0.0]), ("l2", [-1.0, -(5**0.5)])]
)
def test_similarity_is_what_a_caller_expects_of_the_metric(metric: str, expected: list[float]) -> None:
    kind = Metric(metric)
    query = kind.prepare(np.array([[1.0, 0.0]], np.float32))
    rows = kind.prepare(np.array([[2.0, 0.0], [0.0, 2.0]], np.float32))
    assert np.allclose(kind.similarity(kind.scores(query, rows[None])), [expected])
