"""Stored vectors by internal id: read for callers, and compared exactly with queries where they lie.

Candidates of a scan are ranked by their stored vectors: a native kernel takes which query meets which row, in
place and block by block where there are many, and over a copy of the rows where there are few. Both give the same
score to the last bit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import faiss as typed_faiss
import numpy as np

from penstock.blocks import BlockReader, Damage, Shelf
from penstock.vector.arrays import Bools, Floats, Ids, Indices
from penstock.vector.format.content import VectorBlock
from penstock.vector.format.keys import Family
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import CollectionState
from penstock.vector.offload import OneThread
from penstock.vector.read.lookup import FEW_ROWS, each_bucket, row_of

__all__ = ["VECTORS", "VectorRows", "exact_scores", "find_vectors", "read_vectors", "score_gathered"]

# The type stubs of faiss leave out the pairwise kernels.
faiss: Any = typed_faiss

VECTORS: Final = Shelf(Family.VECTORS)
# Which vector meets which query when there are few of both: the same numbers for every search.
_LINE: Final = np.arange(FEW_ROWS)
_ZEROS: Final = np.zeros(FEW_ROWS, np.int64)


class VectorRows:
    """The vectors of one bucket, and all that comparing them needs. Ids grow from row to row."""

    __slots__ = ("_compared", "_dense", "_first", "_lengths", "ids", "size_bytes", "vectors")

    def __init__(self, metric: DistanceMetric, parts: Sequence[VectorBlock]) -> None:
        block = VectorBlock.merge(parts)
        self.ids = block.ids
        self.vectors: Floats = np.ascontiguousarray(block.vectors)
        # Vectors as they are compared, and what a product with them is to be divided by.
        self._compared, self._lengths = metric.comparable(self.vectors)
        self._first = int(self.ids[0]) if len(self.ids) else 0
        self._dense = len(self.ids) > 0 and int(self.ids[-1]) - self._first == len(self.ids) - 1
        self.size_bytes = block.size_bytes + (0 if self._lengths is None else self._lengths.nbytes)
        if self._compared is not self.vectors:
            self.size_bytes += self._compared.nbytes

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, ids: Ids) -> tuple[Indices, Bools | None]:
        """The row of each of some ids, which are in order, and which of them are here; None if all are."""
        first = self.ids[0]
        if self._dense and ids[0] >= first and ids[-1] <= self.ids[-1]:
            return ids - first, None
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        there: Bools = self.ids[rows] == ids
        return rows, None if there.all() else there

    def score(self, metric: DistanceMetric, queries: Floats, asked: Indices, rows: Indices, scores: Floats) -> None:
        """Fill `scores` with what the kernel says of query `asked[i]` and row `rows[i]`, for every i."""
        _compare(metric, queries, asked, self._compared, rows, scores)
        if self._lengths is not None:
            np.divide(scores, self._lengths[rows], out=scores)

    def scores(self, metric: DistanceMetric, query: Floats) -> Floats:
        """The nearness of every row to one query."""
        found, rows = np.empty(len(self), np.float32), np.arange(len(self))
        with OneThread():
            self.score(metric, query, np.zeros(len(self), np.int64), rows, found)
        return metric.scores_of_kernel(found)

    def compared(self, name: int) -> tuple[Floats, float] | None:
        """The vector of an id as it is compared, and what a product with it is to be divided by."""
        row = name - self._first
        if not (self._dense and 0 <= row < len(self._compared)):
            found = row_of(self.ids, name)
            if found is None:
                return None
            row = found
        return self._compared[row], 1.0 if self._lengths is None else self._lengths.item(row)


async def read_vectors(
    blocks: BlockReader, state: CollectionState, lows: Iterable[int], damage: Damage | None = None
) -> dict[int, VectorRows]:
    """Buckets of vectors by their lowest id."""
    metric = state.metric
    return await blocks.built(
        state, VECTORS, lows, VectorBlock, lambda parts: VectorRows(metric, parts), VectorRows, damage
    )


async def find_vectors(
    blocks: BlockReader, state: CollectionState, ids: Ids, damage: Damage | None = None
) -> tuple[Floats, Indices]:
    """The vectors of rows, in the order of `ids`, and the positions of those that were not found."""
    vectors = np.zeros((len(ids), state.dimensions), np.float32)
    missing = np.ones(len(ids), np.bool_)
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    groups = list(_groups(state, ordered))
    stored = await read_vectors(blocks, state, [low for low, _ in groups], damage)
    for low, part in groups:
        held = stored.get(low)
        if held is not None:
            rows, there = held.rows(ordered[part])
            mine = order[part] if there is None else order[part][there]
            vectors[mine] = held.vectors[rows if there is None else rows[there]]
            missing[mine] = False
    return vectors, np.flatnonzero(missing)


async def exact_scores(
    blocks: BlockReader, state: CollectionState, queries: Floats, ids: Ids, damage: Damage
) -> Floats:
    """Nearness of each prepared query to its own candidates, a line of `ids`; NaN where there is no vector."""
    score = _score_few if ids.size <= FEW_ROWS else _score_many
    found = await score(blocks, state, queries, ids, damage)
    return state.metric.scores_of_kernel(found).reshape(ids.shape)


async def _score_few(blocks: BlockReader, state: CollectionState, queries: Floats, ids: Ids, damage: Damage) -> Floats:
    def read(lows: Iterable[int]) -> Awaitable[Mapping[int, VectorRows]]:
        return read_vectors(blocks, state, lows, damage)

    names = ids.reshape(-1).tolist()
    buckets = await each_bucket(blocks, state, VECTORS, names, VectorRows, read)
    nowhere = np.zeros(state.dimensions, np.float32), np.nan
    found = [
        nowhere if bucket is None else bucket.compared(name) or nowhere
        for bucket, name in zip(buckets, names, strict=True)
    ]
    with OneThread():
        return score_gathered(state.metric, queries, found, ids.shape[1])


def score_gathered(
    metric: DistanceMetric, queries: Floats, found: Sequence[tuple[Floats, float]], width: int = FEW_ROWS
) -> Floats:
    """What the kernel says of a few vectors, given with what to divide by; each query has `width` of them.

    Callers let it use one thread.
    """
    rows, scores = _LINE[: len(found)], np.empty(len(found), np.float32)
    asked = _ZEROS[: len(found)] if len(queries) == 1 else rows // width
    gathered = np.concatenate([vector for vector, _ in found])
    _compare(metric, queries, asked, gathered, rows, scores)
    scores /= np.array([length for _, length in found], np.float32)
    return scores


async def _score_many(blocks: BlockReader, state: CollectionState, queries: Floats, ids: Ids, damage: Damage) -> Floats:
    flat = ids.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ordered, asked = flat[order], order // ids.shape[1]
    found = np.full(len(flat), np.nan, np.float32)
    groups = list(_groups(state, ordered))
    stored = await read_vectors(blocks, state, [low for low, _ in groups], damage)
    with OneThread():
        for low, part in groups:
            held = stored.get(low)
            if held is None:
                continue
            rows, there = held.rows(ordered[part])
            if there is None:
                held.score(state.metric, queries, asked[part], rows, found[part])
                continue
            some = np.empty(int(there.sum()), np.float32)
            held.score(state.metric, queries, asked[part][there], rows[there], some)
            found[part][there] = some
    scores = np.empty(len(flat), np.float32)
    scores[order] = found
    return scores


def _compare(
    metric: DistanceMetric, queries: Floats, asked: Indices, vectors: Floats, rows: Indices, scores: Floats
) -> None:
    """Fill `scores` with what the metric's kernel says of query `asked[i]` and vector `rows[i]`, for every i."""
    kernel = faiss.pairwise_indexed_L2sqr if metric is DistanceMetric.L2 else faiss.pairwise_indexed_inner_product
    at = faiss.swig_ptr
    kernel(queries.shape[1], len(rows), at(queries), at(asked), at(vectors), at(rows), at(scores))


def _groups(state: CollectionState, ordered: Ids) -> Iterator[tuple[int, slice]]:
    """Buckets that may hold some of the ordered ids, and which of them."""
    directory = state.directory(VECTORS)
    if not len(directory):
        return
    begin = int(np.searchsorted(ordered, directory.low_list[0]))
    places = directory.locate(ordered[begin:])
    starts = (np.flatnonzero(np.diff(places, prepend=-1)) + begin).tolist()
    for first, end in pairwise([*starts, len(ordered)]):
        yield directory.low_list[int(places[first - begin])], slice(first, end)
