"""The native scan: lists as faiss holds them, put together for a search without copying.

A list is copied into faiss once, when it is read, and never changes. Many queries are scanned at once: the lists that
they need are stacked into one inverted index, with a bitmap that says which rows count. One query is scanned list by
list, with the same kernel. Lists that do not fit into memory together are scanned in waves whose best rows are merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

__all__ = ["NONE", "Candidates", "PostingList", "Stack", "scan_lists"]

# The type stubs of faiss leave out the parts that stack lists.
faiss: Any = typed_faiss

# No row, or no list.
NONE: Final = -1
# Fewer queries than this hardly ever look into the same lists.
_SORTED_QUERIES: Final = 32


class PostingList:
    """One list, ready to be scanned."""

    __slots__ = ("codes", "ids", "inverted", "rows", "size_bytes")

    def __init__(self, parts: Sequence[PostingBlock]) -> None:
        block = PostingBlock.merge(parts)
        ids, codes = np.ascontiguousarray(block.ids, np.int64), np.ascontiguousarray(block.codes)
        self.inverted = faiss.ArrayInvertedLists(1, codes.shape[1])
        self.inverted.add_entries(0, len(ids), faiss.swig_ptr(ids), faiss.swig_ptr(codes))
        self.rows = len(ids)
        self.size_bytes = block.size_bytes
        # Where they lie from now on: the list never changes.
        self.ids, self.codes = self.inverted.get_ids(0), self.inverted.get_codes(0)


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
    """Some lists put together, by number, for one search. Holds them meanwhile; one of none cannot be searched."""

    def __init__(self, dimensions: int, metric: Metric, lists: Mapping[int, PostingList]) -> None:
        self.lists = lists
        self.rows = sum(found.rows for found in lists.values())
        self._metric = metric
        self._numbers = np.array(sorted(lists), np.int64)
        if lists:
            self._assemble(dimensions, metric)

    def _assemble(self, dimensions: int, metric: Metric) -> None:
        # All pointers in one copy: handing them over one by one takes longer than a search.
        addresses = np.array([int(self.lists[number].inverted.this) for number in self._numbers.tolist()], np.uint64)
        pointers = faiss.InvertedListsPtrVector()
        pointers.resize(len(addresses))
        faiss.memcpy(pointers.data(), faiss.swig_ptr(addresses), addresses.nbytes)
        self._inverted = faiss.VStackInvertedLists(len(addresses), pointers.data())
        self._index = _index(dimensions, metric)
        self._index.nlist = len(addresses)
        self._index.replace_invlists(self._inverted, False)

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
        places = np.minimum(np.searchsorted(self._numbers, lists), len(self._numbers) - 1)
        there = self._numbers[places] == lists
        if there.all():
            return places
        # The kernel stops at the first probe that is none, so those come last.
        width = max(1, int(there.sum(axis=1).max(initial=0)))
        return np.ascontiguousarray(-np.sort(-np.where(there, places, NONE), axis=1)[:, :width])


def scan_lists(
    metric: Metric, query: Floats, lists: Sequence[PostingList], count: int, selected: IdSet | None
) -> Candidates:
    """The best `count` rows for one query in some lists: what a stack of them finds, sooner for a few."""
    scores = np.full((1, count), np.inf if metric is Metric.L2 else -np.inf, np.float32)
    ids = np.full((1, count), NONE, np.int64)
    found, labels = faiss.swig_ptr(scores), faiss.swig_ptr(ids)
    passing = None if selected is None else faiss.IDSelectorBitmap(len(selected.bits), faiss.swig_ptr(selected.bits))
    scanner = _scannable(query.shape[1], metric).get_InvertedListScanner(False, passing, None)
    scanner.set_query(faiss.swig_ptr(query))
    # Codes are the rows themselves, whatever the list: naming one is what readies the scanner for distances in space.
    scanner.set_list(0, 0.0)
    for held in lists:
        scanner.scan_codes(held.rows, held.codes, held.ids, found, labels, count)
    heap = faiss.float_maxheap_array_t() if metric is Metric.L2 else faiss.float_minheap_array_t()
    heap.nh, heap.k, heap.ids, heap.val = 1, count, labels, found
    heap.reorder()
    return Candidates(metric.scores_of_kernel(scores), ids)


def _index(dimensions: int, metric: Metric) -> Any:
    """An index without lists."""
    kind = faiss.METRIC_L2 if metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT
    quantizer = faiss.IndexFlatL2(dimensions)
    index = faiss.IndexIVFScalarQuantizer(quantizer, dimensions, 1, QUANTIZER_TYPE, kind, False)
    assert index.code_size == code_bytes(dimensions)
    index.is_trained = True
    return index


@lru_cache(maxsize=64)
def _scannable(dimensions: int, metric: Metric) -> Any:
    """What makes scanners. It is only read, so all searches share it."""
    return _index(dimensions, metric)


@lru_cache(maxsize=64)
def _probing(lists: int) -> Any:
    """Parameters that let every row pass. Searches only read them, so all of them share these."""
    return faiss.SearchParametersIVF(nprobe=lists)
