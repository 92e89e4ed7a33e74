"""Vectors by internal id: as they were stored for callers, and as they are compared for ranking.

What is ranked lies in memory as it is compared, each bucket at an address that is a multiple of a row's bytes. So every
row in memory has a number of its own, its address counted in rows, and one call of a native kernel compares queries
with rows of any number of buckets, where they lie. Whoever makes such a call holds the buckets meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import faiss as typed_faiss
import numpy as np

from penstock.blocks import BlockReader, Damage, Shelf
from penstock.vector.arrays import Floats, Ids, Indices
from penstock.vector.format.content import VectorBlock
from penstock.vector.format.keys import Family
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import CollectionState
from penstock.vector.offload import OneThread
from penstock.vector.read.lookup import FEW_ROWS, each_bucket, row_of, rows_in_buckets
from penstock.vector.read.slabs import room_for

__all__ = [
    "NOWHERE",
    "VECTORS",
    "VectorRows",
    "compare_places",
    "exact_scores",
    "find_comparable",
    "find_vectors",
    "read_vectors",
]

# The type stubs of faiss leave out the pairwise kernels.
faiss: Any = typed_faiss

VECTORS: Final = Shelf(Family.VECTORS)
# The place of a row that is not in memory.
NOWHERE: Final = -1
_FLOAT_BYTES: Final = 4
# The query of each place when there is one query: the same numbers for every search.
_ZEROS: Final = np.zeros(FEW_ROWS, np.int64)


class VectorRows:
    """The vectors of one bucket as they are compared. Ids grow from row to row.

    While every id is one more than the one before, `first <= id < end` says which are here, and the vector of one lies
    at the place `base + id`. With gaps `first` and `end` are equal, and `place` finds a row.
    """

    __slots__ = ("_first_place", "base", "end", "first", "ids", "size_bytes", "vectors")

    def __init__(self, ids: Ids, comparable: Floats) -> None:
        self.ids = ids
        self.vectors = _aligned(comparable)
        self._first_place: int = self.vectors.ctypes.data // max(1, _FLOAT_BYTES * self.vectors.shape[1])
        self.first = self.end = int(self.ids[0]) if len(self.ids) else 0
        if len(self.ids) and int(self.ids[-1]) - self.first == len(self.ids) - 1:
            self.end = self.first + len(self.ids)
        self.base: int = self._first_place - self.first
        self.size_bytes: int = self.ids.nbytes + self.vectors.nbytes

    @classmethod
    def of(cls, metric: DistanceMetric, parts: Sequence[VectorBlock]) -> VectorRows:
        """The vectors of a bucket's fragments."""
        block = VectorBlock.merge(parts)
        # A copy, so that the bytes that it was read from can go.
        return cls(block.ids.copy(), metric.prepare(block.vectors))

    def __len__(self) -> int:
        return len(self.ids)

    def place(self, name: int) -> int | None:
        """Where the vector of an id lies; None if it is not here."""
        if self.first <= name < self.end:
            return self.base + name
        row = row_of(self.ids, name) if len(self.ids) else None
        return None if row is None else self._first_place + row

    def places(self, ids: Ids) -> Indices:
        """Where the vectors of some ids lie; NOWHERE for those that are not here."""
        if not len(self.ids):
            return np.full(len(ids), NOWHERE)
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        found: Indices = np.where(self.ids[rows] == ids, self._first_place + rows, NOWHERE)
        return found

    def scores(self, metric: DistanceMetric, query: Floats) -> Floats:
        """The nearness of every row to one query."""
        places = np.arange(self._first_place, self._first_place + len(self))
        with OneThread():
            return compare_places(metric, query, np.zeros(len(self), np.int64), places)


async def read_vectors(
    blocks: BlockReader, state: CollectionState, lows: Iterable[int], damage: Damage | None = None
) -> dict[int, VectorRows]:
    """Buckets of vectors by their lowest id."""
    metric = state.metric
    return await blocks.built(
        state, VECTORS, lows, VectorBlock, lambda parts: VectorRows.of(metric, parts), VectorRows, damage
    )


async def find_vectors(
    blocks: BlockReader, state: CollectionState, ids: Ids, damage: Damage | None = None
) -> tuple[Floats, Indices]:
    """The vectors of rows as they were stored, in the order of `ids`, and the positions of those that were not found."""
    vectors = np.zeros((len(ids), state.dimensions), np.float32)
    missing = np.ones(len(ids), np.bool_)
    for content, mine, rows in await rows_in_buckets(blocks, state, VECTORS, ids, VectorBlock, damage):
        vectors[mine] = content.vectors[rows]
        missing[mine] = False
    return vectors, np.flatnonzero(missing)


async def find_comparable(
    blocks: BlockReader, state: CollectionState, ids: Ids, damage: Damage | None = None
) -> tuple[Ids, Floats]:
    """Those of some growing ids that have a vector that can be read, and their vectors as they are compared."""
    groups = list(_groups(state, ids))
    stored = await read_vectors(blocks, state, [low for low, _ in groups], damage)
    found: list[Ids] = [np.empty(0, np.int64)]
    vectors = [np.empty((0, state.dimensions), np.float32)]
    for low, part in groups:
        held = stored.get(low)
        if held is not None and len(held):
            rows = np.minimum(np.searchsorted(held.ids, ids[part]), len(held) - 1)
            there = held.ids[rows] == ids[part]
            found.append(ids[part][there])
            vectors.append(held.vectors[rows[there]])
    return np.concatenate(found), np.concatenate(vectors)


async def exact_scores(
    blocks: BlockReader, state: CollectionState, queries: Floats, ids: Ids, damage: Damage
) -> Floats:
    """Nearness of each prepared query to its own candidates, a line of `ids`; NaN where there is no vector."""
    find = _few_places if ids.size <= FEW_ROWS else _many_places
    flat = ids.reshape(-1)
    # Whoever compares holds the buckets.
    places, held = await find(blocks, state, flat, damage)
    # Rows that follow each other in memory are compared one after the other.
    order = places.argsort(kind="stable") if len(places) > FEW_ROWS else np.arange(len(places))
    order = order[places[order] != NOWHERE]
    scores = np.full(len(flat), np.nan, np.float32)
    with OneThread():
        scores[order] = compare_places(state.metric, queries, order // ids.shape[1], places[order])
    del held
    return scores.reshape(ids.shape)


def compare_places(metric: DistanceMetric, queries: Floats, asked: Indices | None, places: Indices) -> Floats:
    """The nearness of query `asked[i]` to the vector at `places[i]`, for every i; without `asked`, of a few to the first.

    Callers hold the buckets that the places are in, and let it use one thread.
    """
    kernel = faiss.pairwise_indexed_L2sqr if metric is DistanceMetric.L2 else faiss.pairwise_indexed_inner_product
    at, scores = faiss.swig_ptr, np.empty(len(places), np.float32)
    # No array to count rows from: places are counted from address zero.
    asked = _ZEROS if asked is None else asked
    kernel(queries.shape[1], len(places), at(queries), at(asked), None, at(places), at(scores))
    return metric.scores_of_kernel(scores)


async def _few_places(
    blocks: BlockReader, state: CollectionState, ids: Ids, damage: Damage
) -> tuple[Indices, Sequence[VectorRows | None]]:
    def read(lows: Iterable[int]) -> Awaitable[Mapping[int, VectorRows]]:
        return read_vectors(blocks, state, lows, damage)

    names = ids.tolist()
    buckets = await each_bucket(blocks, state, VECTORS, names, VectorRows, read)
    found = [None if bucket is None else bucket.place(name) for bucket, name in zip(buckets, names, strict=True)]
    return np.array([NOWHERE if place is None else place for place in found], np.int64), buckets


async def _many_places(
    blocks: BlockReader, state: CollectionState, ids: Ids, damage: Damage
) -> tuple[Indices, Sequence[VectorRows]]:
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    groups = list(_groups(state, ordered))
    stored = await read_vectors(blocks, state, [low for low, _ in groups], damage)
    places = np.full(len(ids), NOWHERE, np.int64)
    for low, part in groups:
        held = stored.get(low)
        if held is not None:
            places[order[part]] = held.places(ordered[part])
    return places, list(stored.values())


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


def _aligned(vectors: Floats) -> Floats:
    """A copy that lies at a multiple of a row's bytes."""
    rows, width = vectors.shape
    row_bytes = _FLOAT_BYTES * width
    room = room_for((rows + 1) * row_bytes)
    skipped = -room.ctypes.data % max(1, row_bytes)
    copy = room[skipped : skipped + rows * row_bytes].view(np.float32).reshape(rows, width)
    copy[:] = vectors
    return copy
