"""The pure core: after every answer and every sight, the register knows what is certain and what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.objects.register.attempt import Attempt, Move, Sight, WriteReply, agreed

FRESH = Attempt()
LOST = Attempt(outstanding=True)


@pytest.mark.parametrize(
    ("before", "answer", "after", "move"),
    [
        (FRESH, WriteReply.LANDED, FRESH, Move.DONE),
        (FRESH, WriteReply.CONFLICT, FRESH, Move.REBASE),
        (FRESH, WriteReply.UNSENT, FRESH, Move.REBASE),
        (FRESH, WriteReply.LOST, LOST, Move.REREAD),
        (LOST, WriteReply.LANDED, FRESH, Move.DONE),
        (LOST, WriteReply.CONFLICT, LOST, Move.REREAD),
        (LOST, WriteReply.UNSENT, LOST, Move.REPEAT),
        (LOST, WriteReply.LOST, LOST, Move.REREAD),
    ],
)
def test_each_answer_to_a_write_has_one_consequence(
    before: Attempt, answer: WriteReply, after: Attempt, move: Move
) -> None:
    assert before.after_write(answer) == (after, move)


@pytest.mark.parametrize(
    ("sight", "after", "move"),
    [
        (Sight.SAME, LOST, Move.REPEAT),
        (Sight.SHOWN, LOST, Move.CONFIRM),
        (Sight.DENIED, FRESH, Move.REBASE),
        (Sight.MUTE, LOST, Move.UNPROVED),
    ],
)
def test_each_sight_after_a_lost_answer_has_one_consequence(sight: Sight, after: Attempt, move: Move) -> None:
    assert LOST.after_read(sight) == (after, move)


@pytest.mark.parametrize(
    ("sight", "after", "move"),
    [
        (Sight.SHOWN, FRESH, Move.DONE),
        (Sight.DENIED, FRESH, Move.REBASE),
        (Sight.MUTE, LOST, Move.UNPROVED),
    ],
)
def test_only_what_is_durable_proves_that_a_write_was_done(sight: Sight, after: Attempt, move: Move) -> None:
    assert LOST.after_confirmation(sight) == (after, move)


class World:
    """A store as the machine sees it: one base version, writes on it that may land late, and other writers."""

    def __init__(self) -> None:
        self.on_base = True
        self.landed = 0
        self.zombies = 0

    def write(self, fate: str) -> WriteReply:
        if fate == "unsent":
            return WriteReply.UNSENT
        if fate == "zombie":
            self.zombies += 1
            return WriteReply.LOST
        if not self.on_base:
            return WriteReply.LOST if fate == "lost" else WriteReply.CONFLICT
        if fate != "never":
            self.land()
        return WriteReply.LANDED if fate == "served" else WriteReply.LOST

    def land(self) -> None:
        self.on_base, self.landed = False, self.landed + 1

    def pass_time(self, event: str) -> None:
        if event == "zombie lands" and self.zombies and self.on_base:
            self.land()
        elif event == "others write":
            self.on_base = False

    def read(self) -> Sight:
        return Sight.SAME if self.on_base else Sight.SHOWN if self.landed else Sight.DENIED


FATES = st.sampled_from(["served", "unsent", "zombie", "lost", "never"])
EVENTS = st.sampled_from(["nothing", "zombie lands", "others write"])


@given(st.lists(st.tuples(FATES, EVENTS, EVENTS), max_size=8))
def test_done_means_landed_once_and_rebase_means_never(history: list[tuple[str, str, str]]) -> None:
    """Whatever is lost, late or overtaken, and in whichever order."""
    world, attempt = World(), Attempt()
    for fate, before_read, after_read in history:
        answer = world.write(fate)
        attempt, move = attempt.after_write(answer)
        world.pass_time(before_read)
        if move is Move.REREAD:
            attempt, move = attempt.after_read(world.read())
        if move is Move.CONFIRM:
            attempt, move = attempt.after_confirmation(world.read())
        world.pass_time(after_read)
        if move is Move.DONE:
            assert world.landed == 1
            return
        if move is Move.REBASE:
            assert world.landed == 0
            assert not (world.zombies and world.on_base), "a zombie could still land"
            return
        assert move is Move.REPEAT


def test_changes_that_landed_together_share_one_verdict() -> None:
    assert agreed([True, None]) is Sight.SHOWN
    assert agreed([None, False]) is Sight.DENIED
    assert agreed([True]) is Sight.SHOWN


def test_changes_that_contradict_each_other_prove_nothing() -> None:
    assert agreed([True, False]) is Sight.MUTE


def test_changes_that_cannot_tell_prove_nothing() -> None:
    assert agreed([None, None]) is Sight.MUTE
    assert agreed([]) is Sight.MUTE
