"""Lists as clusters: which list a row belongs to, and how a list is split. Pure, on whole arrays.

A list splits when it holds twice its target, into pieces of a third of the target that then fill up: over-splitting
costs a little now and gives markedly better clusters than halving again and again. Seeds are fixed, so the
same rows always make the same lists. Rows that no centre tells apart, because they are equal, are dealt out evenly:
a split always makes lists that are smaller than the one before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, Final

import faiss
import numpy as np

from penstock.vector.arrays import Array, Bools, Floats, Indices
from penstock.vector.format.coarse import CoarseScan
from penstock.vector.format.metric import DistanceMetric

__all__ = [
    "NO_LIST",
    "Centroids",
    "NearestCentre",
    "is_overfull",
    "is_sparse",
    "means",
    "nearest",
    "partition",
    "pieces",
]

# In the place of a list that is not looked into.
NO_LIST: Final = -1

_OVERFULL: Final = 2.0
_SPARSE: Final = 0.125
_OVERSPLIT: Final = 3.0
# Lloyd rounds and rows a centroid that training looks at: more of either moves recall by less than a percent.
_ROUNDS: Final = 8
_SAMPLE_ROWS: Final = 64
_SEED: Final = 1
# Centres that are all compared; beyond, they are looked for in groups of their own, of which some are probed.
_EXHAUSTIVE_MAX: Final = 4096
_GROUPS_PROBED: Final = 16
# Single queries after which the short form of the centres is made: it costs as much as comparing about as many in full.
_COARSE_AFTER: Final = 64
# Centres trained at one level: the time grows with their square.
_FLAT_MAX: Final = 384
# Rows that are looked at to find out whether one vector makes up most of them.
_MAJORITY_SAMPLE: Final = 256


@dataclass(frozen=True)
class Centroids:
    """The centres of a collection's lists, with the lists' numbers, in the order of those."""

    lists: Indices
    vectors: Floats

    def __len__(self) -> int:
        return len(self.lists)

    @property
    def size_bytes(self) -> int:
        coarse = sum(each.size_bytes for each in self._coarse.values())
        return int(self.lists.nbytes + self.vectors.nbytes) + coarse

    def probe(self, metric: DistanceMetric, queries: Floats, probes: int, reach: float = inf) -> Indices:
        """The numbers of the `probes` lists most worth looking into for each query, best first.

        Lists whose squared distance is over that of the nearest by more than `reach` are left out, and NO_LIST in their
        place if other queries have so many. Products have no reach.
        """
        count = min(probes, len(self))
        if len(queries) == 1 and CoarseScan.suits(len(self), count):
            some = self._candidates(metric, queries, count, reach)
            if some is not None:
                return self.lists[some]
        kind = faiss.METRIC_INNER_PRODUCT if metric is DistanceMetric.DOT else faiss.METRIC_L2
        values, places = faiss.knn(queries, self.vectors, count, metric=kind)
        lists = np.asarray(self.lists[places])
        if reach == inf:
            return lists
        near = values <= values[:, :1] + np.float32(reach)
        width = int(near.sum(axis=1).max(initial=0))
        return np.where(near, lists, NO_LIST)[:, :width]

    def _candidates(self, metric: DistanceMetric, query: Floats, count: int, reach: float) -> Indices | None:
        """Places of the best lists for one query by their short form; None if it is not worth making or cannot tell."""
        coarse = self._coarse.get(metric)
        if coarse is None:
            self._asked[metric] += 1
            if self._asked[metric] <= _COARSE_AFTER:
                return None
            coarse = self._coarse[metric] = CoarseScan(metric, self.vectors)
        return coarse.best(query, count, reach)[None] if coarse.is_true else None

    @cached_property
    def _coarse(self) -> dict[DistanceMetric, CoarseScan]:
        """The centres in short form, once they are."""
        return {}

    @cached_property
    def _asked(self) -> Counter[DistanceMetric]:
        """Single queries so far."""
        return Counter()

    def scores(self, metric: DistanceMetric, queries: Floats) -> Floats:
        """How worth looking into every list is for each query."""
        product = queries @ self.vectors.T
        if metric is DistanceMetric.DOT:
            return product
        scores: Floats = 2 * product - np.einsum("ld,ld->l", self.vectors, self.vectors)
        return scores

    def changed(self, dropped: Indices, lists: Indices, vectors: Floats) -> Centroids:
        """Without the `dropped` lists, and with others added or moved."""
        kept = ~np.isin(self.lists, np.concatenate([dropped, lists]))
        numbers = np.concatenate([self.lists[kept], lists])
        order = np.argsort(numbers)
        return Centroids(numbers[order], np.concatenate([self.vectors[kept], vectors])[order])

    @classmethod
    def none(cls, dimensions: int) -> Centroids:
        return cls(np.empty(0, np.int64), np.empty((0, dimensions), np.float32))


class NearestCentre:
    """Finds the centre that each vector belongs to; among very many, nearly always the nearest one."""

    def __init__(self, centres: Floats) -> None:
        self._centres = np.ascontiguousarray(centres)
        self._grouped: Any = None
        if len(centres) > _EXHAUSTIVE_MAX:
            groups = _train(self._centres, int(len(centres) ** 0.5))
            self._quantizer = faiss.IndexFlatL2(centres.shape[1])
            self._quantizer.add(groups)
            self._grouped = faiss.IndexIVFFlat(self._quantizer, centres.shape[1], len(groups))
            self._grouped.is_trained = True
            self._grouped.add(self._centres)
            self._grouped.nprobe = _GROUPS_PROBED

    def of(self, vectors: Floats) -> Indices:
        """The place of the centre of each vector."""
        if not len(vectors):
            return np.empty(0, np.int64)
        rows = np.ascontiguousarray(vectors)
        found = faiss.knn(rows, self._centres, 1) if self._grouped is None else self._grouped.search(rows, 1)
        places: Indices = found[1][:, 0]
        return places


def nearest(vectors: Floats, centres: Floats) -> Indices:
    """The place of the centre that each vector belongs to."""
    return NearestCentre(centres).of(vectors)


def is_overfull(rows: Array, list_rows: int) -> Bools:
    full: Bools = rows > _OVERFULL * list_rows
    return full


def is_sparse(rows: Array, list_rows: int) -> Bools:
    sparse: Bools = rows < _SPARSE * list_rows
    return sparse


def pieces(rows: int, list_rows: int, pieces_max: int) -> int:
    """Into how many lists to cut this many rows."""
    wanted = 1 if rows <= list_rows else -(-int(rows * _OVERSPLIT) // list_rows)
    return max(1, min(wanted, pieces_max))


def partition(metric: DistanceMetric, vectors: Floats, count: int) -> tuple[Floats, Indices]:
    """Up to `count` centres and the piece of each prepared vector; no piece is empty, and none has all rows."""
    if count <= 1:
        return metric.prepare(vectors.mean(axis=0, keepdims=True, dtype=np.float32)), np.zeros(len(vectors), np.int64)
    alike = _majority(vectors)
    if alike.any():
        return _around_majority(metric, vectors, alike, count)
    centres = metric.prepare(_centres(vectors, min(count, len(vectors))))
    if len(centres) > _FLAT_MAX:
        # Centres found in two levels know only their own group: one round over all of them mends that.
        centres = metric.prepare(means(vectors, nearest(vectors, centres))[0])
    used, places = np.unique(nearest(vectors, centres), return_inverse=True)
    if len(used) == 1:
        return _dealt(centres[used[0]], len(vectors), count)
    return centres[used], places.astype(np.int64)


def _majority(vectors: Floats) -> Bools:
    """The rows that are equal to one vector, if that is more than half of them; otherwise none."""
    sample = vectors[np.linspace(0, len(vectors) - 1, min(len(vectors), _MAJORITY_SAMPLE)).astype(np.int64)]
    # Whatever makes up more than half is in the middle of each component.
    alike: Bools = (vectors == np.median(sample, axis=0)).all(axis=1)
    return alike if 2 * int(alike.sum()) > len(vectors) else np.zeros(len(vectors), np.bool_)


def _dealt(centre: Floats, rows: int, count: int) -> tuple[Floats, Indices]:
    """Rows that no centre tells apart, in pieces of one size: a list must stay of a size that can be read."""
    count = min(count, rows)
    return np.repeat(centre[None], count, axis=0), np.arange(rows) * count // rows


def _around_majority(metric: DistanceMetric, vectors: Floats, alike: Bools, count: int) -> tuple[Floats, Indices]:
    """Equal rows apart from the others: clustering would spend its centres on them and find one cluster all the same."""
    others = vectors[~alike]
    share = min(count - 1, -(-len(others) * count // len(vectors)))
    centres, labels = _dealt(vectors[int(np.argmax(alike))], len(vectors) - len(others), count - share)
    if not len(others):
        return centres, labels
    found, places = partition(metric, others, share)
    joined = np.empty(len(vectors), np.int64)
    joined[alike], joined[~alike] = labels, len(centres) + places
    return np.concatenate([centres, found]), joined


def means(vectors: Floats, labels: Indices) -> tuple[Floats, Indices]:
    """The mean of the vectors of each label that occurs, and those labels in order."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    ends = np.append(starts, len(ordered))[1:]
    found = np.empty((len(starts), vectors.shape[1]), np.float32)
    # A group at a time stays in the processor's reach: several times as fast as one call over all of them.
    for place, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        np.add.reduce(vectors[order[start:end]], axis=0, out=found[place])
    found /= (ends - starts)[:, None]
    return found, ordered[starts]


def _centres(vectors: Floats, count: int) -> Floats:
    """Centres by Lloyd's method; many are found in two levels, which takes the root of the time."""
    if count <= _FLAT_MAX:
        return _train(vectors, count)
    groups = _train(vectors, int(count**0.5))
    labels = nearest(vectors, groups)
    parts = []
    for group in range(len(groups)):
        mine = vectors[labels == group]
        share = round(count * len(mine) / len(vectors))
        if 2 * len(mine) > len(vectors):
            # Grouping hardly tells these apart, and would not a level deeper either: each level halves what is left.
            share = min(share, _FLAT_MAX)
        if len(mine):
            parts.append(_centres(mine, max(1, min(share, len(mine)))))
    return np.concatenate(parts)


def _train(vectors: Floats, count: int) -> Floats:
    trainer = faiss.Kmeans(
        vectors.shape[1],
        count,
        niter=_ROUNDS,
        seed=_SEED,
        min_points_per_centroid=1,
        max_points_per_centroid=_SAMPLE_ROWS,
    )
    trainer.train(np.ascontiguousarray(vectors))
    return np.asarray(trainer.centroids, np.float32)
