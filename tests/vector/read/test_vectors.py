"""Stored vectors: found by id, and compared exactly with queries, whatever gaps their blocks have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vector.format.content import VectorBlock
from penstock.vector.format.metric import MAGNITUDE_MAX, DistanceMetric
from penstock.vector.read.vectors import VectorRows


def rows_of(ids: list[int], vectors: np.ndarray, metric: DistanceMetric = DistanceMetric.L2) -> VectorRows:
    return VectorRows(metric, [VectorBlock(np.array(ids, np.int64), vectors.astype(np.float32))])


def scores_of(held: VectorRows, metric: DistanceMetric, queries: Any, asked: list[int], rows: list[int]) -> np.ndarray:
    found = np.empty(len(rows), np.float32)
    held.score(metric, queries, np.array(asked), np.array(rows), found)
    return metric.scores_of_kernel(found)


@given(st.sets(st.integers(5, 60), min_size=1), st.lists(st.integers(0, 70), min_size=1))
def test_a_row_is_found_by_id_with_and_without_gaps(held: set[int], wanted: list[int]) -> None:
    """Also an id before the first one of its bucket, whose earlier rows have died or never had a value."""
    ids, asked = sorted(held), sorted(wanted)
    rows, there = rows_of(ids, np.zeros((len(ids), 2))).rows(np.array(asked, np.int64))
    found = [True] * len(asked) if there is None else there.tolist()
    assert found == [name in held for name in asked]
    assert [ids[row] for row, hit in zip(rows.tolist(), found, strict=True) if hit] == [
        name for name in asked if name in held
    ]


def test_fragments_of_a_bucket_are_one() -> None:
    parts = [VectorBlock(np.array([n, n + 1]), np.full((2, 2), n, np.float32)) for n in (0, 2, 4)]
    held = VectorRows(DistanceMetric.L2, parts)
    assert held.rows(np.arange(6))[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert held.vectors[:, 0].tolist() == [0, 0, 2, 2, 4, 4]


@pytest.mark.parametrize(
    ("metric", "expected"), [("cosine", [1.0, 0.0]), ("dot", [2.0, 0.0]), ("l2", [-1.0, -(5**0.5)])]
)
def test_scores_are_what_a_caller_expects_of_the_metric(metric: str, expected: list[float]) -> None:
    kind = DistanceMetric(metric)
    held = rows_of([0, 1], np.array([[2.0, 0.0], [0.0, 2.0]]), kind)
    queries = kind.prepare(np.array([[9.0, 9.0], [1.0, 0.0]], np.float32))
    scores = scores_of(held, kind, queries, [1, 1], [0, 1])
    assert np.allclose(kind.similarity(scores), expected)


@pytest.mark.parametrize("scale", [1e-30, 1e-19, 1.0, MAGNITUDE_MAX])
def test_tiny_and_huge_rows_have_their_cosine(scale: float) -> None:
    held = rows_of([0, 1], np.array([[3.0, 4.0], [1.0, 0.0]]) * scale, DistanceMetric.COSINE)
    scores = scores_of(held, DistanceMetric.COSINE, np.array([[0.6, 0.8]], np.float32), [0, 0], [0, 1])
    assert np.allclose(scores, [1.0, 0.6], atol=1e-6)
    assert held.vectors[0].tolist() == np.float32([3.0 * scale, 4.0 * scale]).tolist()  # type: ignore[arg-type]
