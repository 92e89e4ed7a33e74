"""The short form of centres: candidates among which the best ones are, and so the choice of a full comparison."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.vector.format.clusters import Centroids
from penstock.vector.format.coarse import CoarseScan
from penstock.vector.format.metric import DistanceMetric


@pytest.mark.parametrize("metric", list(DistanceMetric))
@pytest.mark.parametrize("width", [16, 33, 384])
@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_a_query_alone_probes_the_lists_that_it_probes_among_many(
    metric: DistanceMetric, width: int, offset: float
) -> None:
    random = np.random.default_rng(width)
    centres = metric.prepare((random.standard_normal((2500, width)) + offset).astype(np.float32))
    queries = metric.prepare((random.standard_normal((150, width)) + offset).astype(np.float32))
    centroids = Centroids(np.arange(2500) * 3, centres)
    together = centroids.probe(metric, queries, 6)
    alone = np.concatenate([centroids.probe(metric, query[None], 6) for query in queries])
    # The first ones are compared in full, the others by their short form first, if it is true enough.
    assert centroids._coarse[metric].is_true or width < 64
    assert (alone[:64] == together[:64]).mean() > 0.999
    agreeing = np.mean([len(set(a) & set(b)) / 6 for a, b in zip(alone.tolist(), together.tolist(), strict=True)])
    assert agreeing > 0.99


def test_centres_that_the_short_form_does_not_tell_apart_are_compared_in_full() -> None:
    """Along a line sixteen steps hold hundreds of centres each."""
    centres = np.ones((3000, 8), np.float32)
    centres[:, 0] = np.arange(3000)
    centroids = Centroids(np.arange(3000), centres)
    for place in range(200):
        assert centroids.probe(DistanceMetric.L2, centres[place : place + 1], 1).tolist() == [[place]]
    assert not centroids._coarse[DistanceMetric.L2].is_true


def test_few_lists_or_many_probes_are_compared_in_full() -> None:
    assert not CoarseScan.suits(500, 1)
    assert not CoarseScan.suits(4000, 300)
    assert CoarseScan.suits(4000, 30)


def test_the_short_form_counts_as_resident() -> None:
    centres = np.random.default_rng(0).standard_normal((2048, 32)).astype(np.float32)
    centroids = Centroids(np.arange(2048), centres)
    before = centroids.size_bytes
    for _ in range(100):
        centroids.probe(DistanceMetric.DOT, centres[:1], 4)
    assert centroids.size_bytes == before + centroids._coarse[DistanceMetric.DOT].size_bytes > before
