"""Folding: few fragments, and few rewrites of a byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.blocks.format.tiers import FRAGMENT_BYTES_MAX, foldable


def grow(arrivals: list[int]) -> tuple[list[int], int]:
    """Fragments after some arrivals, and the bytes written for them."""
    fragments: list[int] = []
    written = 0
    for size in arrivals:
        count = foldable(fragments, size)
        folded = sum(fragments[len(fragments) - count :]) + size
        fragments = [*fragments[: len(fragments) - count], folded]
        written += folded
    return fragments, written


def test_tiny_arrivals_leave_few_fragments_and_are_written_a_few_times() -> None:
    fragments, written = grow([800] * 300)
    assert len(fragments) <= 16
    assert written <= 6 * 300 * 800


def test_large_fragments_are_left_alone() -> None:
    assert foldable([200 << 10] * 10, 200 << 10) == 0


@given(st.lists(st.integers(1, 400 << 10), max_size=80))
def test_no_fold_makes_a_value_larger_than_the_bound(arrivals: list[int]) -> None:
    fragments, _ = grow(arrivals)
    assert all(size <= max(FRAGMENT_BYTES_MAX, max(arrivals, default=0)) for size in fragments)
    assert sum(fragments) == sum(arrivals)


@given(st.lists(st.integers(1, 400 << 10), max_size=80))
def test_fragments_stay_few_for_their_size(arrivals: list[int]) -> None:
    fragments, _ = grow(arrivals)
    assert len(fragments) <= 20 + sum(arrivals) // (16 << 10)
