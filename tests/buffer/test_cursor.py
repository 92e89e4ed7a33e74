"""Where a consumer stands: acknowledgements in order, nothing moved by planning, dead letters passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.buffer.consuming.cursor import Cursor
from penstock.buffer.format.manifest import Descriptor
from penstock.errors import InvalidInput


def handed(*sequences: int, last_acked: int | None = None) -> Cursor:
    cursor = Cursor(last_acked)
    cursor.hand_out([Descriptor(sequence, "x") for sequence in sequences])
    return cursor


def test_the_first_acknowledgement_is_of_the_first_that_was_handed_out() -> None:
    cursor = handed(7, 8)
    for wrong in (0, 6, 8, 9):
        with pytest.raises(InvalidInput, match="the next one is 7"):
            cursor.plan_ack(wrong)
    assert cursor.plan_ack(7) == 7


def test_nothing_can_be_acknowledged_before_it_is_handed_out() -> None:
    with pytest.raises(InvalidInput):
        Cursor().plan_ack(0)
    with pytest.raises(InvalidInput):
        handed(3, 4).plan_ack_through(5)


def test_nothing_is_acknowledged_twice() -> None:
    cursor = handed(3, 4)
    cursor.acked(3)
    with pytest.raises(InvalidInput, match="the next one is 4"):
        cursor.plan_ack(3)
    with pytest.raises(InvalidInput, match="3 is already acknowledged"):
        cursor.plan_ack_through(3)
    assert cursor.plan_ack_through(4) == 4


def test_what_a_consumer_started_behind_is_acknowledged_already() -> None:
    with pytest.raises(InvalidInput, match="9 is already acknowledged"):
        handed(10, last_acked=9).plan_ack_through(9)


def test_a_run_before_the_first_that_was_handed_out_is_refused() -> None:
    """Taken, it would leave a last acknowledged sequence behind which the next consumer finds batches gone."""
    cursor = handed(7, 8)
    for wrong in (-1, 0, 6):
        with pytest.raises(InvalidInput, match="the first one handed out is 7"):
            cursor.plan_ack_through(wrong)
    cursor.set_aside(7)
    assert cursor.plan_ack_through(7) == 7


def test_planning_moves_nothing() -> None:
    cursor = handed(0, 1, 2)
    cursor.plan_ack(0)
    cursor.plan_ack_through(2)
    cursor.plan_set_aside(1)
    assert (cursor.last_acked, cursor.done_through, cursor.handed_out) == (None, -1, 2)
    assert cursor.to_dequeue is None


def test_a_run_counts_every_batch_it_covers() -> None:
    cursor = handed(0, 1, 2, 3)
    assert cursor.acked(2) == 3
    assert (cursor.last_acked, cursor.done_through) == (2, 2)


def test_a_dead_letter_holds_nobody_up() -> None:
    cursor = handed(0, 1, 2)
    cursor.set_aside(1)
    assert cursor.plan_ack(0) == 1, "the dead letter behind it leaves with it"
    cursor.acked(0)
    assert cursor.done_through == 1
    assert cursor.plan_ack(2) == 2


def test_a_dead_letter_at_the_head_can_leave_at_once_and_one_behind_pending_batches_cannot() -> None:
    assert handed(0, 1).plan_set_aside(0) == 0
    assert handed(0, 1).plan_set_aside(1) is None
    assert Cursor(4).plan_set_aside(5) == 5


def test_a_dead_letter_that_was_never_handed_out_is_passed_by_reading_ahead() -> None:
    cursor = Cursor(4)
    cursor.set_aside(5)
    assert (cursor.handed_out, cursor.done_through, cursor.to_dequeue) == (5, 5, 5)


def test_only_what_is_done_and_still_queued_is_to_be_dequeued() -> None:
    cursor = handed(4, 5, 6, last_acked=3)
    assert cursor.to_dequeue is None
    cursor.acked(4)
    assert cursor.to_dequeue == 4
    cursor.written(4)
    assert cursor.to_dequeue is None
    assert cursor.unwritten_acks == 0


@given(st.integers(0, 5), st.lists(st.sampled_from(["hand", "ack", "run", "aside"]), max_size=40), st.data())
def test_whatever_happens_everything_through_the_done_mark_was_acknowledged_or_set_aside(
    first: int, moves: list[str], data: st.DataObject
) -> None:
    """Against a model that keeps the state of every sequence."""
    cursor, state = Cursor(), dict[int, str]()
    for move in moves:
        pending = [sequence for sequence, what in state.items() if what == "pending"]
        if move == "hand":
            following = first + len(state)
            cursor.hand_out([Descriptor(following, "x")])
            state[following] = "pending"
        elif move == "ack" and pending:
            cursor.plan_ack(pending[0])
            cursor.acked(pending[0])
            state[pending[0]] = "done"
        elif move == "run" and pending:
            through = data.draw(st.sampled_from(pending))
            cursor.acked(through)
            state.update({sequence: "done" for sequence in pending if sequence <= through})
        elif move == "aside" and pending:
            one = data.draw(st.sampled_from(pending))
            cursor.set_aside(one)
            state[one] = "done"
        open_ones = [sequence for sequence, what in state.items() if what == "pending"]
        if state:
            assert cursor.done_through == (open_ones[0] - 1 if open_ones else max(state))
