"""The machine alone: its priorities case by case, and its invariants under any order of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.coordinator import CoordinatorConfig, Epochs, Mark, State, Watermarks
from penstock.coordinator.actions import (
    Action,
    ArmTimer,
    BackOff,
    Drop,
    FailWaiters,
    Grant,
    Publish,
    Reason,
    Refuse,
    Release,
    StartFlush,
)
from penstock.coordinator.admission import Ticket
from penstock.coordinator.flights import Phase
from penstock.coordinator.machine import Machine
from penstock.errors import Closed, PenstockError, StorageFull, Unavailable


class Log:
    """A delta that remembers which writes were merged into it, in order."""

    def __init__(self, *epochs: int, size_bytes: int = 1) -> None:
        self.epochs = list(epochs)
        self.size_bytes = size_bytes

    def merge(self, later: Log) -> None:
        self.epochs += later.epochs


def machine_with(writes: int = 0, **settings: Any) -> Machine[Log, int]:
    machine: Machine[Log, int] = Machine(CoordinatorConfig(**settings), Log)
    for _ in range(writes):
        machine.offer(Log(machine.applied + 1), 1)
    return machine


def flush_of(actions: list[Action[Log, int]]) -> StartFlush[Log] | None:
    starts = [action for action in actions if isinstance(action, StartFlush)]
    assert len(starts) <= 1
    return starts[0] if starts else None


def test_an_explicit_request_comes_before_the_timer_and_the_timer_before_size() -> None:
    def ready(*, asked: bool, timer: bool) -> Reason:
        machine = machine_with(5, max_pending_bytes=5, flush_interval_seconds=30)
        machine.pause()
        machine.turn(now=0)
        if timer:
            machine.timer_fired(now=30)
        if asked:
            machine.ask_flush()
        machine.resume()
        start = flush_of(machine.turn(now=30))
        assert start is not None
        return start.reason

    assert ready(asked=True, timer=True) is Reason.EXPLICIT
    assert ready(asked=False, timer=True) is Reason.TIMER
    assert ready(asked=False, timer=False) is Reason.SIZE


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
    assert machine.turn(now=0) == [ArmTimer(30)]
    machine.ask_flush()
    start = flush_of(machine.turn(now=10))
    assert start is not None
    machine.offer(Log(2), 1)
    assert machine.turn(now=12) == []
    assert machine.timer_fired(now=30) == [ArmTimer(12)]
    assert machine.timer_fired(now=41.9999) == []
    assert machine.due


def test_a_timer_without_pending_writes_goes_to_sleep() -> None:
    machine = machine_with(1, flush_interval_seconds=30)
    machine.turn(now=0)
    machine.ask_flush()
    machine.turn(now=1)
    assert machine.timer_fired(now=30) == []
    machine.offer(Log(2), 1)
    assert machine.turn(now=100) == [ArmTimer(30)]


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
    assert machine.turn(now=0) == [Grant(ticket)]
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


@dataclass
class Waiter:
    mark: Mark
    epoch: int
    answers: list[str] = field(default_factory=list)


class AnyOrder(RuleBasedStateMachine):
    """A shell of lists around the machine: everything that can happen may happen at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = machine_with(
            0,
            flush_interval_seconds=10,
            max_pending_bytes=6,
            max_pending_writes=4,
            max_buffered_bytes=12,
            max_buffered_writes=8,
            max_unsettled_flushes=3,
            retry_deadline_seconds=5,
        )
        self.now = 0.0
        self.marks = Watermarks()
        self.published = 0
        self.next_first = 1
        self.running: Epochs | None = None
        self.waiting: list[Epochs] = []
        self.deltas: dict[int, Log] = {}
        self.landings: list[int] = []
        self.proved: dict[int, int] = {}
        self.timer = self.backoff = False
        self.waiters: list[Waiter] = []
        self.line: dict[Ticket, str] = {}

    # The shell ------------------------------------------------------------------------------------

    def perform(self, actions: list[Action[Log, int]]) -> None:
        for action in actions:
            match action:
                case StartFlush():
                    self.start(action)
                case Publish(_, epoch):
                    assert epoch > self.published, "readers saw the past again, or a repeat"
                    assert self.marks.flushed <= self.published, "the mark moved before the snapshot"
                    self.published = epoch
                case Release(mark, epoch):
                    assert mark is Mark.DURABLE or self.published == epoch
                    self.answer("reached", mark, last=epoch)
                case FailWaiters(first, _):
                    self.answer("failed", first=first)
                case Grant(ticket):
                    assert self.line[ticket] == "waiting"
                    self.line[ticket] = "granted"
                case Refuse(ticket, error):
                    assert isinstance(error, PenstockError)
                    assert self.line.pop(ticket) == "waiting"
                case ArmTimer(seconds):
                    assert not self.timer
                    assert seconds > 0
                    self.timer = True
                case BackOff():
                    assert not self.backoff
                    self.backoff = True
                case Drop(epochs):
                    assert epochs in self.waiting or epochs == self.running
                    self.waiting = [other for other in self.waiting if other != epochs]
                    self.running = None if self.running == epochs else self.running

    def start(self, flush: StartFlush[Log]) -> None:
        epochs = flush.epochs
        assert self.running is None, "two flushes at one time"
        assert flush.delta.epochs == list(range(epochs.first, epochs.last + 1)), "writes lost, doubled or reordered"
        if epochs.attempt == 1:
            assert epochs.first == self.next_first, "a gap between flushes"
            self.next_first = epochs.last + 1
            self.deltas[epochs.first] = flush.delta
        assert self.deltas[epochs.first] is flush.delta, "a repeat of something else"
        self.running = epochs

    def answer(self, how: str, mark: Mark | None = None, first: int = 0, last: int = 1 << 60) -> None:
        for waiter in self.waiters:
            if not waiter.answers and (mark in (None, waiter.mark)) and first <= waiter.epoch <= last:
                waiter.answers.append(how)

    # Events ---------------------------------------------------------------------------------------

    @rule(size=st.integers(0, 5))
    def write(self, size: int) -> None:
        before = self.machine.applied
        try:
            epoch = self.machine.offer(Log(before + 1), size)
        except PenstockError:
            assert self.machine.state is State.FAILED or self.machine.closing
            return
        assert epoch in (0, before + 1)
        if not epoch:
            self.line[self.machine.queue(size)] = "waiting"

    @precondition(lambda self: "granted" in self.line.values())
    @rule(choice=st.integers(0), take=st.booleans())
    def claim_or_leave(self, choice: int, take: bool) -> None:
        granted = [ticket for ticket, state in self.line.items() if state == "granted"]
        ticket = granted[choice % len(granted)]
        del self.line[ticket]
        if not take:
            self.machine.withdraw(ticket)
            return
        before = self.machine.applied
        try:
            assert self.machine.claim(ticket, Log(before + 1)) == before + 1
        except PenstockError:
            assert self.machine.state is State.FAILED or self.machine.closing

    @precondition(lambda self: "waiting" in self.line.values())
    @rule(choice=st.integers(0))
    def lose_patience(self, choice: int) -> None:
        waiting = [ticket for ticket, state in self.line.items() if state == "waiting"]
        ticket = waiting[choice % len(waiting)]
        del self.line[ticket]
        self.machine.withdraw(ticket)

    @rule(seconds=st.floats(0, 4))
    def turn(self, seconds: float) -> None:
        self.now += seconds
        self.perform(self.machine.turn(self.now))

    @rule(mark=st.sampled_from([Mark.FLUSHED, Mark.DURABLE]), ask=st.booleans(), back=st.integers(0, 5))
    def wait(self, mark: Mark, ask: bool, back: int) -> None:
        epoch = max(0, self.machine.applied - back)
        if ask:
            self.machine.ask_flush(epoch)
        if epoch > getattr(self.marks, mark) and self.machine.failure_of(epoch) is None:
            self.waiters.append(Waiter(mark, epoch))

    @precondition(lambda self: self.running is not None)
    @rule()
    def land(self) -> None:
        epochs, self.running = self.running, None
        assert epochs is not None
        self.landings.append(epochs.first)
        self.perform(self.machine.landed(epochs, epochs.last))
        if self.machine.awaits(epochs):
            self.waiting.append(epochs)

    @precondition(lambda self: self.running is not None)
    @rule(transient=st.booleans())
    def fail(self, transient: bool) -> None:
        epochs, self.running = self.running, None
        assert epochs is not None
        self.perform(self.machine.failed(epochs, Unavailable("x") if transient else StorageFull("x"), self.now))

    @precondition(lambda self: self.waiting)
    @rule(choice=st.integers(0))
    def settle(self, choice: int) -> None:
        epochs = self.waiting.pop(choice % len(self.waiting))
        self.proved[epochs.first] = len(self.landings)
        self.perform(self.machine.settled(epochs))

    @precondition(lambda self: self.waiting)
    @rule(choice=st.integers(0), transient=st.booleans())
    def lose(self, choice: int, transient: bool) -> None:
        epochs = self.waiting.pop(choice % len(self.waiting))
        self.perform(self.machine.failed(epochs, Unavailable("x") if transient else StorageFull("x"), self.now))

    @precondition(lambda self: self.timer)
    @rule()
    def timer_fires(self) -> None:
        self.timer = False
        self.perform(self.machine.timer_fired(self.now))

    @precondition(lambda self: self.backoff)
    @rule()
    def backoff_ends(self) -> None:
        self.backoff = False
        self.machine.backoff_over()

    @rule()
    def pause(self) -> None:
        self.machine.pause()

    @rule()
    def resume(self) -> None:
        self.machine.resume()

    @precondition(lambda self: not self.machine.aborted)
    @rule()
    def retry(self) -> None:
        self.machine.retry()

    @rule()
    def look(self) -> None:
        view = [epoch for delta in self.machine.unflushed() for epoch in delta.epochs]
        assert view == list(range(self.marks.flushed + 1, self.marks.applied + 1))

    @rule(chance=st.integers(0, 9))
    def end(self, chance: int) -> None:
        # Rarely, or most runs would end before anything interesting happened.
        if chance == 0:
            self.perform(self.machine.shutdown())
        if chance == 1:
            self.perform(self.machine.abort())

    # Promises -------------------------------------------------------------------------------------

    @invariant()
    def marks_are_ordered_and_never_go_back(self) -> None:
        marks = self.machine.watermarks
        assert marks.durable <= marks.flushed <= marks.applied
        assert all(new >= old for new, old in zip(marks, self.marks, strict=True))
        assert self.published == marks.flushed
        self.marks = marks

    @invariant()
    def bounds_hold_and_nothing_leaks(self) -> None:
        machine = self.machine
        granted = [ticket.size_bytes for ticket, state in self.line.items() if state == "granted"]
        held = sum(flight.size_bytes for flight in machine.flights) + machine.pending.bytes + sum(granted)
        assert machine.room.bytes == held <= 12
        assert machine.room.writes == machine.applied - machine.durable + len(granted) <= 8
        assert machine.room.waiting == sum(state == "waiting" for state in self.line.values())

    @invariant()
    def flights_are_in_order_and_at_most_one_runs(self) -> None:
        phases = [flight.phase for flight in self.machine.flights]
        assert len(phases) <= 3
        assert phases.count(Phase.RUNNING) <= 1
        if Phase.DUE in phases and self.machine.failure is None and not any(f.void for f in self.machine.flights):
            assert not {Phase.LANDED, Phase.SETTLED} & set(phases[phases.index(Phase.DUE) :])

    @invariant()
    def durable_means_proved_and_not_overwritten_since(self) -> None:
        """The last landing of each durable flush was vouched for, and no earlier flush landed after it."""
        for first in self.deltas:
            if first <= self.marks.durable:
                landed_at = max(at for at, landed in enumerate(self.landings, start=1) if landed == first)
                assert self.proved[first] >= landed_at
                assert all(landed >= first for landed in self.landings[landed_at:])

    @invariant()
    def nobody_waits_for_what_has_happened_or_failed(self) -> None:
        for waiter in self.waiters:
            if not waiter.answers:
                assert waiter.epoch > getattr(self.marks, waiter.mark)
                assert self.machine.failure_of(waiter.epoch) is None

    def teardown(self) -> None:
        """From any state whatever: a willing store and a retry bring everything home, and answer everyone."""
        machine = self.machine
        for ticket in [ticket for ticket, state in self.line.items() if state == "granted"]:
            machine.withdraw(ticket)
            del self.line[ticket]
        if not machine.aborted:
            machine.retry()
        self.perform(machine.shutdown())
        for _ in range(50):
            self.perform(machine.turn(self.now))
            if self.backoff:
                self.backoff_ends()
            if self.running:
                self.land()
            while self.waiting:
                self.settle(0)
            self.marks_are_ordered_and_never_go_back()
            self.durable_means_proved_and_not_overwritten_since()
        assert machine.aborted or machine.durable == machine.applied
        assert all(waiter.answers for waiter in self.waiters)
        assert not self.line


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)


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
