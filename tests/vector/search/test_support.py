"""A document is ranked by its best passages, and shown by its best one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.vector.search.fusion import Fusion, Ranking, fuse
from penstock.vector.search.support import group_codes, supported


def ranking(**scores: float) -> Ranking:
    return Ranking(np.array([int(name[1:]) for name in scores]), np.array(list(scores.values()), np.float32))


def answer(found: Ranking) -> dict[int, float]:
    return dict(zip(found.ids.tolist(), np.round(found.scores.astype(float), 3).tolist(), strict=True))


def test_the_second_passage_of_a_document_counts_a_quarter_and_a_third_does_not() -> None:
    found = supported(ranking(r1=1.0, r2=0.9, r3=0.8, r4=0.7), np.array([7, 5, 5, 5]), 9)
    assert answer(found) == {2: 1.1, 1: 1.0, 3: 0.8, 4: 0.7}


def test_words_and_vectors_of_one_document_may_stand_in_different_passages() -> None:
    # Row 1 has the words and row 2 the meaning; they are of one document. Row 3 has some of both, alone.
    joined = fuse(ranking(r2=1.0, r3=0.7), ranking(r1=10.0, r3=7.0), Fusion.weighted(0.4))
    assert answer(joined) == {3: 0.7, 1: 0.6, 2: 0.4}
    found = supported(joined, np.array([8, 5, 5]), 9)
    assert answer(found) == {1: 1.0, 3: 0.7, 2: 0.4}


def test_rows_without_a_group_keep_their_scores() -> None:
    codes = group_codes(pa.array([None, "a", None, "a"]))
    assert answer(supported(ranking(r1=1.0, r2=0.9, r3=0.8, r4=0.4), codes, 9)) == {1: 1.0, 2: 1.0, 3: 0.8, 4: 0.4}
    assert answer(supported(ranking(r1=1.0, r2=0.5), group_codes(pa.array([None, None], pa.string())), 9)) == {
        1: 1.0,
        2: 0.5,
    }
    assert len(supported(Ranking.none(), np.empty(0, np.int64), 3).ids) == 0


def test_asking_for_more_changes_only_the_length() -> None:
    chance = np.random.default_rng(11)
    ids = chance.permutation(300)
    near = Ranking(ids[:200], -np.sort(-chance.random(200)).astype(np.float32))
    told = Ranking(ids[100:], -np.sort(-chance.random(200)).astype(np.float32))
    joined, groups = fuse(near, told, Fusion.weighted(0.4)), chance.integers(0, 40, 300)
    longest = supported(joined, groups, 300).ids.tolist()
    for count in (1, 2, 10, 299):
        assert supported(joined, groups, count).ids.tolist() == longest[:count]
