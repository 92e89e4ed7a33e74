"""How many lists to probe for a wished recall, measured on the collection itself.

Some of its own rows are asked for as if they were queries, and the lists of their true neighbours are noted.
A sample of the rows stands for all: in a tenth of the rows the nearest one is about the tenth nearest of all.
Where the sample is thinner than that the estimate errs towards more probes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import faiss
import numpy as np

from penstock.vector.arrays import Floats, Indices
from penstock.vector.blocks import BlockReader, Damage
from penstock.vector.clusters import Centroids, nearest
from penstock.vector.metric import Metric
from penstock.vector.state import CollectionState
from penstock.vector.vectors import VECTORS, read_vectors

__all__ = ["Calibration", "calibrate", "sample_rows"]

# Rows and queries of a measurement: a few tenths of a second, and an error of about half a percent of recall.
_SAMPLE_ROWS: Final = 8192
_QUERIES: Final = 2048
# The neighbours that recall is about.
_NEIGHBOURS: Final = 10
# Measured again when the collection has shrunk or its lists have changed by this factor, or when this share of it
# was written anew: rows that replace others may lie less well in the lists of those.
_STALE_FACTOR: Final = 1.25
_TURNOVER_MAX: Final = 0.05
# Aim a little higher than asked: a sample is not the truth, and some rows lie in a list beside their nearest.
_MARGIN: Final = 0.01


@dataclass(frozen=True, slots=True)
class Calibration:
    """Recall by number of probes, and the size of the collection it was measured on."""

    recall: Floats
    rows: int
    lists: int
    # How many rows had ever been written.
    written: int = 0

    def probes(self, target: float) -> int:
        """The fewest probes that reach `target`, or all."""
        if target >= 1:
            return self.lists
        enough = np.flatnonzero(self.recall >= min(target + _MARGIN, 1.0))
        return int(enough[0]) + 1 if len(enough) else self.lists

    def fits(self, state: CollectionState) -> bool:
        def alike(before: int, now: int) -> bool:
            return max(before, now) <= _STALE_FACTOR * min(before, now)

        if state.head.next_id - self.written > _TURNOVER_MAX * self.rows:
            return False
        return alike(self.rows, max(1, state.placed_rows)) and alike(self.lists, max(1, len(state.centroids)))


async def sample_rows(blocks: BlockReader, state: CollectionState, damage: Damage) -> Floats:
    """Vectors of some visible rows, prepared, from buckets spread over the collection."""
    directory = state.directory(VECTORS)
    per_bucket = max(1, int(directory.rows.mean())) if len(directory) else 1
    count = min(len(directory), -(-_SAMPLE_ROWS // per_bucket))
    lows = directory.lows[np.linspace(0, len(directory), count, endpoint=False).astype(np.int64)].tolist()
    stored = await read_vectors(blocks, state, lows, damage)
    parts = [held.vectors[state.visible.contains(held.ids)] for held in stored.values()]
    return state.metric.prepare(np.concatenate([np.empty((0, state.dimensions), np.float32), *parts])[:_SAMPLE_ROWS])


def calibrate(metric: Metric, centroids: Centroids, rows: int, sample: Floats, written: int = 0) -> Calibration:
    """Measure recall by probes on a sample of `rows` rows."""
    lists = max(1, len(centroids))
    if len(sample) < 2:
        return Calibration(np.ones(lists, np.float32), max(1, rows), lists, written)
    places = np.linspace(0, len(sample), min(_QUERIES, len(sample)), endpoint=False).astype(np.int64)
    neighbours = max(1, min(round(_NEIGHBOURS * len(sample) / max(rows, 1)), len(sample) - 1, _NEIGHBOURS))
    queries = np.ascontiguousarray(sample[places])
    true = _neighbours(metric, queries, sample, places, neighbours)
    labels = nearest(sample, centroids.vectors)
    needed = _ranks(centroids.scores(metric, queries), labels[true])
    counts = np.bincount(needed.reshape(-1), minlength=lists)
    return Calibration((np.cumsum(counts) / needed.size).astype(np.float32), max(1, rows), lists, written)


def _ranks(scores: Floats, lists: Indices) -> Indices:
    """How many lists come before each wanted one in the order of its query."""
    wanted = np.take_along_axis(scores, lists, 1)
    return np.stack([(scores > column[:, None]).sum(axis=1) for column in wanted.T], axis=1)


def _neighbours(metric: Metric, queries: Floats, sample: Floats, own: Indices, count: int) -> Indices:
    """Places of the nearest other rows of each query."""
    kind = faiss.METRIC_L2 if metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT
    _, found = faiss.knn(queries, sample, min(count + 1, len(sample)), metric=kind)
    others = found != own[:, None]
    # A query that is not among its own neighbours (an equal row is) has one too many: the last goes.
    others[others.all(axis=1), -1] = False
    rows: Indices = found[others].reshape(len(queries), -1)
    return rows
