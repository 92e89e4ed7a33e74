"""The native scan: lists as faiss holds them, put together for a search without copying.

A list is copied into faiss once, when it is read, and never changes. Many queries are scanned at once: the lists that
they need are stacked into one inverted index, with a bitmap that says which rows count. One query is scanned list by
list, with the same kernel. Lists that do not fit into memory together are scanned in waves whose best rows are merged.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import faiss as typed_faiss
import numpy as np

from penstock.vector.arrays import Floats, Ids, Indices
from penstock.vector.format.codes import QUANTIZER_TYPE, code_bytes
from penstock.vector.format.content import PostingBlock
from penstock.vector.format.idset import IdSet
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.offload import kernel_threads
from penstock.vector.read.slabs import room_for

__all__ = ["NONE", "Candidates", "ListScanner", "PostingList", "Stack", "collect_rows", "scan_lists"]

# The type stubs of faiss leave out the parts that stack lists.
faiss: Any = typed_faiss

# No row, or no list.
NONE: Final = -1
# Rows whose codes end at a multiple of eight bytes, however many bytes a code has: it has an even number.
_IDS_STEP: Final = 4
# Fewer queries than this hardly ever look into the same lists.
_SORTED_QUERIES: Final = 32
# Scanners that a thread keeps: a few collections, each with the rows that count in it at the moment.
_SCANNERS_KEPT: Final = 4


class PostingList:
    """One list, ready to be scanned: codes, then room for some more of them, then ids."""

    __slots__ = ("_room", "codes", "entry", "ids", "rows", "size_bytes")

    def __init__(self, parts: Sequence[PostingBlock]) -> None:
        block = PostingBlock.merge(parts)
        rows, width = block.codes.shape
        # Ids are numbers of eight bytes and lie at multiples of them.
        capacity = -(-rows // _IDS_STEP) * _IDS_STEP
        room = room_for(capacity * width + block.ids.nbytes)
        codes, ids = room[: rows * width], room[capacity * width :].view(np.int64)
        codes[:], ids[:] = block.codes.reshape(-1), block.ids
        self.rows = rows
        self.size_bytes = len(room)
        # Where they lie from now on: the list never changes. Pointers hold on to nothing.
        self.codes, self.ids = faiss.swig_ptr(codes), faiss.swig_ptr(ids)
        self._room = room
        # What a stack is told of it: rows, codes that there is room for, where they begin.
        self.entry = rows, capacity, room.ctypes.data


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

    def __init__(self, dimensions: int, metric: DistanceMetric, lists: Mapping[int, PostingList]) -> None:
        self.lists = lists
        self.rows = sum(found.rows for found in lists.values())
        self._metric = metric
        self._numbers = np.array(sorted(lists), np.int64)
        if lists:
            self._assemble(dimensions, metric)

    def _assemble(self, dimensions: int, metric: DistanceMetric) -> None:
        # Lists of a file that is mapped at address zero: rows, capacity and offset of each, all in one copy.
        entries = np.array([self.lists[number].entry for number in self._numbers.tolist()], np.uint64)
        self._inverted = faiss.OnDiskInvertedLists()
        self._inverted.nlist, self._inverted.code_size = len(entries), code_bytes(dimensions)
        # There is no file to read ahead in.
        self._inverted.prefetch_nthread = 0
        self._inverted.lists.resize(len(entries))
        faiss.memcpy(self._inverted.lists.data(), faiss.swig_ptr(entries), entries.nbytes)
        self._index = _index(dimensions, metric)
        self._index.nlist = len(entries)
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
        width = max(1, int(there.sum(axis=1).max(initial=0)))
        if (there[:, :-1] >= there[:, 1:]).all():
            return np.ascontiguousarray(np.where(there, places, NONE)[:, :width])
        # The kernel stops at the first probe that is none, so those come last.
        return np.ascontiguousarray(-np.sort(-np.where(there, places, NONE), axis=1)[:, :width])


class ListScanner:
    """One query at a time through some lists, one after the other. It holds the query meanwhile: one thread uses it."""

    __slots__ = ("_kept", "_scanner", "_worst")

    def __init__(self, dimensions: int, metric: DistanceMetric, selected: IdSet | None) -> None:
        passing = None
        if selected is not None:
            passing = faiss.IDSelectorBitmap(len(selected.bits), faiss.swig_ptr(selected.bits))
        self._scanner = _scannable(dimensions, metric).get_InvertedListScanner(False, passing, None)
        self._worst = np.float32(np.inf if metric is DistanceMetric.L2 else -np.inf)
        # The scanner looks into these and owns neither.
        self._kept = selected, passing

    def collect(self, query: Floats, lists: Sequence[PostingList], count: int) -> tuple[Floats, Ids]:
        """What the kernel says of the best `count` rows, and their ids, in no order; NONE if there are not so many."""
        values, ids = np.empty(count, np.float32), np.empty(count, np.int64)
        values.fill(self._worst)
        ids.fill(NONE)
        found, labels = faiss.swig_ptr(values), faiss.swig_ptr(ids)
        scanner = self._scanner
        scanner.set_query(faiss.swig_ptr(query))
        # Codes are the rows themselves, whatever the list: naming one is what readies the scanner for distances in space.
        scanner.set_list(0, 0.0)
        scan = scanner.scan_codes
        for held in lists:
            scan(held.rows, held.codes, held.ids, found, labels, count)
        return values, ids


class _Scanners(threading.local):
    """The scanners of one thread that were used last: making one takes as long as scanning a list."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[IdSet | None, ListScanner]] = {}

    def of(self, dimensions: int, metric: DistanceMetric, selected: IdSet | None) -> ListScanner:
        name = dimensions, metric, id(selected)
        found = self._made.get(name)
        if found is None or found[0] is not selected:
            if len(self._made) >= _SCANNERS_KEPT:
                self._made.pop(next(iter(self._made)))
            # Kept with what it selects, so that the name stays its own.
            found = self._made[name] = selected, ListScanner(dimensions, metric, selected)
        return found[1]


_SCANNERS: Final = _Scanners()


def collect_rows(
    metric: DistanceMetric, query: Floats, lists: Sequence[PostingList], count: int, selected: IdSet | None
) -> tuple[Floats, Ids]:
    """The best `count` rows for one query in some lists, in no order, and what the kernel says of them."""
    return _SCANNERS.of(query.shape[1], metric, selected).collect(query, lists, count)


def scan_lists(
    metric: DistanceMetric, query: Floats, lists: Sequence[PostingList], count: int, selected: IdSet | None
) -> Candidates:
    """The best `count` rows for one query in some lists: what a stack of them finds, sooner for a few."""
    values, ids = collect_rows(metric, query, lists, count, selected)
    heap = faiss.float_maxheap_array_t() if metric is DistanceMetric.L2 else faiss.float_minheap_array_t()
    heap.nh, heap.k, heap.ids, heap.val = 1, count, faiss.swig_ptr(ids), faiss.swig_ptr(values)
    heap.reorder()
    return Candidates(metric.scores_of_kernel(values)[None], ids[None])


def _index(dimensions: int, metric: DistanceMetric) -> Any:
    """An index without lists."""
    kind = faiss.METRIC_L2 if metric is DistanceMetric.L2 else faiss.METRIC_INNER_PRODUCT
    quantizer = faiss.IndexFlatL2(dimensions)
    index = faiss.IndexIVFScalarQuantizer(quantizer, dimensions, 1, QUANTIZER_TYPE, kind, False)
    assert index.code_size == code_bytes(dimensions)
    index.is_trained = True
    return index


@lru_cache(maxsize=64)
def _scannable(dimensions: int, metric: DistanceMetric) -> Any:
    """What makes scanners. It is only read, so all searches share it."""
    return _index(dimensions, metric)


@lru_cache(maxsize=64)
def _probing(lists: int) -> Any:
    """Parameters that let every row pass. Searches only read them, so all of them share these."""
    return faiss.SearchParametersIVF(nprobe=lists)
