"""One query over what is in memory: the short way to the answer that the general way gives, to the last bit.

Most of a warm search's time is Python between the kernels, so this way has as little of it as possible: no pauses, no
arrays for a dozen numbers. It gives up (None) whenever something is not at hand: a block that has to be read, fewer rows
than asked for, a row without a vector or a name. The general way (`nearest`, `rows_of`) then answers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Final, TypeVar

import numpy as np

from penstock.vector.arrays import Column, Floats, Ids
from penstock.vector.blocks import BlockReader
from penstock.vector.cache import Sized
from penstock.vector.content import ColumnBlock
from penstock.vector.keys import Family, Shelf
from penstock.vector.lookup import join_texts, row_of
from penstock.vector.nearest import POSTINGS, SPARE, is_short_scan
from penstock.vector.scan import NONE, PostingList, scan_lists
from penstock.vector.state import CollectionState
from penstock.vector.vectors import VECTORS, VectorRows, score_gathered

__all__ = ["WarmAnswer", "answer_warm"]

_NAMES: Final = Shelf(Family.NAMES)
# The general way looks candidates of more than this up in another manner.
_ROWS_MAX: Final = 48

S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True)
class WarmAnswer:
    """The best rows of one query: their ids, scores and names."""

    ids: Ids
    scores: Floats
    names: Column


def answer_warm(
    blocks: BlockReader, state: CollectionState, query: Floats, count: int, probes: int
) -> WarmAnswer | None:
    """The best `count` visible rows, ranked exactly; None if not all of it is in memory."""
    if count > _ROWS_MAX or probes >= len(state.centroids):
        return None
    numbers = state.centroids.probe(state.metric, query, probes)[0].tolist()
    lists = blocks.held(state, POSTINGS, numbers, PostingList)
    if lists is None or not is_short_scan(lists, state.dimensions):
        return None
    selected = None if state.all_visible else state.visible
    candidates = scan_lists(state.metric, query, lists, count + SPARE, selected).ids[0].tolist()
    if candidates[-1] == NONE:
        return None
    scores = _exact(blocks, state, query, candidates)
    if scores is None:
        return None
    # Best first; of equals the older row.
    best = sorted(zip([-score for score in scores], candidates, strict=True))[:count]
    ids = [name for _, name in best]
    names = _names(blocks, state, ids)
    if names is None:
        return None
    return WarmAnswer(np.array(ids, np.int64), np.array([-score for score, _ in best], np.float32), names)


def _exact(blocks: BlockReader, state: CollectionState, query: Floats, ids: Sequence[int]) -> list[float] | None:
    buckets = _buckets(blocks, state, VECTORS, ids, VectorRows)
    if buckets is None:
        return None
    found = [bucket.compared(name) for bucket, name in zip(buckets, ids, strict=True)]
    if None in found:
        return None
    values = score_gathered(state.metric, query, found)  # type: ignore[arg-type] # none is None
    scores: list[float] = state.metric.scores_of_kernel(values).tolist()
    # One that is no number makes the sum none: what it means is for the general way to say.
    return None if isnan(sum(scores)) else scores


def _names(blocks: BlockReader, state: CollectionState, ids: Sequence[int]) -> Column | None:
    buckets = _buckets(blocks, state, _NAMES, ids, ColumnBlock)
    if buckets is None:
        return None
    rows = [row_of(bucket.ids, name) for bucket, name in zip(buckets, ids, strict=True)]
    if None in rows:
        return None
    return join_texts(zip(buckets, rows, strict=True))  # type: ignore[arg-type] # none is None


def _buckets(
    blocks: BlockReader, state: CollectionState, shelf: Shelf, ids: Sequence[int], result: type[S]
) -> list[S] | None:
    """The bucket of each id, if all are in memory."""
    lows = state.directory(shelf).low_list
    # An id before the first bucket finds the last one, which does not have it.
    return blocks.held(state, shelf, [lows[bisect_right(lows, name) - 1] for name in ids], result) if lows else None
