"""The short form of centres: candidates among which the best ones are, and so the choice of a full comparison."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.vector.format.clusters import Centroids
from penstock.vector.format.coarse import CoarseScan
from penstock.vector.format.metric import DistanceMetric


@pytest.mark.cases(quick=1)
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


@pytest.mark.slow
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
    assert not CoarseScan.suits(3000, 300)
    assert CoarseScan.suits(4000, 30)


@pytest.mark.slow
def test_the_short_form_counts_as_resident() -> None:
    centres = np.random.default_rng(0).standard_normal((2048, 32)).astype(np.float32)
    centroids = Centroids(np.arange(2048), centres)
    before = centroids.size_bytes
    for _ in range(100):
        centroids.probe(DistanceMetric.DOT, centres[:1], 4)
    assert centroids.size_bytes == before + centroids._coarse[DistanceMetric.DOT].size_bytes > before


@pytest.mark.slow
def test_a_query_alone_has_the_reach_that_it_has_among_many() -> None:
    random = np.random.default_rng(3)
    centres = DistanceMetric.COSINE.prepare(random.standard_normal((2000, 96)).astype(np.float32))
    queries = DistanceMetric.COSINE.prepare(
        (centres[:100] + 0.08 * random.standard_normal((100, 96))).astype(np.float32)
    )
    centroids = Centroids(np.arange(2000), centres)
    for _ in range(80):
        centroids.probe(DistanceMetric.COSINE, queries[:1], 12)
    assert centroids._coarse[DistanceMetric.COSINE].is_true
    together = centroids.probe(DistanceMetric.COSINE, queries, 12, 0.9)
    alone = [centroids.probe(DistanceMetric.COSINE, query[None], 12, 0.9)[0] for query in queries]
    agreeing = [set(a.tolist()) == set(b[b >= 0].tolist()) for a, b in zip(alone, together, strict=True)]
    assert np.mean(agreeing) > 0.9
    assert len({len(each) for each in alone}) > 1
