"""The watermark: never past a sequence that is still being processed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.buffer.consuming.watermark import Watermark
from penstock.errors import InvalidInput


@given(st.permutations(range(3, 12)))
def test_it_is_the_highest_sequence_with_none_unprocessed_before_it(order: list[int]) -> None:
    watermark, completed = Watermark(), set[int]()
    for sequence in range(3, 12):
        watermark.begin(sequence)
    for sequence in order:
        before = watermark.value
        moved = watermark.complete(sequence)
        completed.add(sequence)
        expected = max((s for s in range(3, 12) if completed >= set(range(3, s + 1))), default=None)
        assert watermark.value == expected
        assert moved == (before != expected)
    assert len(watermark) == 0


def test_a_sequence_that_never_completes_holds_it_for_ever() -> None:
    watermark = Watermark()
    for sequence in range(5):
        watermark.begin(sequence)
    for sequence in (0, 1, 3, 4):
        watermark.complete(sequence)
    assert watermark.value == 1
    assert len(watermark) == 3


def test_what_was_not_begun_or_is_completed_already_is_refused() -> None:
    watermark = Watermark()
    watermark.begin(1)
    watermark.begin(2)
    watermark.complete(2)
    for wrong in (0, 2, 3):
        with pytest.raises(InvalidInput):
            watermark.complete(wrong)
    with pytest.raises(InvalidInput, match="out of order"):
        watermark.begin(2)
