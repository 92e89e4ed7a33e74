"""Flushes under way, from the moment they take their writes until everything up to them is durable. Pure.

At most one is with the handler at a time; several may be visible and not yet durable. When one fails, it
and all that were written on top of it become due again, in their order and with their epochs, so that a
later write never ends up below an earlier one. A repeat begins when everything before it is durable: even a
store that died and lost its memory can then be opened again in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Generic, TypeVar

from penstock.coordinator.actions import Reason
from penstock.coordinator.protocols import Delta, Epochs

__all__ = ["Flight", "Flights", "Phase"]

D = TypeVar("D", bound=Delta)


class Phase(Enum):
    """Where one flush is."""

    DUE = auto()  # to be handed over, for the first time or again
    RUNNING = auto()  # with the handler
    LANDED = auto()  # visible, not yet durable
    SETTLED = auto()  # durable, while an earlier one is not


@dataclass(slots=True)
class Flight(Generic[D]):
    """One flush: its writes, merged, and where it is."""

    epochs: Epochs
    delta: D
    size_bytes: int
    reason: Reason
    since: float
    phase: Phase = Phase.DUE
    # An earlier one failed while this was with the handler: whatever comes of it, it is due again.
    void: bool = False

    def start(self) -> None:
        self.phase, self.void = Phase.RUNNING, False
        self.epochs = replace(self.epochs, attempt=self.epochs.attempt + 1)

    def land(self) -> None:
        self.phase = Phase.DUE if self.void else Phase.LANDED


class Flights(Generic[D]):
    """The flushes that are not yet durable, in the order of their epochs."""

    def __init__(self) -> None:
        self._flights: list[Flight[D]] = []

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight[D]]:
        return iter(self._flights)

    @property
    def running(self) -> bool:
        """Whether one is with the handler."""
        return self._first(Phase.RUNNING) is not None

    @property
    def repeating(self) -> bool:
        """Whether some are to be handed over again; nothing new begins before they are."""
        return self._first(Phase.DUE) is not None

    @property
    def due(self) -> Flight[D] | None:
        """The one to hand over again, once everything before it is durable."""
        return self._flights[0] if self._flights and self._flights[0].phase is Phase.DUE else None

    def add(self, flight: Flight[D]) -> None:
        self._flights.append(flight)

    def carried(self, epochs: Epochs) -> Flight[D] | None:
        """The flight whose present attempt this is; a report from an attempt that was given up finds none."""
        for flight in self._flights:
            if flight.epochs == epochs and flight.phase in (Phase.RUNNING, Phase.LANDED):
                return flight
        return None

    def settle(self, flight: Flight[D]) -> list[Flight[D]]:
        """Mark one durable, and take out those that now are so without a gap before them."""
        flight.phase = Phase.SETTLED
        done = []
        while self._flights and self._flights[0].phase is Phase.SETTLED:
            done.append(self._flights.pop(0))
        return done

    def rewind(self, failed: Flight[D]) -> list[Epochs]:
        """Make a flight due again, with all that is on top of it; the attempts that need no more waiting."""
        given_up = []
        failed.phase = Phase.DUE
        for flight in self._flights[self._flights.index(failed) + 1 :]:
            if flight.phase is Phase.RUNNING:
                # Never cut off half-way: it ends by itself, and is handed over again after that.
                flight.void = True
                continue
            if flight.phase is Phase.LANDED:
                given_up.append(flight.epochs)
            flight.phase = Phase.DUE
        return given_up

    def give_up(self) -> list[Epochs]:
        """Make every flight due; the attempts that nobody carries any longer."""
        given_up = [flight.epochs for flight in self._flights if flight.phase in (Phase.RUNNING, Phase.LANDED)]
        for flight in self._flights:
            flight.phase = Phase.DUE
        return given_up

    def _first(self, phase: Phase) -> Flight[D] | None:
        return next((flight for flight in self._flights if flight.phase is phase), None)
