"""Lists taken apart and put together again: dead rows dropped, sparse lists dissolved, overfull ones split.

Pure. Works on some lists at a time and on their codes alone; rows may also move to lists that were not taken
in hand. A thorough reshaping also moves each centre to the mean of its rows and every row to its nearest centre,
which mends what drift and piecemeal growth have done to the clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.vector.arrays import Bools, Floats, Ids, Indices
from penstock.vector.clusters import Centroids, is_overfull, is_sparse, means, nearest, partition, pieces
from penstock.vector.codes import decode
from penstock.vector.content import PostingBlock
from penstock.vector.metric import Metric

__all__ = ["Reshaped", "reshape"]


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
    lists[moving] = centroids.lists[nearest(vectors[moving], centroids.vectors)]
    kept = np.setdiff1d(in_hand, dissolved)
    held = np.array([np.count_nonzero(lists == number) for number in kept.tolist()], np.int64)
    splits = kept[is_overfull(held, list_rows)].tolist()
    changed = [dissolved, numbers]
    before = next_list
    for number in splits:
        centroids, next_list = _split(metric, centroids, number, vectors, lists, list_rows, lists_max, next_list)
    changed.append(np.array(splits, np.int64))
    changed.append(np.arange(before, next_list))
    return Reshaped(centroids, rows, lists, next_list, np.concatenate(changed), len(splits), len(dissolved))


def _dissolvable(centroids: Centroids, in_hand: Ids, lists: Ids, list_rows: int) -> Ids:
    """Lists with too few rows to be worth a probe; one list always stays."""
    counts = np.array([np.count_nonzero(lists == number) for number in in_hand.tolist()], np.int64)
    sparse: Ids = in_hand[is_sparse(counts, list_rows)]
    if len(sparse) == len(centroids):
        sparse = np.delete(sparse, int(np.argmax(counts[is_sparse(counts, list_rows)])))
    return sparse


def _split(
    metric: Metric,
    centroids: Centroids,
    number: int,
    vectors: Floats,
    lists: Ids,
    list_rows: int,
    lists_max: int,
    next_list: int,
) -> tuple[Centroids, int]:
    """Cut one list into several, which get new numbers; `lists` is updated in place."""
    mine: Indices = np.flatnonzero(lists == number)
    count = pieces(len(mine), list_rows, lists_max - len(centroids) + 1)
    if count <= 1:
        return centroids, next_list
    centres, labels = partition(metric, vectors[mine], count)
    numbers = np.arange(next_list, next_list + len(centres))
    lists[mine] = numbers[labels]
    return centroids.changed(np.array([number]), numbers, centres), next_list + len(centres)
