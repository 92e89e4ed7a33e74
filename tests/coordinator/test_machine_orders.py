"""The machine's invariants under any order of events: hypothesis looks for small cases, long walks for deep ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.campaigns import examples
from tests.coordinator.logs import Log, machine_with

from penstock.coordinator import Epochs, Mark, State, Watermarks
from penstock.coordinator.actions import (
    Action,
    BackOff,
    Drop,
    FailWaiters,
    Grant,
    Publish,
    Refuse,
    Release,
    StartFlush,
)
from penstock.coordinator.admission import Ticket
from penstock.coordinator.alarms import ArmTimer, Timer
from penstock.coordinator.flights import Phase
from penstock.errors import PenstockError, StorageFull, Unavailable
from penstock.testing import SeededEntropy


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
            commit_delay_seconds=1,
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
        self.timers: set[Timer] = set()
        self.backoff = False
        self.waiters: list[Waiter] = []
        self.line: dict[Ticket, str] = {}
        self.sizes: dict[int, int] = {}
        # Whether several events may come in before the machine is asked to decide.
        self.busy = False

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
                case ArmTimer(timer, seconds):
                    assert timer not in self.timers
                    assert seconds > 0
                    self.timers.add(timer)
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
        assert not epochs.repeat or epochs.first == self.machine.durable + 1, "a repeat on uncertain ground"
        self.running = epochs

    def answer(self, how: str, mark: Mark | None = None, first: int = 0, last: int = 1 << 60) -> None:
        for waiter in self.waiters:
            if not waiter.answers and (mark in (None, waiter.mark)) and first <= waiter.epoch <= last:
                waiter.answers.append(how)

    def decide(self) -> None:
        if self.machine.due and not self.busy:
            self.perform(self.machine.turn(self.now))

    # Events ---------------------------------------------------------------------------------------

    @rule(size=st.integers(0, 5))
    def write(self, size: int) -> None:
        self.offer(size)
        self.decide()

    @rule(sizes=st.lists(st.integers(0, 2), min_size=1, max_size=3))
    def write_and_flush(self, sizes: list[int]) -> None:
        for size in sizes:
            self.offer(size)
        self.machine.ask_flush()
        self.decide()

    def offer(self, size: int) -> None:
        epoch = self.accepted(size, lambda delta: self.machine.offer(delta, size))
        assert not (epoch and self.line), "a write passed those who came earlier"
        if epoch == 0:
            ticket = self.machine.queue(size)
            self.line[ticket] = "granted" if ticket.granted else "waiting"

    def accepted(self, size: int, write: Callable[[Log], int]) -> int | None:
        """The epoch of a write, zero without room, None if it was refused, which it is in two states alone."""
        expected, refusing = self.machine.applied + 1, self.machine.state is State.FAILED or self.machine.closing
        try:
            epoch = write(Log(expected))
        except PenstockError:
            assert refusing
            return None
        assert not refusing
        assert epoch in (0, expected)
        if epoch:
            self.sizes[epoch] = size
        return epoch

    @precondition(lambda self: "granted" in self.line.values())
    @rule(choice=st.integers(0), take=st.booleans())
    def claim_or_leave(self, choice: int, take: bool) -> None:
        granted = [ticket for ticket, state in self.line.items() if state == "granted"]
        ticket = granted[0 if take else choice % len(granted)]
        assert self.machine.room.is_next(ticket) == (ticket is granted[0])
        del self.line[ticket]
        if not take:
            self.machine.withdraw(ticket)
            return
        assert self.accepted(ticket.size_bytes, lambda delta: self.machine.claim(ticket, delta)) != 0

    @precondition(lambda self: "waiting" in self.line.values())
    @rule(choice=st.integers(0))
    def lose_patience(self, choice: int) -> None:
        waiting = [ticket for ticket, state in self.line.items() if state == "waiting"]
        ticket = waiting[choice % len(waiting)]
        del self.line[ticket]
        self.machine.withdraw(ticket)

    @rule(seconds=st.floats(0, 4), busy=st.booleans())
    def time_passes(self, seconds: float, busy: bool) -> None:
        self.now += seconds
        self.busy = busy
        self.perform(self.machine.turn(self.now))

    @rule(mark=st.sampled_from([Mark.FLUSHED, Mark.DURABLE]), ask=st.booleans(), back=st.integers(0, 5))
    def wait(self, mark: Mark, ask: bool, back: int) -> None:
        epoch = max(0, self.machine.applied - back)
        if ask:
            self.machine.ask_flush(epoch)
        if epoch > getattr(self.marks, mark) and self.machine.failure_of(epoch) is None:
            self.perform(self.machine.expect(epoch, self.now))
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
        self.decide()

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
        self.decide()

    @precondition(lambda self: self.waiting)
    @rule(choice=st.integers(0), transient=st.booleans())
    def lose(self, choice: int, transient: bool) -> None:
        epochs = self.waiting.pop(choice % len(self.waiting))
        self.perform(self.machine.failed(epochs, Unavailable("x") if transient else StorageFull("x"), self.now))

    @precondition(lambda self: self.timers)
    @rule(choice=st.integers(0))
    def timer_fires(self, choice: int) -> None:
        timer = sorted(self.timers)[choice % len(self.timers)]
        self.timers.remove(timer)
        self.perform(self.machine.timer_fired(timer, self.now))

    @precondition(lambda self: self.backoff)
    @rule()
    def backoff_ends(self) -> None:
        self.backoff = False
        self.machine.backoff_over()
        self.decide()

    @precondition(lambda self: self.machine.failure is not None and not self.machine.aborted)
    @rule()
    def retry(self) -> None:
        self.machine.retry()
        self.decide()

    @rule()
    def look(self) -> None:
        view = [epoch for delta in self.machine.unflushed() for epoch in delta.epochs]
        assert view == list(range(self.marks.flushed + 1, self.marks.applied + 1))

    @rule(chance=st.integers(0, 30))
    def pause_or_end(self, chance: int) -> None:
        # Rarely, or most runs would stand still or end before anything interesting happened.
        if chance == 30:
            self.perform(self.machine.shutdown())
        elif chance == 29:
            self.perform(self.machine.abort())
        elif chance >= 27:
            self.machine.pause()
        else:
            self.machine.resume()
            self.decide()

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
        held = sum(self.sizes[epoch] for epoch in range(machine.durable + 1, machine.applied + 1))
        assert machine.room.bytes == held + sum(granted) <= 12
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
            if not waiter.answers and waiter.epoch > self.machine.applied - self.machine.pending.writes:
                assert Timer.COMMIT in self.timers or self.machine._commit.due, "nothing will make its flush due"
        assert self.machine.failure is None or self.machine.room.waiting == 0

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


TestAnyOrder = pytest.mark.slow(AnyOrder.TestCase)
TestAnyOrder.settings = settings(
    max_examples=examples(60), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


def step(shell: AnyOrder, entropy: SeededEntropy) -> None:
    """One event of those that can happen now, the ones that build up depth more often than those that end it."""
    events: list[tuple[int, bool, Callable[[], None]]] = [
        (4, True, lambda: shell.write(entropy.below(6))),
        (6, True, lambda: shell.write_and_flush([entropy.below(3) for _ in range(1 + entropy.below(3))])),
        (
            4,
            True,
            lambda: shell.wait(entropy.choice([Mark.FLUSHED, Mark.DURABLE]), entropy.chance(0.5), entropy.below(6)),
        ),
        (4, "granted" in shell.line.values(), lambda: shell.claim_or_leave(entropy.below(9), entropy.chance(0.8))),
        (1, "waiting" in shell.line.values(), lambda: shell.lose_patience(entropy.below(9))),
        (3, True, lambda: shell.time_passes(entropy.uniform(0, 2), entropy.chance(0.3))),
        (9, shell.running is not None, shell.land),
        (2, shell.running is not None, lambda: shell.fail(entropy.chance(0.8))),
        (4, bool(shell.waiting), lambda: shell.settle(entropy.below(9))),
        (2, bool(shell.waiting), lambda: shell.lose(entropy.below(9), entropy.chance(0.8))),
        (2, bool(shell.timers), lambda: shell.timer_fires(entropy.below(9))),
        (6, shell.backoff, shell.backoff_ends),
        (6, shell.machine.failure is not None and not shell.machine.aborted, shell.retry),
        (2, True, shell.look),
        (2, True, lambda: shell.pause_or_end(entropy.below(31))),
    ]
    possible = [event for weight, can_happen, event in events if can_happen for _ in range(weight)]
    entropy.choice(possible)()


def check(shell: AnyOrder) -> None:
    shell.marks_are_ordered_and_never_go_back()
    shell.bounds_hold_and_nothing_leaks()
    shell.flights_are_in_order_and_at_most_one_runs()
    shell.durable_means_proved_and_not_overwritten_since()
    shell.nobody_waits_for_what_has_happened_or_failed()


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("hundred", range(10))
def test_the_invariants_hold_on_long_walks(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        entropy, shell = SeededEntropy(seed), AnyOrder()
        try:
            for _ in range(100):
                step(shell, entropy)
                check(shell)
            shell.teardown()
        except BaseException as error:
            error.add_note(f"walk {seed}")
            raise
