"""What a store brings to the coordinator: how writes merge, and how a merged delta is written.

The coordinator knows neither keys nor formats. A `Delta` may overwrite (the last write of an id wins)
or append (samples of a series add up); a `FlushHandler` turns it into one atomic write and says apart
when that is visible and when it is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

__all__ = ["Delta", "Epochs", "FlushHandler", "Flushed"]

D = TypeVar("D", bound="Delta")
S = TypeVar("S")


class Delta(Protocol):
    """Writes not yet in the store. An empty one is a valid write: it may carry a source position alone."""

    @property
    def size_bytes(self) -> int:
        """About how much memory this holds; asked once, when the write is offered."""
        ...

    def merge(self, later: Self) -> None:
        """Take in what `later` holds, as written after everything that is here.

        `later` stays as it is, and nothing that may change afterwards is shared with it: it may be part of a
        view that readers hold. A merge that raises has changed nothing, and its write is not accepted.
        """
        ...


@dataclass(frozen=True, slots=True)
class Epochs:
    """The writes of one flush, first to last; flushes follow each other without a gap."""

    first: int
    last: int
    attempt: int = 1

    @property
    def repeat(self) -> bool:
        """Whether these very writes were handed over before, with an outcome that did not hold or is unknown."""
        return self.attempt > 1

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"


@dataclass(frozen=True, slots=True)
class Flushed(Generic[S]):
    """A flush that is visible. `durable` is awaited once, and returns when the store vouches for the write."""

    snapshot: S
    durable: Callable[[], Awaitable[None]]


class FlushHandler(Protocol[D, S]):
    """Writes deltas to a store. At most one `flush` runs at a time, in the order of epochs."""

    def empty(self) -> D:
        """A fresh delta for writes to merge into."""
        ...

    async def flush(self, delta: D, snapshot: S, epochs: Epochs) -> Flushed[S]:
        """Write `delta`, which must stay as it is, onto `snapshot`, the newest state this handler returned.

        Data and source position go into one atomic write. That also makes a repeat the same write: with
        `epochs.repeat` the earlier attempt may be in the store wholly or not at all, never in part.
        `Unavailable` and `OutcomeUnknown`, here and from `durable`, mean: hand me the same writes again.
        A store that has died is opened again in a repeat and at no other time: then all before it is durable,
        and all after it is going to be handed over again too.
        """
        ...
