"""Metrics: larger is nearer, whatever the metric."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.vector.format.metric import MAGNITUDE_MAX, DistanceMetric, all_between


@pytest.mark.parametrize("scale", [1e-30, 1.0, MAGNITUDE_MAX])
def test_cosine_keeps_the_direction_of_tiny_and_huge_vectors(scale: float) -> None:
    prepared = DistanceMetric.COSINE.prepare(np.array([[3.0, 4.0]], np.float32) * np.float32(scale))
    assert np.allclose(prepared, [[0.6, 0.8]], atol=1e-6)


def test_only_distances_in_space_are_shown_as_roots() -> None:
    scores = np.array([-4.0, 0.0], np.float32)
    assert DistanceMetric.L2.similarity(scores).tolist() == [-2.0, 0.0]
    assert (
        DistanceMetric.DOT.similarity(scores).tolist()
        == DistanceMetric.COSINE.similarity(scores).tolist()
        == [-4.0, 0.0]
    )


@pytest.mark.parametrize("others", [0, 1, 20], ids=["alone", "few", "many"])
@pytest.mark.parametrize(("value", "inside"), [(2.0, True), (1.0, False), (3.0, False), (np.nan, False)])
def test_bounds_hold_for_few_values_and_for_many_and_not_for_nan(others: int, value: float, inside: bool) -> None:
    assert all_between(np.array([1.5] * others + [value], np.float32), 1.0, 3.0) is inside
    assert all_between(np.empty(0, np.float32), 1.0, 3.0)
