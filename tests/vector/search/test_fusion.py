"""Fusion: two rankings become one."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import InvalidInput
from penstock.vector.search.fusion import Fusion, Ranking, fuse


def ranking(**scores: float) -> Ranking:
    names = list(scores)
    return Ranking(np.array([int(name[1:]) for name in names]), np.array([scores[name] for name in names], np.float32))


def test_a_row_that_both_rankings_have_beats_one_that_either_has_alone() -> None:
    found = fuse(ranking(r1=0.9, r2=0.8), ranking(r3=7.0, r2=5.0), Fusion(), 10)
    assert found.ids.tolist() == [2, 1, 3]
    assert np.allclose(found.scores, [2 / 62, 1 / 61, 1 / 61])


def test_weights_mix_shares_of_the_best_score() -> None:
    vectors, texts = ranking(r1=0.8, r2=0.4, r3=0.2), ranking(r3=20.0, r1=10.0)
    assert fuse(vectors, texts, Fusion.weighted(1.0), 3).ids.tolist() == [1, 2, 3]
    assert fuse(vectors, texts, Fusion.weighted(0.0), 3).ids.tolist() == [3, 1, 2]
    mixed = fuse(vectors, texts, Fusion.weighted(0.6), 3)
    assert mixed.ids.tolist() == [1, 3, 2]
    assert np.allclose(mixed.scores, [0.6 + 0.2, 0.15 + 0.4, 0.3])


def test_a_weighted_score_does_not_depend_on_how_many_rows_were_looked_at() -> None:
    vectors, texts = ranking(r1=0.8, r2=0.4), ranking(r2=9.0, r1=3.0)
    deeper = fuse(ranking(r1=0.8, r2=0.4, r7=0.1), ranking(r2=9.0, r1=3.0, r8=0.5), Fusion.weighted(0.3), 9)
    narrow = fuse(vectors, texts, Fusion.weighted(0.3), 9)
    assert deeper.ids[:2].tolist() == narrow.ids.tolist()
    assert np.allclose(deeper.scores[:2], narrow.scores)


def deep_ranking(rows: int, best: float = 0.8, last: float = 0.4) -> Ranking:
    return Ranking(np.arange(rows), np.linspace(best, last, rows, dtype=np.float32))


def test_what_is_as_near_as_most_rows_counts_as_little_as_what_is_not_near_at_all() -> None:
    """A model that finds everything alike (0.4 to 0.8 here) would else lift every row by nearly as much as the best."""
    found = fuse(deep_ranking(101), Ranking.none(), Fusion.weighted(1.0))
    assert np.allclose(found.scores[[0, 75]], [1.0, 0.0])
    assert np.allclose(found.scores[25], 2 / 3), "a third of the way to the row that is three quarters down"
    assert not found.scores[75:].any()


def test_a_model_that_finds_everything_alike_does_not_overturn_clear_words() -> None:
    words = ranking(r60=10.0, r0=7.0)
    assert fuse(deep_ranking(101, 0.80, 0.70), words, Fusion.weighted(0.2)).ids[0] == 60


def test_among_a_few_rows_nothing_is_ordinary() -> None:
    few = fuse(deep_ranking(31), Ranking.none(), Fusion.weighted(1.0))
    assert np.allclose(few.scores[-1], 0.5)


def test_rows_that_are_all_equally_near_all_count() -> None:
    assert fuse(deep_ranking(101, 0.5, 0.5), Ranking.none(), Fusion.weighted(1.0)).scores.tolist() == [1.0] * 101


def test_a_deeper_look_does_not_change_what_is_ordinary() -> None:
    deep, deeper = deep_ranking(1000, 0.9, 0.5), deep_ranking(2000, 0.9, 0.9 - 0.4 * 1999 / 999)
    words = ranking(r3=5.0, r400=4.0)
    wide, wider = (fuse(close, words, Fusion.weighted(0.35), 50) for close in (deep, deeper))
    assert wide.ids.tolist() == wider.ids.tolist()
    assert np.allclose(wide.scores, wider.scores, atol=1e-4)


def test_a_row_that_points_away_from_the_query_gets_nothing_for_it() -> None:
    found = fuse(ranking(r1=0.5, r2=-0.5), Ranking.none(), Fusion.weighted(1.0), 9)
    assert found.scores.tolist() == [1.0, 0.0]
    opposed = fuse(ranking(r1=-0.1, r2=-0.5), ranking(r2=4.0), Fusion.weighted(0.5), 9)
    assert opposed.scores.tolist() == [0.5, 0.0]


def test_equal_scores_leave_the_older_row_first_and_the_count_is_kept() -> None:
    found = fuse(ranking(r9=1.0), ranking(r4=1.0), Fusion.reciprocal(), 1)
    assert found.ids.tolist() == [4]


def test_nothing_joined_with_nothing_is_nothing() -> None:
    assert len(fuse(Ranking.none(), Ranking.none(), Fusion.weighted(0.5), 5).ids) == 0


def test_a_weight_is_a_share() -> None:
    with pytest.raises(InvalidInput):
        Fusion.weighted(1.5)
