"""Sets of ids as bits, against Python's own sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.vector.format.idset import IdSet

_LIMIT = 77
_MEMBERS = st.sets(st.integers(0, _LIMIT - 1))


def made(members: set[int], limit: int = _LIMIT) -> IdSet:
    return IdSet.of(np.array(sorted(members), np.int64), limit)


@given(_MEMBERS, _MEMBERS)
def test_they_behave_as_sets(one: set[int], other: set[int]) -> None:
    a, b = made(one), made(other)
    assert a.ids().tolist() == sorted(one)
    assert len(a) == len(one)
    assert bool(a) == bool(one)
    assert set(a.union(b).ids().tolist()) == one | other
    assert set(a.intersection(b).ids().tolist()) == one & other
    assert set(a.minus(b, _LIMIT).tolist()) == one - other
    assert set(a.complement(_LIMIT).ids().tolist()) == set(range(_LIMIT)) - one
    assert np.flatnonzero(a.mask()).tolist() == sorted(one)


@given(_MEMBERS, st.lists(st.integers(-3, _LIMIT + 20)))
def test_ids_beyond_the_limit_are_never_members(members: set[int], asked: list[int]) -> None:
    found = made(members).contains(np.array(asked, np.int64))
    assert found.tolist() == [number in members for number in asked]


@given(_MEMBERS, _MEMBERS)
def test_a_copy_changes_alone_and_may_grow(members: set[int], gone: set[int]) -> None:
    original = made(members)
    copy = original.copy(_LIMIT + 30)
    copy.discard(np.array(sorted(gone), np.int64))
    copy.add(np.array([_LIMIT + 29]))
    assert original.ids().tolist() == sorted(members)
    assert set(copy.ids().tolist()) == (members - gone) | {_LIMIT + 29}


@given(_MEMBERS, st.integers(0, _LIMIT), st.integers(0, _LIMIT))
def test_a_range_of_members_is_cut_exactly(members: set[int], start: int, end: int) -> None:
    assert made(members).ids(start, end).tolist() == sorted(m for m in members if start <= m < end)


@given(_MEMBERS, st.sets(st.integers(0, 30)))
def test_a_smaller_set_can_be_taken_away_from_a_larger(members: set[int], other: set[int]) -> None:
    assert set(made(members).minus(made(other, 31), 50).tolist()) == {m for m in members - other if m < 50}
