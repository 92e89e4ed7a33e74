"""Lists taken apart and put together again: dead rows dropped, sparse lists dissolved, overfull ones split.

Pure. Works on some lists at a time and on their codes alone; rows may also move to lists that were not taken
in hand. Some of them are shaped: each centre moves to the mean of its rows and every row to its nearest centre,
which mends what drift and piecemeal growth have done to the clusters. A row stays where it is if no centre is nearer
than its own, so that lists of equal rows do not flow together; a list that lost all its rows is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import faiss
import numpy as np

from penstock.vector.arrays import Bools, Floats, Ids, Indices
from penstock.vector.format.clusters import Centroids, is_overfull, is_sparse, means, nearest, partition, pieces
from penstock.vector.format.codes import decode
from penstock.vector.format.content import PostingBlock
from penstock.vector.format.metric import DistanceMetric

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
    metric: DistanceMetric,
    centroids: Centroids,
    in_hand: Ids,
    rows: PostingBlock,
    lists: Ids,
    *,
    list_rows: int,
    lists_max: int,
    next_list: int,
    shaped: Ids,
) -> Reshaped:
    """Decide anew on the lists `in_hand`; `lists` holds the present list of each of their `rows`.

    Lists that are not among those `shaped` are only split or dissolved: nothing flows into other full lists.
    """
    vectors = decode(rows.codes)
    dissolved = _dissolvable(centroids, in_hand, lists, list_rows)
    dissolved = np.setdiff1d(dissolved, _stranded(vectors, lists, dissolved, centroids))
    numbers, centres = _recentred(metric, vectors, lists, np.setdiff1d(shaped, dissolved))
    centroids = centroids.changed(dissolved, numbers, centres)
    moving: Bools = np.isin(lists, np.union1d(shaped, dissolved))
    lists = lists.copy()
    lists[moving] = _nearest_lists(vectors[moving], lists[moving], centroids)
    emptied = _emptied(centroids, numbers, lists)
    centroids = centroids.changed(emptied, emptied[:0], centroids.vectors[:0])
    dissolved, numbers = np.concatenate([dissolved, emptied]), np.setdiff1d(numbers, emptied)
    kept = np.setdiff1d(in_hand, dissolved)
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


def _stranded(vectors: Floats, lists: Ids, dissolved: Ids, centroids: Centroids) -> Ids:
    """Lists whose rows would go to one of several equal centres, where a search could not know which to look into."""
    others = centroids.changed(dissolved, dissolved[:0], centroids.vectors[:0])
    mine = np.flatnonzero(np.isin(lists, dissolved))
    if len(others) < 2 or not len(mine):
        return dissolved[:0]
    rows = vectors[mine]
    squares, _ = faiss.knn(rows, others.vectors, 2)
    tied = squares[:, 1] - squares[:, 0] <= _TIE * _squared(rows)
    return np.unique(lists[mine[tied]])


def _recentred(metric: DistanceMetric, vectors: Floats, lists: Ids, shaped: Ids) -> tuple[Ids, Floats]:
    """The lists that are shaped and have rows, and the middles of those."""
    mine = np.isin(lists, shaped)
    if not mine.any():
        return shaped[:0], vectors[:0]
    centres, numbers = means(vectors if mine.all() else vectors[mine], lists[mine])
    return numbers, metric.prepare(centres)


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


def _emptied(centroids: Centroids, shaped: Ids, lists: Ids) -> Ids:
    """Lists that all rows have left; one list always stays."""
    emptied: Ids = shaped[_counts(lists, shaped) == 0]
    return emptied[1:] if len(emptied) == len(centroids) else emptied


def _split(
    metric: DistanceMetric, splits: Ids, vectors: Floats, lists: Ids, list_rows: int, room: int, next_list: int
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
