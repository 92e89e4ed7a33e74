"""Clusters: every row has its nearest list, and no piece of a split is empty."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.vector.format.clusters import Centroids, NearestCentre, is_overfull, is_sparse, nearest, partition, pieces
from penstock.vector.format.metric import DistanceMetric


def clustered(rows: int, centres: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    middle = random.standard_normal((centres, 8)) * 5
    return (middle[random.integers(0, centres, rows)] + random.standard_normal((rows, 8)) * 0.1).astype(np.float32)


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (10, 1), (10, 3), (300, 7), (3, 9), (5000, 600)])
def test_a_partition_places_every_row_with_its_nearest_centre_and_leaves_no_piece_empty(rows: int, count: int) -> None:
    vectors = clustered(rows, 5)
    centres, labels = partition(DistanceMetric.L2, vectors, count)
    assert set(labels.tolist()) == set(range(len(centres)))
    if count > 1:
        assert (labels == nearest(vectors, centres)).mean() > 0.99


def test_rows_that_are_all_alike_are_cut_all_the_same() -> None:
    centres, labels = partition(DistanceMetric.L2, np.ones((100, 8), np.float32), 4)
    assert np.bincount(labels).tolist() == [25, 25, 25, 25]
    assert (centres == 1).all()


def test_the_same_rows_make_the_same_lists() -> None:
    vectors = clustered(2000, 30)
    assert (partition(DistanceMetric.L2, vectors, 40)[1] == partition(DistanceMetric.L2, vectors, 40)[1]).all()


def test_well_separated_clusters_are_found() -> None:
    vectors = clustered(1000, 4, seed=3)
    centres, labels = partition(DistanceMetric.L2, vectors, 8)
    assert np.linalg.norm(vectors - centres[labels], axis=1).max() < 1.5


def test_a_list_is_cut_into_pieces_that_have_room_to_grow() -> None:
    assert pieces(100, 128, 1000) == 1
    assert pieces(260, 128, 1000) == 7
    assert pieces(260, 128, 2) == 2


def test_full_and_sparse_leave_a_wide_middle() -> None:
    rows = np.array([0, 15, 16, 128, 256, 257])
    assert is_overfull(rows, 128).tolist() == [False] * 5 + [True]
    assert is_sparse(rows, 128).tolist() == [True, True] + [False] * 4


def test_centroids_change_by_list_number_and_stay_in_order() -> None:
    before = Centroids(np.array([1, 4, 6]), np.array([[1.0], [4.0], [6.0]], np.float32))
    after = before.changed(np.array([4]), np.array([5, 1]), np.array([[5.0], [1.5]], np.float32))
    assert after.lists.tolist() == [1, 5, 6]
    assert after.vectors.reshape(-1).tolist() == [1.5, 5.0, 6.0]


def test_lists_are_probed_best_first_by_distance_or_by_product() -> None:
    centroids = Centroids(np.array([3, 8]), np.array([[1.0, 0.0], [9.0, 9.0]], np.float32))
    query = np.array([[1.0, 0.2]], np.float32)
    assert centroids.probe(DistanceMetric.L2, query, 2).tolist() == [[3, 8]]
    assert centroids.probe(DistanceMetric.DOT, query, 9).tolist() == [[8, 3]]


def test_centres_under_cosine_have_length_one() -> None:
    """Otherwise loose clusters, whose centres are short, would be probed before tight ones."""
    vectors = DistanceMetric.COSINE.prepare(clustered(500, 9))
    for count in (1, 12):
        centres, _ = partition(DistanceMetric.COSINE, vectors, count)
        assert np.allclose(np.linalg.norm(centres, axis=1), 1)


def test_among_very_many_centres_nearly_every_row_finds_its_nearest() -> None:
    centres = clustered(5000, 300, seed=7)
    rows = clustered(2000, 300, seed=8)
    found = NearestCentre(centres).of(rows)
    apart = np.linalg.norm(rows - centres[found], axis=1)
    best = np.array([np.linalg.norm(row - centres, axis=1).min() for row in rows])
    assert (apart <= best * 1.0001).mean() > 0.95


@pytest.mark.cases(quick=7)
@pytest.mark.parametrize("others", [0, 1, 30, 4_000])
@pytest.mark.parametrize("metric", list(DistanceMetric))
def test_equal_rows_end_clustering_in_lists_of_one_size(metric: DistanceMetric, others: int) -> None:
    """Empty pages and boilerplate: the same vector again and again, and a few that differ."""
    vectors = np.full((20_000, 8), 0.5, np.float32)
    vectors[np.random.default_rng(1).permutation(20_000)[:others]] = clustered(others, 5, seed=2) + 3
    prepared = metric.prepare(vectors)
    centres, labels = partition(metric, prepared, 469)
    sizes = np.bincount(labels)
    assert len(centres) <= 469 + 30
    assert sizes.min() > 0
    equal = (prepared == metric.prepare(vectors[:1] * 0 + 0.5)).all(axis=1)
    assert np.bincount(labels[equal]).max() <= 128
    assert not set(labels[equal].tolist()) & set(labels[~equal].tolist())


def test_rows_that_hardly_differ_end_clustering_too() -> None:
    """Groups that take in nearly everything, a level deeper again: far outliers, and a core of one point."""
    vectors = np.ones((4_000, 4), np.float32)
    vectors[1_000:] += np.random.default_rng(2).integers(0, 2, (3_000, 4)).astype(np.float32) * 1e-7
    vectors[:12] *= 10.0 ** np.arange(12)[:, None]
    centres, labels = partition(DistanceMetric.L2, vectors, 500)
    assert set(labels.tolist()) == set(range(len(centres)))
    assert np.bincount(labels).max() < 4_000


def test_rows_that_one_centre_takes_all_of_are_cut_all_the_same() -> None:
    vectors = np.array([[1.0, 1.0], [1.0, np.nextafter(np.float32(1), np.float32(2))]] * 50, np.float32)
    _, labels = partition(DistanceMetric.L2, vectors, 2)
    assert np.bincount(labels).max() < 100
