"""One query over what is in memory: the short way to the answer that the general way gives, to the last bit.

Most of a warm search's time is Python between the kernels, so this way has as little of it as possible: no pauses, no
arrays for a dozen numbers. It gives up (None) whenever something is not at hand: a block that has to be read, fewer rows
than asked for, a row without a vector or a name. The general way (`nearest`, `rows_of`) then answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from penstock.blocks import BlockReader, Shelf, Sized
from penstock.vector.arrays import Column, Floats, Ids
from penstock.vector.format.content import ColumnBlock
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState
from penstock.vector.offload import OneThread
from penstock.vector.read.lookup import row_of, text_column
from penstock.vector.read.vectors import VECTORS, VectorRows, compare_places
from penstock.vector.search.calibration import ProbePlan
from penstock.vector.search.nearest import POSTINGS, SPARE, is_short_scan
from penstock.vector.search.scan import PostingList, collect_rows

__all__ = ["WarmAnswer", "answer_warm"]

_NAMES: Final = Shelf(Family.NAMES)
# The general way looks candidates of more than this up in another manner.
_ROWS_MAX: Final = 48

S = TypeVar("S", bound=Sized)


@dataclass(slots=True)
class WarmAnswer:
    """The best rows of one query: their scores and names."""

    scores: Floats
    names: Column


def answer_warm(
    blocks: BlockReader, state: CollectionState, query: Floats, count: int, plan: ProbePlan
) -> WarmAnswer | None:
    """The best `count` visible rows, ranked exactly; None if not all of it is in memory."""
    with OneThread():
        return _answer(blocks, state, query, count, plan)


def _answer(
    blocks: BlockReader, state: CollectionState, query: Floats, count: int, plan: ProbePlan
) -> WarmAnswer | None:
    if count > _ROWS_MAX or plan.probes >= len(state.centroids):
        return None
    numbers = state.centroids.probe(state.metric, query, plan.probes, plan.reach)[0].tolist()
    lists = blocks.held(state, POSTINGS, numbers, PostingList)
    if lists is None or not is_short_scan(lists, state.dimensions):
        return None
    selected = None if state.all_visible else state.visible
    _, candidates = collect_rows(state.metric, query, lists, count + SPARE, selected)
    scores = _exact(blocks, state, query, candidates)
    if scores is None:
        return None
    # Best first; of equals the older row.
    order = np.lexsort((candidates, -scores))
    best = scores[order]
    # One that is no number comes last: what it means is for the general way to say.
    if best[-1] != best[-1]:
        return None
    names = _names(blocks, state, candidates[order[:count]])
    if names is None:
        return None
    blocks.cache.count(len(lists) + len(candidates) + len(names), 0)
    return WarmAnswer(best[:count], names)


def _exact(blocks: BlockReader, state: CollectionState, query: Floats, ids: Ids) -> Floats | None:
    buckets = _buckets(blocks, state, VECTORS, ids, VectorRows)
    if buckets is None:
        return None
    names: list[int] = ids.tolist()
    pairs = zip(buckets, names, strict=True)
    places = [bucket.base + name for bucket, name in pairs if bucket.first <= name < bucket.end]
    if len(places) < len(names):
        # Buckets that rows have died in, or ids that are none.
        found = [bucket.place(name) for bucket, name in zip(buckets, names, strict=True)]
        places = [place for place in found if place is not None]
        if len(places) < len(names):
            return None
    return compare_places(state.metric, query, None, np.array(places, np.int64))


def _names(blocks: BlockReader, state: CollectionState, ids: Ids) -> Column | None:
    buckets = _buckets(blocks, state, _NAMES, ids, ColumnBlock)
    if buckets is None:
        return None
    pieces = []
    for bucket, name in zip(buckets, ids.tolist(), strict=True):
        first = bucket.dense_from
        row = row_of(bucket.ids, name) if first is None else name - first
        if row is None or not 0 <= row < len(bucket.ids):
            return None
        pieces.append(bucket.text(row))
    return text_column(pieces)


def _buckets(
    blocks: BlockReader, state: CollectionState, shelf: Shelf, ids: Ids, result: type[S]
) -> Sequence[S] | None:
    """The bucket of each id, if all are in memory."""
    # Ids fit into either kind of number, and both sides have to be of one.
    lows = state.directory(shelf).lows.view(np.int64)
    if not len(lows):
        return None
    # An id before the first bucket finds the last one, which does not have it.
    return blocks.held(state, shelf, lows[lows.searchsorted(ids, "right") - 1].tolist(), result)
