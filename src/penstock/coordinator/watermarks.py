"""How far writes have come, and who waits for it.

The durable mark never passes the flushed one, nor that the applied one, and none ever goes back. Epochs
begin at 1 with each coordinator and are kept in memory only: zero means that nothing has happened yet.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from penstock.errors import PenstockError

__all__ = ["Mark", "Waiters", "Watermarks"]


class Mark(StrEnum):
    """The three things that happen to a write, in order."""

    APPLIED = "applied"  # it has an epoch and its place in the order
    FLUSHED = "flushed"  # it is in the published snapshot
    DURABLE = "durable"  # the store vouches for it


class Watermarks(NamedTuple):
    """The highest epoch of each mark; everything at or below has reached it."""

    applied: int = 0
    flushed: int = 0
    durable: int = 0


class Waiters:
    """Callers waiting for one mark, by epoch; one sweep answers all whom a move concerns.

    Answers are results, never exceptions set on a future: a caller that left early has nothing to retrieve.
    """

    def __init__(self) -> None:
        self._by_epoch: dict[int, dict[asyncio.Future[PenstockError | None], None]] = {}
        self._epochs: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def wait(self, epoch: int) -> None:
        """Return when the mark reaches `epoch`; raise what the wait failed with."""
        answer: asyncio.Future[PenstockError | None] = asyncio.get_running_loop().create_future()
        if epoch not in self._by_epoch:
            self._by_epoch[epoch] = {}
            heapq.heappush(self._epochs, epoch)
        self._by_epoch[epoch][answer] = None
        self._count += 1
        try:
            error = await answer
        finally:
            self._count -= 1
            # The empty place stays, so that impatient callers who come again do not grow the heap.
            self._by_epoch.get(epoch, {}).pop(answer, None)
        if error is not None:
            raise error

    def release(self, epoch: int) -> None:
        """Answer everyone who waits for `epoch` or less."""
        while self._epochs and self._epochs[0] <= epoch:
            for answer in self._by_epoch.pop(heapq.heappop(self._epochs)):
                _answer(answer, None)

    def fail(self, first: int, error: Callable[[], PenstockError]) -> None:
        """Give everyone who waits for `first` or more an error of their own."""
        failed = sorted(epoch for epoch in self._by_epoch if epoch >= first)
        for epoch in failed:
            for answer in self._by_epoch.pop(epoch):
                _answer(answer, error())
        self._epochs = sorted(self._by_epoch)


def _answer(answer: asyncio.Future[PenstockError | None], error: PenstockError | None) -> None:
    if not answer.done():
        answer.set_result(error)
