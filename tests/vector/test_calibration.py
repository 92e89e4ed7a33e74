"""Probes for a recall: measured, not guessed, and measured again when the collection has changed."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from penstock.vector.calibration import Calibration, calibrate
from penstock.vector.clusters import Centroids, partition
from penstock.vector.directory import FRAGMENT, Directory
from penstock.vector.metric import Metric
from penstock.vector.state import CollectionState
from penstock.vector.vectors import VECTORS


def of_rows(empty: CollectionState, *, rows: int, vectors: int, **counts: int) -> CollectionState:
    """A state that has so many visible rows, and so many vectors in its blocks."""
    listed = Directory(np.array([(0, 1, vectors, 0)], FRAGMENT), np.zeros(1, np.uint64))
    head = msgspec.structs.replace(empty.head, rows=rows, **counts)
    return replace(empty, head=head, directories={VECTORS: listed})


def sampled(metric: Metric) -> tuple[Centroids, np.ndarray]:
    random = np.random.default_rng(1)
    middles = random.standard_normal((40, 16)) * 2
    rows = metric.prepare(
        (middles[random.integers(0, 40, 3000)] + random.standard_normal((3000, 16))).astype(np.float32)
    )
    centres, _ = partition(metric, rows, 60)
    return Centroids(np.arange(len(centres)), centres), rows


@pytest.mark.parametrize("metric", list(Metric))
def test_more_probes_never_recall_less_and_all_recall_everything(metric: Metric) -> None:
    centroids, rows = sampled(metric)
    found = calibrate(metric, centroids, len(rows), rows)
    assert (np.diff(found.recall) >= 0).all()
    assert found.recall[-1] == 1
    assert found.probes(1.0) == len(centroids)
    assert found.probes(0.5) <= found.probes(0.9) <= found.probes(0.99)


def test_a_sample_of_a_larger_collection_asks_for_no_fewer_probes() -> None:
    centroids, rows = sampled(Metric.L2)
    whole = calibrate(Metric.L2, centroids, len(rows), rows)
    thin = calibrate(Metric.L2, centroids, len(rows) * 40, rows)
    assert thin.probes(0.95) <= whole.probes(0.95) + 3


@pytest.mark.parametrize("rows", [0, 1])
def test_a_collection_too_small_to_measure_needs_one_probe(rows: int) -> None:
    found = calibrate(Metric.L2, Centroids.none(4), rows, np.ones((rows, 4), np.float32))
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
