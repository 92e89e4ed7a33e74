"""Stored vectors: found by id, and compared exactly with queries, whatever gaps their blocks have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vector.format.content import VectorBlock
from penstock.vector.format.metric import MAGNITUDE_MAX, DistanceMetric
from penstock.vector.read.vectors import NOWHERE, VectorRows, compare_places


def rows_of(ids: list[int], vectors: np.ndarray, metric: DistanceMetric = DistanceMetric.L2) -> VectorRows:
    return VectorRows.of(metric, [VectorBlock(np.array(ids, np.int64), vectors.astype(np.float32))])


def scores_of(held: VectorRows, metric: DistanceMetric, queries: Any, asked: list[int], rows: list[int]) -> np.ndarray:
    return compare_places(metric, queries, np.array(asked), held.places(held.ids[rows]))


@given(st.sets(st.integers(5, 60), min_size=1), st.lists(st.integers(0, 70), min_size=1))
def test_a_row_is_found_by_id_with_and_without_gaps(held: set[int], wanted: list[int]) -> None:
    """Also an id before the first one of its bucket, whose earlier rows have died or never had a value."""
    ids, asked = sorted(held), sorted(wanted)
    rows = rows_of(ids, np.zeros((len(ids), 2)))
    places = rows.places(np.array(asked, np.int64)).tolist()
    assert [place != NOWHERE for place in places] == [name in held for name in asked]
    first = rows.places(rows.ids[:1]).item()
    assert [ids[place - first] for place in places if place != NOWHERE] == [name for name in asked if name in held]
    assert [NOWHERE if (place := rows.place(name)) is None else place for name in asked] == places


def test_no_rows_have_no_places() -> None:
    nothing = rows_of([], np.zeros((0, 2)))
    assert nothing.places(np.array([0, 5])).tolist() == [NOWHERE, NOWHERE]
    assert nothing.place(0) is None
    assert len(nothing.scores(DistanceMetric.L2, np.zeros((1, 2), np.float32))) == 0


@given(st.integers(1, 70), st.lists(st.integers(1, 40), min_size=1, max_size=8), st.sampled_from(DistanceMetric))
def test_rows_of_any_number_of_buckets_are_compared_in_one_call(
    width: int, sizes: list[int], metric: DistanceMetric
) -> None:
    """Whatever a row's bytes: they need not divide an address that memory is given at."""
    random = np.random.default_rng(width)
    stored = [random.standard_normal((size, width)).astype(np.float32) for size in sizes]
    buckets = [rows_of(list(range(1000 * n, 1000 * n + len(rows))), rows, metric) for n, rows in enumerate(stored)]
    queries = metric.prepare(random.standard_normal((3, width)).astype(np.float32))
    places = np.concatenate([bucket.places(bucket.ids) for bucket in buckets])
    asked = random.integers(0, 3, len(places))
    rows = np.concatenate([metric.prepare(rows) for rows in stored])
    expected = np.einsum("nd,nd->n", rows, queries[asked])
    if metric is DistanceMetric.L2:
        expected = -((rows - queries[asked]) ** 2).sum(axis=1)
    assert np.allclose(compare_places(metric, queries, asked, places), expected, rtol=1e-4, atol=1e-4)


def test_fragments_of_a_bucket_are_one() -> None:
    parts = [VectorBlock(np.array([n, n + 1]), np.full((2, 2), n, np.float32)) for n in (0, 2, 4)]
    held = VectorRows.of(DistanceMetric.L2, parts)
    places = held.places(np.arange(6))
    assert (places - places[0]).tolist() == [0, 1, 2, 3, 4, 5]
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
