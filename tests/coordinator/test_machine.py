"""The machine alone, case by case: priorities, timers, attempts, failures. Any order: test_machine_orders."""

from __future__ import annotations

import pytest
from tests.coordinator.logs import Log, machine_with

from penstock.coordinator import Epochs, Mark, State
from penstock.coordinator.actions import (
    Action,
    BackOff,
    Drop,
    FailWaiters,
    Grant,
    Publish,
    Reason,
    Release,
    StartFlush,
)
from penstock.coordinator.alarms import ArmTimer, Timer
from penstock.coordinator.flights import Phase
from penstock.errors import Closed, StorageFull, Unavailable


def flush_of(actions: list[Action[Log, int]]) -> StartFlush[Log] | None:
    starts = [action for action in actions if isinstance(action, StartFlush)]
    assert len(starts) <= 1
    return starts[0] if starts else None


def test_a_request_comes_before_those_who_wait_they_before_the_timer_and_the_timer_before_size() -> None:
    def ready(*, asked: bool, waited: bool, timer: bool) -> Reason:
        machine = machine_with(5, max_pending_bytes=5, flush_interval_seconds=30)
        machine.pause()
        machine.turn(now=0)
        if waited:
            machine.expect(epoch=5, now=29)
            machine.timer_fired(Timer.COMMIT, now=30)
        if timer:
            machine.timer_fired(Timer.INTERVAL, now=30)
        if asked:
            machine.ask_flush()
        machine.resume()
        start = flush_of(machine.turn(now=30))
        assert start is not None
        return start.reason

    assert ready(asked=True, waited=True, timer=True) is Reason.EXPLICIT
    assert ready(asked=False, waited=True, timer=True) is Reason.WAITED
    assert ready(asked=False, waited=False, timer=True) is Reason.TIMER
    assert ready(asked=False, waited=False, timer=False) is Reason.SIZE


def test_a_shutdown_is_the_reason_of_every_flush_after_it() -> None:
    machine = machine_with(1)
    machine.ask_flush()
    machine.shutdown()
    start = flush_of(machine.turn(now=0))
    assert start is not None
    assert start.reason is Reason.SHUTDOWN


def test_a_completion_counts_before_the_decision_of_the_same_turn() -> None:
    """A flush lands and another is asked for, both before the turn: the next one begins in that turn."""
    machine = machine_with(1)
    machine.ask_flush()
    first = flush_of(machine.turn(now=0))
    assert first is not None
    machine.offer(Log(2), 1)
    machine.ask_flush()
    assert flush_of(machine.turn(now=0)) is None
    assert machine.landed(first.epochs, 1) == [Publish(1, 1), Release(Mark.FLUSHED, 1)]
    assert flush_of(machine.turn(now=0)) == StartFlush(
        Epochs(2, 2), machine.flights._flights[1].delta, Reason.EXPLICIT, 0
    )


def test_waiting_writers_are_let_in_before_a_flush_is_decided() -> None:
    machine = machine_with(2, max_pending_writes=2, max_buffered_writes=2)
    start = flush_of(machine.turn(now=0))
    assert start is not None
    ticket = machine.queue(1)
    machine.landed(start.epochs, 1)
    machine.settled(start.epochs)
    assert machine.turn(now=0) == [Grant(ticket)]


def test_one_timer_serves_all_flushes() -> None:
    machine = machine_with(1, flush_interval_seconds=30)
    assert machine.turn(now=0) == [ArmTimer(Timer.INTERVAL, 30)]
    machine.ask_flush()
    start = flush_of(machine.turn(now=10))
    assert start is not None
    machine.offer(Log(2), 1)
    assert machine.turn(now=12) == []
    assert machine.timer_fired(Timer.INTERVAL, now=30) == [ArmTimer(Timer.INTERVAL, 12)]
    assert machine.timer_fired(Timer.INTERVAL, now=41.9999) == []
    assert machine.due


def test_a_timer_without_pending_writes_goes_to_sleep() -> None:
    machine = machine_with(1, flush_interval_seconds=30)
    machine.turn(now=0)
    machine.ask_flush()
    machine.turn(now=1)
    assert machine.timer_fired(Timer.INTERVAL, now=30) == []
    machine.offer(Log(2), 1)
    assert machine.turn(now=100) == [ArmTimer(Timer.INTERVAL, 30)]


def test_a_wait_for_what_is_pending_arms_one_timer_and_a_flush_clears_it() -> None:
    machine = machine_with(2, commit_delay_seconds=0.05)
    machine.turn(now=0)
    assert machine.expect(epoch=1, now=1) == [ArmTimer(Timer.COMMIT, 0.05)]
    assert machine.expect(epoch=2, now=1.01) == []
    machine.ask_flush()
    assert flush_of(machine.turn(now=1.02)) is not None
    assert machine.expect(epoch=2, now=1.03) == [], "it is on its way"
    machine.offer(Log(3), 1)
    assert machine.timer_fired(Timer.COMMIT, now=1.05) == [], "nobody waits for what is pending"
    assert machine.expect(epoch=3, now=2) == [ArmTimer(Timer.COMMIT, 0.05)]


def test_pauses_grow_up_to_their_limit_and_begin_anew_after_progress() -> None:
    machine = machine_with(1, retry_pause_seconds=1, retry_pause_seconds_max=3)
    machine.ask_flush()
    pauses = []
    for now in range(4):
        start = flush_of(machine.turn(now))
        assert start is not None
        [pause] = machine.failed(start.epochs, Unavailable("x"), now)
        assert isinstance(pause, BackOff)
        pauses.append(pause.seconds_max)
        assert flush_of(machine.turn(now)) is None
        machine.backoff_over()
    assert pauses == [1, 2, 3, 3]
    start = flush_of(machine.turn(now=5))
    assert start is not None
    machine.landed(start.epochs, 1)
    machine.settled(start.epochs)
    machine.offer(Log(2), 1)
    machine.ask_flush()
    start = flush_of(machine.turn(now=6))
    assert start is not None
    [pause] = machine.failed(start.epochs, Unavailable("x"), 6)
    assert pause.seconds_max == 1  # type: ignore[union-attr]


def test_a_report_from_an_attempt_that_was_given_up_changes_nothing() -> None:
    machine = machine_with(1)
    machine.ask_flush()
    start = flush_of(machine.turn(now=0))
    assert start is not None
    machine.failed(start.epochs, Unavailable("x"), 0)
    before = machine.watermarks
    assert machine.landed(start.epochs, 1) == machine.settled(start.epochs) == []
    assert machine.failed(start.epochs, StorageFull("x"), 0) == []
    assert not machine.awaits(start.epochs)
    assert (machine.watermarks, machine.state) == (before, State.FLUSHING)


def test_a_report_from_an_earlier_attempt_is_not_taken_for_the_present_one() -> None:
    machine = machine_with(1)
    machine.ask_flush()
    first = flush_of(machine.turn(now=0))
    assert first is not None
    machine.failed(first.epochs, Unavailable("x"), 0)
    machine.backoff_over()
    second = flush_of(machine.turn(now=1))
    assert second is not None
    assert machine.landed(first.epochs, 1) == machine.settled(first.epochs) == []
    assert machine.landed(second.epochs, 1) == [Publish(1, 1), Release(Mark.FLUSHED, 1)]


def test_everything_durable_leaves_all_the_room_free() -> None:
    machine = machine_with(5, max_pending_writes=5, max_buffered_writes=5)
    start = flush_of(machine.turn(now=0))
    assert start is not None
    machine.landed(start.epochs, 1)
    machine.settled(start.epochs)
    assert (machine.room.bytes, machine.room.writes) == (0, 0)


@pytest.mark.parametrize("end", ["shutdown", "abort"])
def test_room_that_was_granted_before_the_end_admits_nobody_after_it(end: str) -> None:
    machine = machine_with(0)
    ticket = machine.queue(1)
    assert ticket.granted
    getattr(machine, end)()
    with pytest.raises(Closed):
        machine.claim(ticket, Log(1))
    assert (machine.applied, machine.room.bytes, machine.room.writes) == (0, 0, 0)


def test_a_failure_of_an_earlier_flush_widens_the_failure_of_a_later_one() -> None:
    machine = machine_with(0)
    starts = []
    for _ in range(2):
        machine.offer(Log(machine.applied + 1), 1)
        machine.ask_flush()
        start = flush_of(machine.turn(now=0))
        assert start is not None
        machine.landed(start.epochs, 1)
        starts.append(start)
    machine.failed(starts[1].epochs, StorageFull("x"), 0)
    assert machine.failure_of(1) is None
    actions = machine.failed(starts[0].epochs, Unavailable("x"), 0)
    assert [action.first for action in actions if isinstance(action, FailWaiters)] == [1]
    assert machine.failure_of(1) is machine.failure


@pytest.mark.parametrize("phase", Phase)
def test_an_abort_finds_every_flush_and_keeps_its_writes(phase: Phase) -> None:
    machine = machine_with(1)
    machine.ask_flush()
    if phase is not Phase.DUE:
        start = flush_of(machine.turn(now=0))
        assert start is not None
        if phase is not Phase.RUNNING:
            machine.landed(start.epochs, 1)
        if phase is Phase.SETTLED:
            machine.settled(start.epochs)
    actions = machine.abort()
    carried = phase in (Phase.RUNNING, Phase.LANDED)
    assert [type(action) for action in actions] == [Drop, FailWaiters][0 if carried else 1 :]
    assert machine.turn(now=100) == [] or phase is Phase.DUE
    kept = [epoch for delta in machine.unflushed() for epoch in delta.epochs]
    assert kept == ([1] if phase in (Phase.DUE, Phase.RUNNING) else [])
