"""Lists taken apart and put together again: dead rows dropped, sparse lists dissolved, overfull ones split.

Pure. Works on some lists at a time and on their codes alone; rows may also move to lists that were not taken
in hand. A thorough reshaping also moves each centre to the mean of its rows and every row to its nearest centre,
which mends what drift and piecemeal growth have done to the clusters. A row stays where it is if no centre is nearer
than its own, so that lists of equal rows do not flow together; a list that lost all its rows is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.vector.arrays import Bools, Floats, Ids, Indices
from penstock.vector.clusters import Centroids, is_overfull, is_sparse, means, nearest, partition, pieces
from penstock.vector.codes import decode
from penstock.vector.content import PostingBlock
from penstock.vector.metric import Metric

__all__ = ["Reshaped", "reshape"]

# Squared distances that differ by less, relative to the square of a row's length, differ by rounding alone.
_TIE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Reshaped:
    """Where every row of the lists in hand belongs now."""

    centroids: Centroids
    rows: PostingBlock
    lists: Ids
    next_list: int
    # Lists whose centres were added, moved or dropped.
    changed: Ids
    split: int
    dissolved: int


def reshape(
    metric: Metric,
    centroids: Centroids,
    in_hand: Ids,
    rows: PostingBlock,
    lists: Ids,
    *,
    list_rows: int,
    lists_max: int,
    next_list: int,
    thorough: bool,
) -> Reshaped:
    """Decide anew on the lists `in_hand`; `lists` holds the present list of each of their `rows`."""
    vectors = decode(rows.codes)
    dissolved = _dissolvable(centroids, in_hand, lists, list_rows)
    if thorough:
        centres, numbers = means(vectors, lists)
        staying = ~np.isin(numbers, dissolved)
        numbers = numbers[staying]
        centroids = centroids.changed(dissolved, numbers, metric.prepare(centres[staying]))
    else:
        numbers = np.empty(0, np.int64)
        centroids = centroids.changed(dissolved, numbers, centroids.vectors[:0])
    moving: Bools = np.ones(len(rows), np.bool_) if thorough else np.isin(lists, dissolved)
    lists = lists.copy()
    lists[moving] = _nearest_lists(vectors[moving], lists[moving], centroids)
    kept = np.setdiff1d(in_hand, dissolved)
    if thorough:
        emptied = _emptied(centroids, kept, lists)
        centroids = centroids.changed(emptied, emptied[:0], centroids.vectors[:0])
        dissolved, kept = np.concatenate([dissolved, emptied]), np.setdiff1d(kept, emptied)
        numbers = np.setdiff1d(numbers, emptied)
    splits = kept[is_overfull(_counts(lists, kept), list_rows)]
    room = lists_max - len(centroids)
    cut, centres = _split(metric, splits, vectors, lists, list_rows, room, next_list)
    fresh = np.arange(next_list, next_list + len(centres))
    centroids = centroids.changed(cut, fresh, centres)
    changed = np.concatenate([dissolved, numbers, cut, fresh])
    return Reshaped(centroids, rows, lists, next_list + len(fresh), changed, len(cut), len(dissolved))


def _counts(lists: Ids, numbers: Ids) -> Ids:
    """How often each of some ordered list numbers occurs."""
    ordered = np.sort(lists)
    return np.searchsorted(ordered, numbers, side="right") - np.searchsorted(ordered, numbers)


def _dissolvable(centroids: Centroids, in_hand: Ids, lists: Ids, list_rows: int) -> Ids:
    """Lists with too few rows to be worth a probe; one list always stays."""
    counts = _counts(lists, in_hand)
    sparse: Ids = in_hand[is_sparse(counts, list_rows)]
    if len(sparse) == len(centroids):
        sparse = np.delete(sparse, int(np.argmax(counts[is_sparse(counts, list_rows)])))
    return sparse


def _nearest_lists(vectors: Floats, lists: Ids, centroids: Centroids) -> Ids:
    """The list of each row's nearest centre: its own if that is as near."""
    places = nearest(vectors, centroids.vectors)
    own = np.minimum(np.searchsorted(centroids.lists, lists), len(centroids) - 1)
    torn = np.flatnonzero((centroids.lists[own] == lists) & (own != places))
    rows = vectors[torn]
    near, home = (_squared(rows - centroids.vectors[at[torn]]) for at in (places, own))
    stays = torn[home <= near + _TIE * _squared(rows)]
    places[stays] = own[stays]
    found: Ids = centroids.lists[places]
    return found


def _squared(rows: Floats) -> Floats:
    squares: Floats = np.einsum("nd,nd->n", rows, rows)
    return squares


def _emptied(centroids: Centroids, kept: Ids, lists: Ids) -> Ids:
    """Lists that have no rows left; one list always stays."""
    emptied: Ids = kept[_counts(lists, kept) == 0]
    return emptied[1:] if len(emptied) == len(centroids) else emptied


def _split(
    metric: Metric, splits: Ids, vectors: Floats, lists: Ids, list_rows: int, room: int, next_list: int
) -> tuple[Ids, Floats]:
    """Cut lists into several, which get the next numbers: those that were cut, and the centres of their pieces.

    `lists` is updated in place. There is `room` for so many more lists.
    """
    cut: list[int] = []
    centres = [vectors[:0]]
    for number in splits.tolist():
        mine: Indices = np.flatnonzero(lists == number)
        count = pieces(len(mine), list_rows, room + 1)
        if count > 1:
            found, labels = partition(metric, vectors[mine], count)
            lists[mine] = next_list + labels
            next_list, room = next_list + len(found), room - len(found) + 1
            cut.append(number)
            centres.append(found)
    return np.array(cut, np.int64), np.concatenate(centres)
