"""Where a relay sends segments: the port, and the four answers that an outlet may give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from penstock.quiver import Delivery, SegmentMeta

__all__ = ["Delivered", "NotYet", "Outlet", "RetryLater", "SegmentRows", "SendAnswer", "Undeliverable"]


class SegmentRows(Protocol):
    """What an outlet sends of a segment: a delivery, or some of its rows."""

    @property
    def segment_seq(self) -> int: ...

    @property
    def meta(self) -> SegmentMeta: ...

    async def read(self) -> dict[str, list[pa.Table]]: ...


@dataclass(frozen=True, slots=True)
class Delivered:
    """The segment is durable on the other side. `is_new` is False when an earlier attempt had brought it there."""

    is_new: bool = True


@dataclass(frozen=True, slots=True)
class RetryLater:
    """A fault that may pass; `after_seconds` where the other side said when to come back."""

    reason: str
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """It will never be taken: the segment is a dead letter."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotYet:
    """Another segment has to go first."""


SendAnswer: TypeAlias = Delivered | RetryLater | Undeliverable | NotYet


class Outlet(Protocol):
    """One target. Calls come one at a time; a segment may come again after any answer, and after a crash."""

    async def send(self, delivery: Delivery) -> SendAnswer:
        """Bring one segment to the target. A `PenstockError` is a fault that may pass, if only when somebody mends it."""
        ...

    async def settled(self, delivery: Delivery) -> None:
        """The segment is acknowledged or refused for good, durably."""
        ...

    async def close(self) -> None: ...
