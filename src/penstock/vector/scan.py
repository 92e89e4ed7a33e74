"""The native scan: lists as faiss holds them, put together for a search without copying.

A list is copied into faiss once, when it is read, and never changes. A search stacks the lists it needs into one
inverted index and scans many queries at once, with a bitmap that says which rows count. Lists that do not fit
into memory together are scanned in waves whose best rows are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import faiss as typed_faiss
import numpy as np

from penstock.vector.arrays import Floats, Ids, Indices
from penstock.vector.codes import QUANTIZER_TYPE, code_bytes
from penstock.vector.content import PostingBlock
from penstock.vector.idset import IdSet
from penstock.vector.metric import Metric
from penstock.vector.offload import kernel_threads

__all__ = ["NONE", "Candidates", "PostingList", "Stack"]

# The type stubs of faiss leave out the parts that stack lists.
faiss: Any = typed_faiss

# No row, or no list.
NONE: Final = -1
# Fewer queries than this hardly ever look into the same lists.
_SORTED_QUERIES: Final = 32


class PostingList:
    """One list, ready to be scanned."""

    __slots__ = ("inverted", "rows", "size_bytes")

    def __init__(self, parts: Sequence[PostingBlock]) -> None:
        self.inverted = faiss.ArrayInvertedLists(1, parts[0].codes.shape[1])
        self.rows = 0
        self.size_bytes = 0
        for part in parts:
            ids = np.ascontiguousarray(part.ids, np.int64)
            codes = np.ascontiguousarray(part.codes)
            self.inverted.add_entries(0, len(ids), faiss.swig_ptr(ids), faiss.swig_ptr(codes))
            self.rows += len(ids)
            self.size_bytes += part.size_bytes


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best rows of each query, best first: scores and ids; NONE where there are no more."""

    scores: Floats
    ids: Ids

    def merged(self, other: Candidates) -> Candidates:
        """The best of both."""
        scores = np.concatenate([self.scores, other.scores], axis=1)
        ids = np.concatenate([self.ids, other.ids], axis=1)
        best = np.argsort(np.where(ids == NONE, np.float32(-np.inf), scores) * -1, axis=1, kind="stable")
        best = best[:, : max(self.ids.shape[1], other.ids.shape[1])]
        return Candidates(np.take_along_axis(scores, best, 1), np.take_along_axis(ids, best, 1))


class Stack:
    """Some lists put together, by number. Holds them as long as it lives; one without lists cannot be searched."""

    def __init__(self, dimensions: int, metric: Metric, lists: dict[int, PostingList]) -> None:
        self.lists = lists
        self.rows = sum(found.rows for found in lists.values())
        self.size_bytes = sum(found.size_bytes for found in lists.values())
        self._metric = metric
        self._numbers = np.array(sorted(lists), np.int64)
        # The place of each list by its number; NONE for those that are not here, the last for numbers beyond.
        self._place = np.full(int(self._numbers.max(initial=-1)) + 2, NONE, np.int64)
        self._place[self._numbers] = np.arange(len(self._numbers))
        self._index: Any = None
        if lists:
            self._assemble(dimensions, metric)

    def _assemble(self, dimensions: int, metric: Metric) -> None:
        pointers = faiss.InvertedListsPtrVector()
        for number in self._numbers.tolist():
            pointers.push_back(self.lists[number].inverted)
        self._inverted = faiss.VStackInvertedLists(len(self.lists), pointers.data())
        kind = faiss.METRIC_L2 if metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT
        self._quantizer = faiss.IndexFlatL2(dimensions)
        self._index = faiss.IndexIVFScalarQuantizer(
            self._quantizer, dimensions, len(self.lists), QUANTIZER_TYPE, kind, False
        )
        assert self._index.code_size == code_bytes(dimensions)
        self._index.is_trained = True
        self._index.replace_invlists(self._inverted, False)

    def covers(self, numbers: Ids) -> bool:
        return bool(self._at(numbers).min() != NONE)

    def search(self, queries: Floats, lists: Ids, count: int, selected: IdSet | None, threads: int = 0) -> Candidates:
        """The best `count` rows for each query in its own lists; lists that are not in the stack are skipped."""
        probes = self._places(lists)
        if len(queries) < _SORTED_QUERIES:
            return self._scan(queries, probes, count, selected, threads)
        # Queries that begin with the same list follow each other, while it is in the processor's own memory.
        order = np.argsort(probes[:, 0], kind="stable")
        found = self._scan(queries[order], probes[order], count, selected, threads)
        back = np.argsort(order)
        return Candidates(found.scores[back], found.ids[back])

    def _scan(self, queries: Floats, probes: Indices, count: int, selected: IdSet | None, threads: int) -> Candidates:
        scores = np.empty((len(queries), count), np.float32)
        ids = np.empty((len(queries), count), np.int64)
        zeros = np.zeros(probes.shape, np.float32)
        kernel_threads(threads)
        parameters = _probing(probes.shape[1])
        if selected is not None:
            passing = faiss.IDSelectorBitmap(len(selected.bits), faiss.swig_ptr(selected.bits))
            parameters = faiss.SearchParametersIVF(nprobe=probes.shape[1], sel=passing)
        pointers = [faiss.swig_ptr(array) for array in (queries, probes, zeros, scores, ids)]
        queried, probed, coarse, found, labels = pointers
        self._index.search_preassigned_c(len(queries), queried, count, probed, coarse, found, labels, False, parameters)
        return Candidates(self._metric.scores_of_kernel(scores), ids)

    def _places(self, lists: Ids) -> Indices:
        places = self._at(lists)
        if places.min() != NONE:
            return places
        there = places != NONE
        # The kernel stops at the first probe that is none, so those come last.
        width = max(1, int(there.sum(axis=1).max(initial=0)))
        return np.ascontiguousarray(-np.sort(-places, axis=1)[:, :width])

    def _at(self, lists: Ids) -> Indices:
        places: Indices = self._place[np.minimum(lists, len(self._place) - 1)]
        return places


@lru_cache(maxsize=64)
def _probing(lists: int) -> Any:
    """Parameters that let every row pass. Searches only read them, so all of them share these."""
    return faiss.SearchParametersIVF(nprobe=lists)
