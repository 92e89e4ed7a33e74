"""What the machine asks its shell to do, in the order given. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from penstock.coordinator.admission import Ticket
from penstock.coordinator.alarms import ArmTimer
from penstock.coordinator.protocols import Delta, Epochs
from penstock.coordinator.watermarks import Mark
from penstock.errors import PenstockError

__all__ = [
    "Action",
    "ArmTimer",
    "BackOff",
    "Drop",
    "FailWaiters",
    "Grant",
    "Interrupt",
    "Publish",
    "Reason",
    "Refuse",
    "Release",
    "StartFlush",
]

D = TypeVar("D", bound=Delta)
S = TypeVar("S")


class Reason(StrEnum):
    """Why a flush began."""

    SHUTDOWN = "shutdown"
    EXPLICIT = "explicit"
    WAITED = "waited"
    TIMER = "timer"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class StartFlush(Generic[D]):
    """Hand `delta` to the handler; its oldest write was taken at `since`."""

    epochs: Epochs
    delta: D
    reason: Reason
    since: float


@dataclass(frozen=True, slots=True)
class Publish(Generic[S]):
    """Make `snapshot` the current one; it covers everything up to `epoch`."""

    snapshot: S
    epoch: int


@dataclass(frozen=True, slots=True)
class Release:
    """Answer everyone who waits for `mark` at or below `epoch`."""

    mark: Mark
    epoch: int


@dataclass(frozen=True, slots=True)
class FailWaiters:
    """Give everyone who waits for `first` or a later epoch the cause."""

    first: int
    cause: PenstockError


@dataclass(frozen=True, slots=True)
class Grant:
    """Wake this writer: it has room, and claims it with its write."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Refuse:
    """Wake this writer with `error`: its write was not taken."""

    ticket: Ticket
    error: PenstockError


@dataclass(frozen=True, slots=True)
class BackOff:
    """Report `backoff_over` after a random part of so many seconds."""

    seconds_max: float
    epochs: Epochs
    error: BaseException


@dataclass(frozen=True, slots=True)
class Drop:
    """Carry this attempt no further: its writes are handed over again, or never."""

    epochs: Epochs


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Raise `error` after everything else is done: it is meant for the program and not for a caller."""

    error: BaseException


Action: TypeAlias = (
    StartFlush[D] | Publish[S] | Release | FailWaiters | Grant | Refuse | ArmTimer | BackOff | Drop | Interrupt
)
