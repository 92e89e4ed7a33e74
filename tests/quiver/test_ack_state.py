"""Marks never pass a hole, outcomes settle once, and a checkpoint with its records is the whole state."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.quiver.acks.ack_records import apply, encode_record, replay_ack_files
from penstock.quiver.acks.ack_state import AckState, Outcome, OutcomeRecord, Reclaimed, SealRecord, SubscriberRecord
from penstock.quiver.acks.marks import MarkSet
from penstock.quiver.log.frames import BLOCK_BYTES, FrameKind, encode_frame


def state_of(*names: str, segments: int = 5) -> AckState:
    state = AckState()
    for name in names:
        state.change(SubscriberRecord(name, True, True, 1, 0))
    for number in range(1, segments + 1):
        state.publish(number, 10 * number)
    return state


def settle(state: AckState, number: int, name: str = "a", outcome: Outcome = Outcome.ACK) -> bool:
    return state.settle(OutcomeRecord(number, name, outcome, 2))


def test_out_of_order_acks_never_move_the_mark_past_a_hole() -> None:
    state = state_of("a")
    for number in (3, 2, 5):
        settle(state, number)
    known = state.subscriptions["a"]
    assert (known.done.mark, known.done.gaps) == (0, {2, 3, 5})
    settle(state, 1)
    assert (known.done.mark, known.done.gaps) == (3, {5})


def test_dropped_fills_a_gap() -> None:
    state = state_of("a")
    for number in (1, 3, 4):
        settle(state, number)
    settle(state, 2, outcome=Outcome.DROPPED)
    assert state.subscriptions["a"].done.mark == 4
    assert state.subscriptions["a"].done.gaps == set()


def test_a_nack_settles_nothing_and_counts() -> None:
    state = state_of("a")
    assert not settle(state, 1, outcome=Outcome.NACK)
    assert not settle(state, 1, outcome=Outcome.NACK)
    assert state.subscriptions["a"].attempts == {1: 2}
    assert not state.is_processed(1)
    assert settle(state, 1)
    assert state.subscriptions["a"].attempts == {}


def test_a_segment_is_processed_when_the_last_subscriber_is_done() -> None:
    state = state_of("a", "b")
    settle(state, 1, "a")
    assert not state.is_processed(1)
    settle(state, 1, "b")
    assert state.is_processed(1)
    assert not settle(state, 1, "b")


def test_without_subscribers_nothing_is_processed() -> None:
    assert not state_of().is_processed(1)


def test_a_dead_letter_keeps_its_segment_and_can_be_delivered_again() -> None:
    state = state_of("a")
    settle(state, 2, outcome=Outcome.REJECTED)
    assert state.is_rejected(2)
    assert not state.is_processed(2)
    for number in (1, 3):
        settle(state, number)
    assert state.subscriptions["a"].done.mark == 3
    assert settle(state, 2, outcome=Outcome.REPLAYED)
    known = state.subscriptions["a"]
    assert (known.done.mark, known.done.gaps, state.outstanding[2]) == (1, {3}, {"a"})
    settle(state, 2)
    assert known.done.mark == 3


def test_a_replay_takes_back_no_other_acknowledgement() -> None:
    """Those below it and above the mark were forgotten, and came again after a restart."""
    state = state_of("a")
    for number in (2, 3, 5):
        settle(state, number)
    assert settle(state, 3, outcome=Outcome.REPLAYED)
    assert (state.subscriptions["a"].done.mark, state.subscriptions["a"].done.gaps) == (0, {2, 5})


def test_an_unregistered_subscriber_pins_nothing() -> None:
    state = state_of("a", "b")
    settle(state, 1, "a")
    state.change(SubscriberRecord("b", False, False, 3, 0))
    assert state.is_processed(1)
    assert not settle(state, 2, "b")


def test_a_new_subscriber_begins_with_what_is_there_or_with_what_comes() -> None:
    state = state_of("a")
    assert state.start_mark(from_newest=False) == 0
    assert state.start_mark(from_newest=True) == 5
    state.change(SubscriberRecord("late", True, True, 3, state.start_mark(from_newest=True)))
    state.publish(6, 60)
    assert [number for number, waiting in state.outstanding.items() if "late" in waiting] == [6]


def test_reclaimed_numbers_are_never_given_again() -> None:
    state = AckState()
    state.reclaim(Reclaimed([41], 42, 900))
    assert (state.next_segment_seq, state.finalised_through) == (42, 900)


def test_segments_without_files_are_told() -> None:
    state = state_of("a", segments=4)
    del state.outstanding[2]
    settle(state, 3)
    assert state.missing() == [(2, "a")]


RECORDS = st.lists(
    st.one_of(
        st.builds(
            lambda number, name, outcome: [OutcomeRecord(number, name, outcome, 5)],
            st.integers(1, 10),
            st.sampled_from(["a", "b"]),
            st.sampled_from(list(Outcome)),
        ),
        st.builds(
            lambda name, registered: SubscriberRecord(name, registered, registered, 5, 0),
            st.sampled_from(["a", "b"]),
            st.booleans(),
        ),
        st.builds(lambda number: Reclaimed([number], number + 1, 10 * number), st.integers(1, 8)),
        # Delivered from memory: these have no files.
        st.builds(lambda number: SealRecord(number, 10 * number - 9, 10 * number), st.integers(9, 10)),
    ),
    max_size=20,
)


def picture(state: AckState) -> object:
    return (
        state.checkpoint(),
        {number: sorted(waiting) for number, waiting in state.outstanding.items()},
        state.seals,
        state.settled,
    )


@given(RECORDS, st.integers(0, 20))
def test_a_checkpoint_and_the_records_behind_it_are_the_whole_state(records: list, cut: int) -> None:
    """Wherever the checkpoint falls, replaying comes to where the running state was."""
    live = state_of("a", "b", segments=8)
    file = memoryview(bytearray(BLOCK_BYTES * 20))
    encode_frame(file, 0, FrameKind.HEADER, [b"x"], generation=9, sequence=1, count=1, durable_before=0)
    at = BLOCK_BYTES

    def put(record: Any) -> None:
        nonlocal at
        kind, body = encode_record(record)
        at = encode_frame(file, at, kind, [body], generation=9, sequence=at, count=1, durable_before=0)

    put(live.checkpoint())
    for number, record in enumerate(records):
        if number == cut:
            for whole in (live.checkpoint(), *live.seals.values()):
                put(whole)
        put(record)
        apply(live, record)
    segments = [(number, 10 * number) for number in range(1, 9)]
    again = replay_ack_files([(1, file)], segments).state
    assert again.settled == {number for number, waiting in again.outstanding.items() if not waiting}
    assert picture(again) == picture(live)


@given(st.integers(0, 5), st.lists(st.integers(1, 30)))
def test_a_mark_set_is_a_set_in_less_space(mark: int, numbers: list[int]) -> None:
    marks, plain = MarkSet(mark), set(range(1, mark + 1))
    for number in numbers:
        assert marks.add(number) == (number not in plain)
        plain.add(number)
    assert [number for number in range(1, 40) if number in marks] == sorted(plain)
    assert marks.mark + 1 not in plain
    assert all(number > marks.mark for number in marks.gaps)


def test_thousands_of_dead_letters_wait_again_one_by_one_in_any_order() -> None:
    for order in (1, -1):
        state = AckState()
        state.change(SubscriberRecord("s", True, True, 1, 0))
        for number in range(1, 5001):
            state.publish(number, number)
            state.settle(OutcomeRecord(number, "s", Outcome.REJECTED, 1))
        done = state.subscriptions["s"].done
        for number in range(1, 5001)[::order]:
            if number != 77:
                state.settle(OutcomeRecord(number, "s", Outcome.REPLAYED, 1))
        assert (done.mark, done.gaps) == (0, {77})
        assert state.lags() == {"s": 4999}
        assert state.lag("s") == 4999


def test_how_far_behind_all_are_is_what_each_waits_for() -> None:
    state = AckState()
    for name, mark in (("a", 0), ("b", 3), ("c", 0)):
        state.change(SubscriberRecord(name, True, True, 1, mark))
    for number in range(1, 8):
        state.publish(number, number)
    for number in (1, 2, 5):
        state.settle(OutcomeRecord(number, "a", Outcome.ACK, 1))
    state.reclaim(Reclaimed([4], 8, 4))
    assert state.lags() == {name: state.lag(name) for name in "abc"} == {"a": 3, "b": 3, "c": 6}
