"""A short form of many centres, so that one query need not be compared with all of them in full.

Four bits a component, between the least and the greatest that a component has among the centres: nothing is trained, and
making it takes one pass. The native fast scan looks through an eighth of the bytes and gives candidates, three times as
many as lists are wanted, of which the full centres choose. That this is the choice of a full comparison is measured on
the centres themselves; where it is not (centres along a line, say, which sixteen steps do not tell apart) the short
form is not used.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

import faiss as typed_faiss
import numpy as np

from penstock.vector.arrays import Bytes, Floats, Indices
from penstock.vector.format.metric import DistanceMetric

__all__ = ["CoarseScan"]

# The type stubs of faiss leave out parts of the fast scan.
faiss: Any = typed_faiss

_BITS: Final = 4
_LEVELS: Final = 1 << _BITS
# Candidates for each list that is wanted, and at least.
_SPARE_FACTOR: Final = 3
_CANDIDATES_MIN: Final = 24
# So many times as many centres as candidates, and at least this many centres; fewer are compared in full as soon.
_WORTH_FACTOR: Final = 4
_LISTS_MIN: Final = 768
# Centres that stand for queries when the short form is judged, and the best of each that it has to find.
_CHECKED: Final = 64
_CHECKED_BEST: Final = 8
_AGREEMENT_MIN: Final = 0.99


class CoarseScan:
    """Centres in short form. Never changes."""

    __slots__ = ("_centres", "_index", "_metric", "is_true", "size_bytes")

    def __init__(self, metric: DistanceMetric, centres: Floats) -> None:
        self._metric = metric
        self._centres = np.ascontiguousarray(centres)
        self._index = _fast_scan(_kind(metric), self._centres)
        # Beside the centres, which are counted where they belong.
        self.size_bytes = int(self._index.codes.size())
        self.is_true = self._agreement() >= _AGREEMENT_MIN

    @staticmethod
    def suits(lists: int, probes: int) -> bool:
        """Whether looking through candidates is sooner done than comparing all."""
        return lists >= _LISTS_MIN and _WORTH_FACTOR * _candidates(probes) <= lists

    def best(self, query: Floats, count: int, reach: float = inf) -> Indices:
        """Places of the best centres for one query, best first; of distances none over the least by more than `reach`."""
        width, wanted = self._centres.shape[1], _candidates(count)
        values, places = np.empty(wanted, np.float32), np.empty(wanted, np.int64)
        queried, found, labels = map(faiss.swig_ptr, (np.ascontiguousarray(query), values, places))
        self._index.search_c(1, queried, wanted, found, labels)
        # In their own order, so that of equals the first one comes first.
        places.sort()
        product = self._metric is DistanceMetric.DOT
        kernel = faiss.fvec_inner_products_by_idx if product else faiss.fvec_L2sqr_by_idx
        kernel(found, queried, faiss.swig_ptr(self._centres), labels, width, 1, wanted)
        order = (-values if product else values).argsort(kind="stable")[:count]
        best: Indices = places[order]
        if reach == inf:
            return best
        near = values[order]
        return best[: near.searchsorted(near[0] + np.float32(reach), "right")]

    def _agreement(self) -> float:
        """The share of the best centres of a full comparison that this finds too, for some centres as queries."""
        rows = np.linspace(0, len(self._centres), _CHECKED, endpoint=False).astype(np.int64)
        queries = self._centres[rows]
        _, true = faiss.knn(queries, self._centres, _CHECKED_BEST, metric=_kind(self._metric))
        found = np.stack([self.best(query[None], _CHECKED_BEST) for query in queries])
        return float((true[:, :, None] == found[:, None, :]).any(axis=2).mean())


def _candidates(probes: int) -> int:
    return max(probes * _SPARE_FACTOR, _CANDIDATES_MIN)


def _kind(metric: DistanceMetric) -> Any:
    return faiss.METRIC_INNER_PRODUCT if metric is DistanceMetric.DOT else faiss.METRIC_L2


def _fast_scan(kind: Any, centres: Floats) -> Any:
    """The native index of centres in four bits a component."""
    count, width = centres.shape
    low, high = centres.min(axis=0), centres.max(axis=0)
    step = np.maximum((high - low) / _LEVELS, np.finfo(np.float32).tiny)
    levels = np.clip((centres - low) / step, 0, _LEVELS - 1).astype(np.uint8)
    values = low[:, None] + step[:, None] * (np.arange(_LEVELS, dtype=np.float32) + np.float32(0.5))
    plain = faiss.IndexPQ(width, width, _BITS, kind)
    faiss.copy_array_to_vector(np.ascontiguousarray(values, np.float32).reshape(-1), plain.pq.centroids)
    faiss.copy_array_to_vector(_packed(levels).reshape(-1), plain.codes)
    plain.is_trained, plain.ntotal = True, count
    return faiss.IndexPQFastScan(plain)


def _packed(levels: Bytes) -> Bytes:
    """Two components a byte, the first in the lower half."""
    even = levels if levels.shape[1] % 2 == 0 else np.pad(levels, ((0, 0), (0, 1)))
    packed: Bytes = np.ascontiguousarray(even[:, ::2] | (even[:, 1::2] << _BITS))
    return packed
