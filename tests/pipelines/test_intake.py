"""A micro-batch takes what its bounds allow, in order, and never less than one batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.buffer import Descriptor
from penstock.errors import NotFound
from penstock.pipelines.queue_source.intake import BatchIntake


def intake(*sequences: int) -> BatchIntake:
    made = BatchIntake()
    made.add([Descriptor(sequence, f"ingest/{sequence}.batch") for sequence in sequences])
    return made


def test_a_micro_batch_ends_at_the_bound_on_batches() -> None:
    assert intake(3, 4, 5, 6).end_of(4, 2, None, {}) == 6


def test_a_micro_batch_ends_before_the_bound_on_bytes_is_passed() -> None:
    assert intake(0, 1, 2).end_of(0, None, 100, {0: 60, 1: 40, 2: 1}) == 2


def test_one_batch_goes_even_when_it_alone_passes_the_bound_on_bytes() -> None:
    assert intake(0, 1).end_of(0, None, 10, {0: 999, 1: 1}) == 1


def test_nothing_new_leaves_the_offset_where_it_is() -> None:
    assert intake(0, 1).end_of(2, 10, None, {}) == 2
    assert intake().end_of(7, 10, None, {}) == 7


def test_a_replay_gets_exactly_the_batches_it_names() -> None:
    assert [found.sequence for found in intake(3, 4, 5, 6).between(4, 6)] == [4, 5]
    assert intake(3).between(9, 9) == []


@pytest.mark.parametrize(("start", "end"), [(2, 5), (4, 9), (0, 2)])
def test_a_replay_of_batches_that_left_the_queue_is_refused(start: int, end: int) -> None:
    with pytest.raises(NotFound, match="not all in the queue"):
        intake(3, 4, 5, 6).between(start, end)


@pytest.mark.parametrize(("start", "end", "left"), [(2, 5, [3, 4]), (4, 9, [4, 5, 6]), (0, 2, [])])
def test_a_reader_that_knows_what_it_has_had_gets_what_is_left_of_them(start: int, end: int, left: list[int]) -> None:
    assert [found.sequence for found in intake(3, 4, 5, 6).between(start, end, whole=False)] == left


def test_what_is_acknowledged_is_forgotten_and_the_rest_is_kept() -> None:
    seen = intake(3, 4, 5)
    seen.forget_through(4)
    assert (seen.first, seen.end, seen.holds(4), seen.holds(5)) == (5, 6, False, True)


@given(st.integers(0, 50), st.integers(1, 60), st.integers(1, 10), st.integers(1, 500), st.data())
def test_micro_batches_cover_the_queue_without_gap_or_overlap(
    first: int, count: int, batches: int, bytes_max: int, data: st.DataObject
) -> None:
    seen = intake(*range(first, first + count))
    sizes = {sequence: data.draw(st.integers(0, 200)) for sequence in range(first, first + count)}
    start = first
    while (end := seen.end_of(start, batches, bytes_max, sizes)) > start:
        taken = seen.between(start, end)
        assert [found.sequence for found in taken] == list(range(start, end))
        assert len(taken) <= batches
        assert len(taken) == 1 or sum(sizes[found.sequence] for found in taken) <= bytes_max
        start = end
    assert start == first + count
