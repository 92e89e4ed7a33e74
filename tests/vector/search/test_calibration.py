"""Probes for a recall: measured, not guessed, and measured again when the collection has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import faiss
import msgspec
import numpy as np
import pytest

from penstock.blocks import FRAGMENT, Directory
from penstock.vector.format.clusters import NO_LIST, Centroids, nearest, partition
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import CollectionState
from penstock.vector.read.vectors import VECTORS
from penstock.vector.search.calibration import Calibration, ProbePlan, calibrate


def of_rows(empty: CollectionState, *, rows: int, vectors: int, **counts: int) -> CollectionState:
    """A state that has so many visible rows, and so many vectors in its blocks."""
    listed = Directory(np.array([(0, 1, vectors, 0)], FRAGMENT), np.zeros(1, np.uint64))
    head = msgspec.structs.replace(empty.head, rows=rows, **counts)
    return replace(empty, head=head, directories={VECTORS: listed})


def sampled(metric: DistanceMetric) -> tuple[Centroids, np.ndarray]:
    random = np.random.default_rng(1)
    middles = random.standard_normal((40, 16)) * 2
    rows = metric.prepare(
        (middles[random.integers(0, 40, 3000)] + random.standard_normal((3000, 16))).astype(np.float32)
    )
    centres, _ = partition(metric, rows, 60)
    return Centroids(np.arange(len(centres)), centres), rows


@pytest.mark.parametrize("metric", list(DistanceMetric))
def test_more_probes_never_recall_less_and_all_recall_everything(metric: DistanceMetric) -> None:
    centroids, rows = sampled(metric)
    found = calibrate(metric, centroids, len(rows), rows)
    assert (np.diff(found.recall) >= 0).all()
    assert found.recall[-1] == 1
    assert found.probes(1.0) == len(centroids)
    assert found.probes(0.5) <= found.probes(0.9) <= found.probes(0.99)


def test_a_sample_of_a_larger_collection_asks_for_no_fewer_probes() -> None:
    centroids, rows = sampled(DistanceMetric.L2)
    whole = calibrate(DistanceMetric.L2, centroids, len(rows), rows)
    thin = calibrate(DistanceMetric.L2, centroids, len(rows) * 40, rows)
    assert thin.probes(0.95) <= whole.probes(0.95) + 3


@pytest.mark.parametrize("rows", [0, 1])
def test_a_collection_too_small_to_measure_needs_one_probe(rows: int) -> None:
    found = calibrate(DistanceMetric.L2, Centroids.none(4), rows, np.ones((rows, 4), np.float32))
    assert found.probes(0.95) == 1


def test_it_is_stale_when_a_share_of_the_rows_was_written_anew(empty_state: CollectionState) -> None:
    calibration = Calibration(np.ones(1, np.float32), 1000, 1, written=5000)

    def state(written: int) -> CollectionState:
        return of_rows(empty_state, rows=1000, vectors=1000, next_id=written)

    assert [calibration.fits(state(written)) for written in (5000, 5050, 5051)] == [True, True, False]


def test_it_is_stale_when_rows_or_lists_have_changed_by_much(empty_state: CollectionState) -> None:
    calibration = Calibration(np.ones(100, np.float32), 1000, 100)
    centroids = Centroids(np.arange(100), np.zeros((100, 4), np.float32))

    def state(rows: int) -> CollectionState:
        return replace(of_rows(empty_state, rows=rows, vectors=rows), centroids=centroids)

    assert [calibration.fits(state(rows)) for rows in (700, 900, 1200, 1300)] == [False, True, True, False]


def test_rows_without_a_vector_are_not_counted(empty_state: CollectionState) -> None:
    """They are nobody's neighbours, however many there are."""
    calibration = Calibration(np.ones(1, np.float32), 1000, 1)
    assert calibration.fits(of_rows(empty_state, rows=9000, vectors=1000))
    assert not calibration.fits(of_rows(empty_state, rows=9000, vectors=9000))
    # Vectors of dead rows lie in blocks too, and are none of the rows that can be found.
    assert calibration.fits(of_rows(empty_state, rows=1000, vectors=9000))


def spread(random: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """Clusters of different weight and size."""
    middles = random.standard_normal((120, width))
    weights = random.pareto(1.5, 120) + 0.2
    chosen = random.choice(120, rows, p=weights / weights.sum())
    return middles[chosen] + random.uniform(0.1, 0.6, 120)[chosen, None] * random.standard_normal((rows, width))


def even(random: np.random.Generator, rows: int, width: int) -> np.ndarray:
    return random.random((rows, width))


def repeated(random: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """A third of the rows are copies of others."""
    made = spread(random, rows, width)
    made[random.permutation(rows)[: rows // 3]] = made[random.integers(0, rows, rows // 3)]
    return made


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("metric", [DistanceMetric.COSINE, DistanceMetric.L2])
@pytest.mark.parametrize("rows", [1_500, 12_000, 40_000])
@pytest.mark.parametrize("made", [spread, even, repeated])
def test_the_recall_asked_for_is_kept_for_queries_that_are_no_rows(
    made: Callable[[np.random.Generator, int, int], np.ndarray], rows: int, metric: DistanceMetric
) -> None:
    """And not by much too many probes: what is asked for is not paid for twice."""
    random = np.random.default_rng(rows)
    vectors = metric.prepare(made(random, rows + 1000, 12).astype(np.float32))
    queries, kept = vectors[-1000:], np.ascontiguousarray(vectors[:-1000])
    centres = partition(metric, kept, rows // 100)[0]
    centroids = Centroids(np.arange(len(centres)), centres)
    labels = nearest(kept, centroids.vectors)
    kind = faiss.METRIC_L2 if metric is DistanceMetric.L2 else faiss.METRIC_INNER_PRODUCT
    _, true = faiss.knn(queries, kept, 10, metric=kind)
    order = np.argsort(-centroids.scores(metric, queries), axis=1, kind="stable")

    def recall(probes: int) -> float:
        return float((labels[true][:, :, None] == order[:, None, :probes]).any(axis=2).mean())

    sample = kept[np.sort(random.permutation(rows)[: min(8192, rows // 2)])]
    measured = calibrate(metric, centroids, rows, sample)
    probes, plan = measured.probes(0.95), measured.plan(0.95)
    lists = centroids.probe(metric, queries, plan.probes, plan.reach)
    assert (labels[true][:, :, None] == lists[:, None, :]).any(axis=2).mean() >= 0.948
    # Where all lie alike there is nothing to leave out.
    assert (lists != NO_LIST).sum(axis=1).mean() <= 1.2 * probes
    # A thousand queries tell recall to about two thousandths.
    assert recall(probes) >= 0.948
    assert probes <= 4 or recall(int(0.7 * probes)) < 0.95


def test_a_thin_sample_never_asks_for_fewer_probes_than_a_dense_one() -> None:
    random = np.random.default_rng(5)
    rows = DistanceMetric.L2.prepare(spread(random, 20_000, 12).astype(np.float32))
    centroids = Centroids(np.arange(200), partition(DistanceMetric.L2, rows, 200)[0])
    dense = calibrate(DistanceMetric.L2, centroids, 20_000, rows[::4]).probes(0.95)
    thin = calibrate(DistanceMetric.L2, centroids, 20_000, rows[::100]).probes(0.95)
    assert thin >= dense


@pytest.mark.parametrize("rows", [2, 3])
def test_a_sample_of_very_few_rows_of_many_still_measures(rows: int) -> None:
    sample = np.eye(4, dtype=np.float32)[:rows]
    found = calibrate(DistanceMetric.L2, Centroids(np.arange(2), np.eye(4, dtype=np.float32)[:2]), 1000, sample)
    assert np.isfinite(found.recall).all()
    assert 1 <= found.probes(0.95) <= 2


def test_a_query_deep_in_a_list_looks_into_fewer_than_one_between_many() -> None:
    centroids, rows = sampled(DistanceMetric.COSINE)
    plan = calibrate(DistanceMetric.COSINE, centroids, len(rows), rows).plan(0.9)
    lists = centroids.probe(DistanceMetric.COSINE, rows, plan.probes, plan.reach)
    looked = (lists != NO_LIST).sum(axis=1)
    assert looked.min() >= 1
    assert looked.min() < looked.max() <= plan.probes
    # Those that are left out are the last ones.
    assert ((lists[:, :-1] != NO_LIST) >= (lists[:, 1:] != NO_LIST)).all()


@pytest.mark.parametrize("metric", [DistanceMetric.DOT, DistanceMetric.L2])
def test_only_vectors_of_one_length_have_a_reach(metric: DistanceMetric) -> None:
    """Distances of longer ones differ by more, and a query of any length must find as much."""
    centroids, rows = sampled(metric)
    measured = calibrate(metric, centroids, len(rows), rows)
    assert measured.plan(0.9) == ProbePlan(measured.probes(0.9))


def test_all_of_the_recall_is_had_from_all_lists() -> None:
    centroids, rows = sampled(DistanceMetric.COSINE)
    measured = calibrate(DistanceMetric.COSINE, centroids, len(rows), rows)
    assert measured.plan(1.0) == ProbePlan(len(centroids))


@pytest.mark.parametrize("equal", [100, 3000])
def test_equal_rows_have_a_plan(equal: int) -> None:
    """No list is farther away than another, or all neighbours are at no distance."""
    centroids, rows = sampled(DistanceMetric.COSINE)
    rows[:equal] = rows[0]
    centres = Centroids(centroids.lists, np.repeat(rows[:1], len(centroids), axis=0)) if equal > 2000 else centroids
    plan = calibrate(DistanceMetric.COSINE, centres, len(rows), rows).plan(0.95)
    assert 1 <= plan.probes <= len(centroids)
    assert (centres.probe(DistanceMetric.COSINE, rows[:5], plan.probes, plan.reach) != NO_LIST).any(axis=1).all()
