"""The broadcast of snapshots: one current value, which every reader sees whole.

A snapshot and the epoch it covers are replaced together, and before the flushed mark moves, so whoever is
told of an epoch finds it in the current snapshot. Subscribers get the newest and may skip what came between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Broadcast", "Published", "SnapshotSubscription", "View"]

D = TypeVar("D")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Published(Generic[S]):
    """A snapshot with everything up to `epoch` in it, and nothing beyond."""

    snapshot: S
    epoch: int


@dataclass(frozen=True, slots=True)
class View(Generic[D, S]):
    """Everything accepted up to `epoch`: the snapshot, then the deltas that are not in it, oldest first.

    Nothing in it ever changes. Later deltas win over earlier ones and over the snapshot, as merging would.
    """

    snapshot: S
    deltas: tuple[D, ...]
    epoch: int


class Broadcast(Generic[S]):
    """The single source of snapshots."""

    def __init__(self, snapshot: S) -> None:
        self.current = Published(snapshot, 0)
        self.version = 0
        self.closed = False
        # Ordered, so that subscribers are woken in the order in which they began to wait.
        self._waiting: dict[asyncio.Future[None], None] = {}

    def publish(self, snapshot: S, epoch: int) -> None:
        self.current = Published(snapshot, epoch)
        self.version += 1
        self._wake()

    def close(self) -> None:
        """End every subscription once it has seen the newest snapshot."""
        self.closed = True
        self._wake()

    def subscribe(self) -> SnapshotSubscription[S]:
        return SnapshotSubscription(self)

    async def changed(self) -> None:
        """Return after the next publication, or after the close."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[change] = None
        try:
            await change
        finally:
            self._waiting.pop(change, None)

    def _wake(self) -> None:
        for change in self._waiting:
            if not change.done():
                change.set_result(None)


class SnapshotSubscription(AsyncIterator[Published[S]]):
    """Iterates over snapshots from the current one on: always the newest, none twice, until the shutdown."""

    def __init__(self, broadcast: Broadcast[S]) -> None:
        self._broadcast = broadcast
        self._seen = -1

    @property
    def latest(self) -> Published[S]:
        """The current snapshot, without waiting and without marking it as seen."""
        return self._broadcast.current

    async def __anext__(self) -> Published[S]:
        while self._seen == self._broadcast.version:
            if self._broadcast.closed:
                raise StopAsyncIteration
            await self._broadcast.changed()
        self._seen = self._broadcast.version
        return self._broadcast.current
