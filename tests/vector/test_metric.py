"""Metrics: larger is nearer, whatever the metric."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.vector.metric import MAGNITUDE_MAX, Metric


@pytest.mark.parametrize("scale", [1e-30, 1.0, MAGNITUDE_MAX])
def test_cosine_keeps_the_direction_of_tiny_and_huge_vectors(scale: float) -> None:
    prepared = Metric.COSINE.prepare(np.array([[3.0, 4.0]], np.float32) * np.float32(scale))
    assert np.allclose(prepared, [[0.6, 0.8]], atol=1e-6)


def test_only_distances_in_space_are_shown_as_roots() -> None:
    scores = np.array([-4.0, 0.0], np.float32)
    assert Metric.L2.similarity(scores).tolist() == [-2.0, 0.0]
    assert Metric.DOT.similarity(scores).tolist() == Metric.COSINE.similarity(scores).tolist() == [-4.0, 0.0]
