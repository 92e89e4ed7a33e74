"""Reshaping: rows are never lost or doubled, lists end in shape, and drift is mended."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.vector.format.clusters import Centroids, is_overfull, nearest
from penstock.vector.format.codes import decode, encode
from penstock.vector.format.content import PostingBlock
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.upkeep.reshape import Reshaped, reshape


def reshaped(
    centres: np.ndarray, rows: np.ndarray, lists: np.ndarray, in_hand: list[int], *, thorough: bool, list_rows: int = 10
) -> Reshaped:
    centroids = Centroids(np.arange(len(centres)), centres.astype(np.float32))
    codes = encode(np.ascontiguousarray(rows, np.float32))
    block = PostingBlock(np.arange(len(rows)), codes)
    return reshape(
        DistanceMetric.L2,
        centroids,
        np.array(in_hand),
        block,
        lists.astype(np.int64),
        list_rows=list_rows,
        lists_max=1000,
        next_list=len(centres),
        shaped=np.array(in_hand if thorough else [], np.int64),
    )


@pytest.mark.parametrize("thorough", [False, True])
def test_every_row_ends_in_one_list_that_exists(thorough: bool) -> None:
    rows = np.random.default_rng(1).standard_normal((200, 4))
    result = reshaped(rows[:5], rows, np.arange(200) % 5, [0, 1, 2, 3, 4], thorough=thorough)
    assert sorted(result.rows.ids.tolist()) == list(range(200))
    assert set(result.lists.tolist()) <= set(result.centroids.lists.tolist())
    assert result.split > 0
    counts = np.array([np.count_nonzero(result.lists == number) for number in result.centroids.lists])
    assert not is_overfull(counts, 2 * 10).any()


def test_a_split_list_leaves_no_trace_and_its_pieces_have_new_numbers() -> None:
    rows = np.random.default_rng(2).standard_normal((60, 4))
    result = reshaped(rows[:1], rows, np.zeros(60), [0], thorough=False)
    assert 0 not in result.centroids.lists
    assert result.centroids.lists.min() >= 1
    assert result.next_list == result.centroids.lists.max() + 1
    assert set(result.changed.tolist()) >= {0, *result.centroids.lists.tolist()}


def test_rows_of_a_sparse_list_move_to_the_nearest_other_even_if_that_is_not_in_hand() -> None:
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    result = reshaped(centres, np.array([[9.0, 1.0]]), np.array([0]), [0], thorough=False)
    assert result.lists.tolist() == [1]
    assert result.centroids.lists.tolist() == [1, 2]
    assert result.dissolved == 1


def test_the_last_list_stays_however_few_rows_it_has() -> None:
    result = reshaped(np.array([[0.0, 0.0]]), np.array([[1.0, 1.0]]), np.array([0]), [0], thorough=False)
    assert result.centroids.lists.tolist() == [0]
    empty = reshaped(np.array([[0.0, 0.0]]), np.empty((0, 2)), np.empty(0), [0], thorough=True)
    assert empty.centroids.lists.tolist() == [0]


def test_a_thorough_reshaping_brings_every_row_to_its_nearest_centre() -> None:
    """After drift, when rows lie in lists whose centres are far from them."""
    random = np.random.default_rng(3)
    rows = np.concatenate([random.standard_normal((8, 2)) + 20, random.standard_normal((8, 2)) - 20])
    centres = np.array([[1.0, 1.0], [-1.0, -1.0]])
    result = reshaped(centres, rows, np.repeat([0, 1], 8), [0, 1], thorough=True)
    assert np.linalg.norm(result.centroids.vectors, axis=1).min() > 20
    places = nearest(decode(result.rows.codes), result.centroids.vectors)
    assert (result.centroids.lists[places] == result.lists).all()


def test_lists_of_equal_rows_stay_as_they_are() -> None:
    """Their centres are equal but for rounding: rows that went to the first would leave the others empty."""
    rows = np.full((60, 3), 0.1)
    result = reshaped(np.full((6, 3), 0.1), rows, np.arange(60) // 10, list(range(6)), thorough=True)
    assert result.lists.tolist() == (np.arange(60) // 10).tolist()
    assert result.centroids.lists.tolist() == list(range(6))
    assert (result.split, result.dissolved) == (0, 0)


def test_a_list_that_loses_all_its_rows_is_dropped() -> None:
    right, left = np.array([4.0, 0.0]), np.array([-4.0, 0.0])
    rows = np.array([right] * 5 + [left] * 5 + [right, left] * 2)
    lists = np.array([0] * 5 + [1] * 5 + [2] * 4)
    result = reshaped(np.array([right, left, [9.0, 9.0]]), rows, lists, [0, 1, 2], thorough=True)
    assert set(result.lists.tolist()) == set(result.centroids.lists.tolist()) == {0, 1}
    assert result.dissolved == 1
    assert 2 in result.changed


def test_a_row_that_would_vanish_among_lists_of_equal_rows_keeps_its_own() -> None:
    centres = np.array([[1.0, 1.0]] * 4 + [[-1.0, -1.0]])
    rows = np.concatenate([np.ones((40, 2)), [[-1.0, -1.0]]])
    result = reshaped(centres, rows, np.append(np.arange(40) // 10, 4), list(range(5)), thorough=True)
    assert result.lists[-1] == 4
    assert result.centroids.lists.tolist() == list(range(5))
