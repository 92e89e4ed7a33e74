"""The coordinator's decisions, without a clock, a loop or a store: events go in, actions come out.

```
              write                 explicit, waited, timer, size, shutdown
   IDLE ───────────────▶ ACCUMULATING ───────────────────────────────▶ FLUSHING
    ▲                          ▲                                        │  │ ▲
    │     nothing pending      │   pending, and everything else durable │  │ │ retry()
    └──────────────────────────┴────────────────────────────────────────┘  ▼ │
                                                                          FAILED
```

A flush takes all that is pending and leaves a fresh buffer, so writes go on during it. Until a delta is
durable it is kept, counted against the bounds, and part of every view that the snapshot does not cover.
Completions and commands take effect when they are reported; `turn` then decides, once for all that came
in together, whether a flush begins, and why: shutdown and explicit requests before those who wait, they before
the timer, and the timer before size.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Generic, TypeVar

from penstock.coordinator.actions import (
    Action,
    BackOff,
    Drop,
    FailWaiters,
    Grant,
    Interrupt,
    Publish,
    Reason,
    Refuse,
    Release,
    StartFlush,
)
from penstock.coordinator.admission import Room, Ticket
from penstock.coordinator.alarms import Alarm, Timer
from penstock.coordinator.config import CoordinatorConfig
from penstock.coordinator.failure import ends_program, is_transient, refusal, settled_as, shut_down
from penstock.coordinator.flights import Flight, Flights
from penstock.coordinator.patience import FlushPatience
from penstock.coordinator.pending import PendingDeltas
from penstock.coordinator.protocols import Delta, Epochs
from penstock.coordinator.watermarks import Mark, Watermarks
from penstock.errors import Closed, InvalidInput, PenstockError

__all__ = ["Machine", "State"]

D = TypeVar("D", bound=Delta)
S = TypeVar("S")


class State(StrEnum):
    """Where a coordinator is."""

    IDLE = "idle"  # nothing is held
    ACCUMULATING = "accumulating"  # writes are pending and no flush is under way
    FLUSHING = "flushing"  # some flush is not yet durable; writes go on
    FAILED = "failed"  # a flush failed for good: writes are refused, everything is kept


class Machine(Generic[D, S]):
    """Epochs, marks, bounds and flights of one coordinator. After any event, `due` asks for a `turn`."""

    def __init__(self, config: CoordinatorConfig, empty: Callable[[], D]) -> None:
        self.config = config
        self.room = Room(config.max_buffered_bytes, config.max_buffered_writes)
        self.pending: PendingDeltas[D] = PendingDeltas(empty)
        self.flights: Flights[D] = Flights()
        self.applied = self.flushed = self.durable = 0
        self.due = False
        self.paused = False
        self.closing = False
        self.aborted = False
        self.failure: PenstockError | None = None
        self._failed_from = 0
        self._refusing = False
        self._flush_wanted = 0
        self._crowded = False
        self._interval = Alarm(Timer.INTERVAL, config.flush_interval_seconds)
        self._commit = Alarm(Timer.COMMIT, config.commit_delay_seconds)
        self._backing_off = False
        self._patience = FlushPatience(config)
        self._max_bytes, self._max_writes = config.max_pending_bytes, config.max_pending_writes

    @property
    def state(self) -> State:
        if self.failure is not None:
            return State.FAILED
        if self.flights:
            return State.FLUSHING
        return State.ACCUMULATING if self.pending.writes else State.IDLE

    @property
    def watermarks(self) -> Watermarks:
        return Watermarks(self.applied, self.flushed, self.durable)

    def known(self, epoch: int) -> int:
        """Refuse an epoch that no write has: waiting for it might never end."""
        if not 0 <= epoch <= self.applied:
            raise InvalidInput(
                f"epoch {epoch} is not the epoch of a write",
                f"epochs up to {self.applied} were given out so far",
                "pass the epoch of a write's handle",
            )
        return epoch

    def failure_of(self, epoch: int) -> PenstockError | None:
        """Why `epoch` is not going to be durable without a retry."""
        return self.failure if self.failure is not None and epoch >= self._failed_from else None

    def unflushed(self) -> tuple[D, ...]:
        """Every accepted write that the published snapshot does not show, as deltas that never change."""
        in_flight = [flight.delta for flight in self.flights if flight.epochs.last > self.flushed]
        return (*in_flight, *self.pending.freeze())

    # writes ---------------------------------------------------------------------------------------

    def offer(self, delta: D, size_bytes: int, *, now_or_never: bool = False, yields: bool = False) -> int:
        """Accept a write if there is room, nobody came earlier, and its caller yields to nobody: its epoch, or zero."""
        if self._refusing:
            raise self._refusal()
        if not 0 <= size_bytes <= self.room.max_bytes:
            raise self._unfit(size_bytes)
        if yields:
            return 0
        if not self.room.take(size_bytes, now_or_never):
            if not self.room.fits(size_bytes):
                self._crowded = self.due = True
            return 0
        return self._accept(delta, size_bytes)

    def queue(self, size_bytes: int) -> Ticket:
        """A place behind everyone who came earlier; a ticket that is granted at once only waits for its turn."""
        ticket = self.room.queue(size_bytes)
        self.due = self.due or not ticket.granted
        return ticket

    def claim(self, ticket: Ticket, delta: D) -> int:
        """Accept the write of a granted ticket: its epoch."""
        if self._refusing:
            self.withdraw(ticket)
            raise self._refusal()
        self.room.claim(ticket)
        return self._accept(delta, ticket.size_bytes)

    def withdraw(self, ticket: Ticket) -> None:
        """Leave the line, or give back the room that was granted."""
        self.room.withdraw(ticket)
        self.due = True

    def _accept(self, delta: D, size_bytes: int) -> int:
        pending = self.pending
        try:
            pending.merge(delta, size_bytes)
        except BaseException:
            self.room.leave(size_bytes)
            self.due = True
            raise
        self.applied += 1
        # The first write arms the timer; one that fills the buffer, or has others waiting behind it, may flush.
        if (
            pending.writes == 1
            or pending.writes >= self._max_writes
            or pending.bytes >= self._max_bytes
            or self.room.waiting
        ):
            self.due = True
        return self.applied

    def _refusal(self) -> PenstockError:
        return shut_down() if self.closing or self.failure is None else refusal(self.failure)

    def _unfit(self, size_bytes: int) -> InvalidInput:
        return InvalidInput(
            f"a write of {size_bytes} bytes cannot be accepted",
            f"all writes together hold 0 to {self.room.max_bytes} bytes",
            "split it, or raise max_buffered_bytes",
        )

    # commands -------------------------------------------------------------------------------------

    def ask_flush(self, epoch: int | None = None) -> int:
        """Want everything up to `epoch` flushed, or all that is accepted by now; the epoch to wait for."""
        wanted = self.applied if epoch is None else self.known(epoch)
        self._flush_wanted = max(self._flush_wanted, wanted)
        self.due = True
        return wanted

    def expect(self, epoch: int, now: float) -> list[Action[D, S]]:
        """Somebody waits for `epoch`: if it is pending, a flush is due soon, and shared by all who come until then."""
        return [*self._commit.set(now)] if epoch > self.applied - self.pending.writes else []

    def pause(self) -> None:
        """Begin no flush until `resume`, not even a repeat. Writes are taken while there is room."""
        self.paused = not self.closing

    def resume(self) -> None:
        self.paused = False
        self.due = True

    def retry(self) -> None:
        """Leave the failed state: what is kept is handed over again, in order."""
        if self.aborted:
            raise Closed("nothing can be retried", "the coordinator was aborted", "open a new one")
        self.failure = None
        self._refusing = self.closing
        self._patience.reset()
        self.due = True

    def shutdown(self) -> list[Action[D, S]]:
        """Take no more writes, and flush what was taken. A pause ends with it."""
        self.closing = self._refusing = True
        self.resume()
        self.ask_flush()
        return self._turn_away()

    def abort(self) -> list[Action[D, S]]:
        """Stop here: nothing more is handed over, and nothing is waited for."""
        self.closing = self.aborted = True
        dropped = [Drop(epochs) for epochs in self.flights.give_up()]
        return [*dropped, *self._fail(Closed("the coordinator was aborted"), self.durable + 1)]

    # completions ----------------------------------------------------------------------------------

    def landed(self, epochs: Epochs, snapshot: S) -> list[Action[D, S]]:
        """The handler returned: the writes are visible in `snapshot`."""
        flight = self.flights.carried(epochs)
        if flight is None:
            return []
        self.due = True
        flight.land()
        if epochs.last <= self.flushed:
            # A repeat of what readers have already. The store may by now hold later writes, whose answers were
            # lost, so its snapshot could show more than these epochs; the published one shows exactly them.
            return []
        self.flushed = epochs.last
        return [Publish(snapshot, epochs.last), Release(Mark.FLUSHED, epochs.last)]

    def awaits(self, epochs: Epochs) -> bool:
        """Whether it still matters if this attempt becomes durable."""
        return self.flights.carried(epochs) is not None

    def settled(self, epochs: Epochs) -> list[Action[D, S]]:
        """The store vouches for the writes. The mark moves when it does so for all before them, too."""
        flight = self.flights.carried(epochs)
        if flight is None:
            return []
        done = self.flights.settle(flight)
        if not done:
            return []
        self.durable = done[-1].epochs.last
        for flight in done:
            self.room.leave(flight.size_bytes, len(flight.epochs))
        self._crowded = False
        self._patience.reset()
        self.due = True
        return [Release(Mark.DURABLE, self.durable)]

    def failed(self, epochs: Epochs, error: BaseException, now: float) -> list[Action[D, S]]:
        """The handler or the wait for durability raised: try again while that may help, or come to rest."""
        flight = self.flights.carried(epochs)
        if flight is None:
            return []
        self.due = True
        actions: list[Action[D, S]] = [Drop(given_up) for given_up in self.flights.rewind(flight)]
        in_time = self._patience.count(now)
        if self.failure is not None:
            return [*actions, *self._fail(self.failure, epochs.first)]
        if not (is_transient(error) and in_time):
            return [*actions, *self._fail(settled_as(error, epochs, self.config.retry_deadline_seconds), epochs.first)]
        if not self._backing_off:
            self._backing_off = True
            actions.append(BackOff(self._patience.pause_seconds_max, epochs, error))
        return actions

    def backoff_over(self) -> None:
        self._backing_off = False
        self.due = True

    def timer_fired(self, timer: Timer, now: float) -> list[Action[D, S]]:
        """Flush if a deadline of what is pending has passed; otherwise wait for the rest of its time."""
        alarm = self._interval if timer is Timer.INTERVAL else self._commit
        rearmed = alarm.fired(now)
        self.due = self.due or alarm.due
        return [*rearmed]

    # decisions ------------------------------------------------------------------------------------

    def turn(self, now: float) -> list[Action[D, S]]:
        """Let waiting writers in, keep the timer, and begin a flush if one is due and none is with the handler."""
        self.due = False
        actions: list[Action[D, S]] = []
        if not self._refusing:
            actions += [Grant(ticket) for ticket in self.room.grant()]
        if self.pending.writes:
            actions += self._interval.set(now)
        if not (self.paused or self._backing_off or self.failure or self.flights.running):
            actions += self._begin()
        return actions

    def _begin(self) -> list[Action[D, S]]:
        flight = self.flights.due
        if flight is None:
            reason = self._reason()
            if reason is None or self.flights.repeating or len(self.flights) >= self.config.max_unsettled_flushes:
                return []
            epochs = Epochs(self.applied - self.pending.writes + 1, self.applied, attempt=0)
            try:
                flight = self._take(epochs, reason)
            except BaseException as error:  # noqa: BLE001 - deltas that cannot merge are kept, and everyone is told
                told = self._fail(settled_as(error, epochs, 0), epochs.first)
                return [*told, Interrupt(error)] if ends_program(error) else told
        flight.start()
        return [StartFlush(flight.epochs, flight.delta, flight.reason, flight.since)]

    def _take(self, epochs: Epochs, reason: Reason) -> Flight[D]:
        size_bytes, since = self.pending.bytes, self._interval.since or 0.0
        flight = Flight(epochs, self.pending.take(), size_bytes, reason, since)
        self.flights.add(flight)
        self._interval.clear()
        self._commit.clear()
        self._crowded = False
        return flight

    def _reason(self) -> Reason | None:
        if not self.pending.writes:
            return None
        if self.closing:
            return Reason.SHUTDOWN
        if self.applied - self.pending.writes < self._flush_wanted:
            return Reason.EXPLICIT
        if self._commit.due:
            return Reason.WAITED
        if self._interval.due:
            return Reason.TIMER
        return Reason.SIZE if self._full else None

    @property
    def _full(self) -> bool:
        if self.pending.writes >= self._max_writes or self.pending.bytes >= self._max_bytes:
            return True
        # Nothing under way will make room for those who wait, so what is pending must, however little it is.
        return not self.flights and (self._crowded or self.room.waiting > 0)

    def _fail(self, failure: PenstockError, first: int) -> list[Action[D, S]]:
        self._failed_from = first if self.failure is None else min(first, self._failed_from)
        self.failure = failure
        self._refusing = True
        return [FailWaiters(first, failure), *self._turn_away()]

    def _turn_away(self) -> list[Action[D, S]]:
        return [Refuse(ticket, self._refusal()) for ticket in self.room.turn_away()]
