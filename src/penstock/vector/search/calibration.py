"""How many lists to probe for a wished recall, measured on the collection itself.

Some of its own rows are asked for as if they were queries, and the lists of their true neighbours are noted. A sample of
the rows stands for all, and is thinner than they are: in a tenth of the rows the nearest one is about the tenth nearest
of all, and farther neighbours are missed more often. How the share of missed ones grows with the rank shows in the
sample itself, as a power of it; from that follows the share for the nearest ones of all. The step is never wider than
it was tried for: a thinner sample than that errs towards more probes.

Most queries lie deep in a list and have all their neighbours there; a few lie between many. So under cosine, where all
vectors have one length, a plan has a reach: lists whose centre is farther away than the nearest one by more than that
are left out. It is measured as probes are, and half as many rows are compared for the same recall.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, exp, inf, lgamma
from typing import Final

import faiss
import numpy as np

from penstock.blocks import BlockReader, Damage
from penstock.vector.arrays import Array, Floats, Indices
from penstock.vector.format.clusters import Centroids, nearest
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import CollectionState
from penstock.vector.read.vectors import VECTORS, read_vectors

__all__ = ["Calibration", "ProbePlan", "calibrate", "sample_rows"]

# Rows of a measurement, at least and at most, and pairs of them that are compared: a few tenths of a second, and an error
# of about half a percent of recall.
_SAMPLE_ROWS: Final = 8192
_SAMPLE_ROWS_MAX: Final = 32_768
_PAIRS: Final = 2048 * 8192
# The neighbours that recall is about, and those of each query in a sample: enough to see how it falls with the rank.
_NEIGHBOURS: Final = 10
_SAMPLED_NEIGHBOURS: Final = 8
# A sample of this share of all rows is as good as all of them.
_WHOLE_SHARE: Final = 0.9
# From a sample that is thinner than this share of all rows, ranks are made smaller by no more than from one of it.
_SHARE_MIN: Final = 0.08
# Powers of the rank that the share of missed neighbours may grow with.
_POWERS: Final = np.linspace(0, 1, 41)
# Measured again when the collection has shrunk or its lists have changed by this factor, or when this share of it
# was written anew: rows that replace others may lie less well in the lists of those.
_STALE_FACTOR: Final = 1.25
_TURNOVER_MAX: Final = 0.05
# Aim a little higher than asked: a sample is not the truth, and some rows lie in a list beside their nearest.
_MARGIN: Final = 0.01
# How many times the probes that would do for all queries alike a query between many lists may have.
_WIDER: Final = 1.5
# Aim so much higher than asked with a reach: what it leaves out is measured query by query, not list by list.
_REACH_MARGIN: Final = 0.005
# Reaches that are tried, and what rounding may take from one.
_REACHES: Final = 256
_ROUNDING: Final = 1e-5


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How many lists a query looks into at most, and how much farther away than the nearest their centres may be.

    The reach is a difference of squared distances.
    """

    probes: int
    reach: float = inf


@dataclass(frozen=True, slots=True)
class Calibration:
    """Recall by number of probes, and the size of the collection it was measured on."""

    recall: Floats
    rows: int
    lists: int
    # How many rows had ever been written.
    written: int = 0
    # For the neighbours of each query in the sample: how many lists come before theirs, and how much nearer the first
    # of those is; and which share of all rows the sample is. None where there is no reach.
    places: Indices | None = None
    gaps: Floats | None = None
    share: float = 1.0
    _plans: dict[float, ProbePlan] = field(default_factory=dict, repr=False, compare=False)

    def probes(self, target: float) -> int:
        """The fewest probes that reach `target`, or all."""
        if target >= 1:
            return self.lists
        # Recall grows with probes, so this is the first that is enough.
        return min(int(self.recall.searchsorted(np.float32(min(target + _MARGIN, 1.0)))) + 1, self.lists)

    def plan(self, target: float) -> ProbePlan:
        """The cheapest way to reach `target`."""
        found = self._plans.get(target)
        if found is None:
            found = self._plans[target] = self._plan(target)
        return found

    def _plan(self, target: float) -> ProbePlan:
        probes = self.probes(target)
        widest = ceil(_WIDER * probes)
        if self.places is None or self.gaps is None or target >= 1 or widest >= self.lists:
            return ProbePlan(probes)
        gaps = np.where(self.places < widest, self.gaps, np.float32(inf))
        reaches = np.quantile(gaps[np.isfinite(gaps)], np.linspace(0, 1, _REACHES))
        missed = np.stack([1 - (gaps <= reach).mean(axis=0) for reach in reaches])
        enough = np.flatnonzero(_recall(missed, self.share) >= min(target + _REACH_MARGIN, 1.0))
        return ProbePlan(widest, float(reaches[enough[0]]) + _ROUNDING) if len(enough) else ProbePlan(probes)

    def fits(self, state: CollectionState) -> bool:
        def alike(before: int, now: int) -> bool:
            return max(before, now) <= _STALE_FACTOR * min(before, now)

        if state.head.next_id - self.written > _TURNOVER_MAX * self.rows:
            return False
        return alike(self.rows, max(1, state.placed_rows)) and alike(self.lists, max(1, len(state.centroids)))


async def sample_rows(blocks: BlockReader, state: CollectionState, damage: Damage) -> Floats:
    """Vectors of some visible rows, as they are compared, from buckets spread over the collection."""
    directory = state.directory(VECTORS)
    wanted = min(max(int(_SHARE_MIN * state.placed_rows), _SAMPLE_ROWS), _SAMPLE_ROWS_MAX)
    per_bucket = max(1, int(directory.rows.mean())) if len(directory) else 1
    count = min(len(directory), -(-wanted // per_bucket))
    lows = directory.lows[np.linspace(0, len(directory), count, endpoint=False).astype(np.int64)].tolist()
    stored = await read_vectors(blocks, state, lows, damage)
    parts = [held.vectors[state.visible.contains(held.ids)] for held in stored.values()]
    return np.concatenate([np.empty((0, state.dimensions), np.float32), *parts])[:wanted]


def calibrate(metric: DistanceMetric, centroids: Centroids, rows: int, sample: Floats, written: int = 0) -> Calibration:
    """Measure recall by probes on a sample of `rows` rows."""
    lists = max(1, len(centroids))
    if len(sample) < 2:
        return Calibration(np.ones(lists, np.float32), max(1, rows), lists, written)
    places = np.linspace(
        0, len(sample), min(_PAIRS // max(len(sample), _SAMPLE_ROWS), len(sample)), endpoint=False
    ).astype(np.int64)
    share = min(len(sample) / max(rows, 1), 1.0)
    neighbours = min(_SAMPLED_NEIGHBOURS if share < _WHOLE_SHARE else _NEIGHBOURS, len(sample) - 1)
    queries = np.ascontiguousarray(sample[places])
    true = _neighbours(metric, queries, sample, places, neighbours)
    labels = nearest(sample, centroids.vectors)
    scores = centroids.scores(metric, queries)
    needed = _ranks(scores, labels[true])
    counts = np.stack([np.bincount(column, minlength=lists) for column in needed.T], axis=1)
    missed = 1 - np.cumsum(counts, axis=0) / len(needed)
    found = Calibration(_recall(missed, share).astype(np.float32), max(1, rows), lists, written)
    if metric is not DistanceMetric.COSINE:
        return found
    gaps = scores.max(axis=1, keepdims=True) - np.take_along_axis(scores, labels[true], 1)
    return replace(found, places=needed, gaps=gaps, share=share)


def _recall(missed: Array, share: float) -> Array:
    """The recall that follows from what a sample of this share of all rows missed, line by line; it never falls."""
    recall = 1 - (_missed_of_all(missed, share) if share < _WHOLE_SHARE else missed.mean(axis=1))
    grown: Array = np.maximum.accumulate(recall)
    return grown


def _missed_of_all(missed: Array, share: float) -> Array:
    """The share of the nearest of all rows that is missed with so many probes, a line of `missed`.

    A column of `missed` is about one rank in a sample of this share. What has rank j there has a rank of all that is
    spread as the j-th arrival of a Poisson process is: the mean of its power b is G(j + b) / G(j) / share ** b.
    """
    ranks = range(1, missed.shape[1] + 1)
    moments = np.array([[exp(lgamma(rank + power) - lgamma(rank)) for rank in ranks] for power in _POWERS])
    moments /= share ** _POWERS[:, None]
    wanted = np.arange(1, _NEIGHBOURS + 1) * max(1.0, _SHARE_MIN / share)
    aimed = (wanted ** _POWERS[:, None]).mean(axis=1)
    # The power is the one under which farther neighbours are missed as much more often than nearer ones as they are.
    half = max(1, len(ranks) // 2)
    near, far = missed[:, :half].sum(axis=1), missed[:, half:].sum(axis=1)
    growth = moments[:, half:].sum(axis=1) / moments[:, :half].sum(axis=1)
    power = growth.searchsorted(far / np.maximum(near, np.finfo(np.float64).tiny)).clip(0, len(_POWERS) - 1)
    found: Array = np.minimum((near + far) * aimed[power] / moments[power].sum(axis=1), 1)
    return found


def _ranks(scores: Floats, lists: Indices) -> Indices:
    """How many lists come before each wanted one in the order of its query."""
    wanted = np.take_along_axis(scores, lists, 1)
    return np.stack([(scores > column[:, None]).sum(axis=1) for column in wanted.T], axis=1)


def _neighbours(metric: DistanceMetric, queries: Floats, sample: Floats, own: Indices, count: int) -> Indices:
    """Places of the nearest other rows of each query."""
    kind = faiss.METRIC_L2 if metric is DistanceMetric.L2 else faiss.METRIC_INNER_PRODUCT
    _, found = faiss.knn(queries, sample, min(count + 1, len(sample)), metric=kind)
    others = found != own[:, None]
    # A query that is not among its own neighbours (an equal row is) has one too many: the last goes.
    others[others.all(axis=1), -1] = False
    rows: Indices = found[others].reshape(len(queries), -1)
    return rows
