"""What a runner has under way: batches being fetched, and those fetched and not yet stored, within bounds.

A manifest does not tell how large a batch is. So one that is being fetched counts as the largest that was
fetched so far, and as everything until one was: the first goes alone. The bound on bytes is passed only by
batches larger than any before them, and by a single one that is larger than the bound. Batches are admitted
in the order of the queue, so the one that the sink waits for is never kept out by those behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from penstock.buffer.consuming.fetch import ConsumedBatch
from penstock.buffer.format.manifest import Descriptor
from penstock.errors import PenstockError

__all__ = ["InFlight", "Slot"]

_BYTES_BESIDE_RECORD: Final = 12


@dataclass(slots=True, eq=False)
class Slot:
    """One batch on its way, and what its fetch found once it is over."""

    descriptor: Descriptor
    found: ConsumedBatch | PenstockError | None = None

    @property
    def size(self) -> int:
        """The records with what they need beside them: a length field and a place of where each starts."""
        if not isinstance(self.found, ConsumedBatch):
            return 0
        return self.found.records.nbytes + _BYTES_BESIDE_RECORD * len(self.found.records)


class InFlight:
    """Slots in the order of the queue. For one task that admits, several that fetch, and one that takes."""

    def __init__(self, fetches_max: int, bytes_max: int) -> None:
        self._fetches_max = fetches_max
        self._bytes_max = bytes_max
        self._slots: deque[Slot] = deque()
        self._moved = asyncio.Condition()
        self._fetching = 0
        self._fetched_bytes = 0
        self._largest_bytes: int | None = None
        self._ended = False

    @property
    def held_bytes(self) -> int:
        """Bytes that are here, and those expected."""
        return self._fetched_bytes + self._fetching * self._expected_bytes

    async def admit(self, descriptor: Descriptor) -> Slot:
        """Wait for room, then take it."""
        async with self._moved:
            await self._moved.wait_for(self._has_room)
            slot = Slot(descriptor)
            self._slots.append(slot)
            self._fetching += 1
            return slot

    def withdraw(self, slot: Slot) -> None:
        """Give the room back that was taken last."""
        last = self._slots.pop()
        assert last is slot, "only the last one can be withdrawn"
        self._fetching -= 1

    async def fetched(self, slot: Slot, found: ConsumedBatch | PenstockError) -> None:
        async with self._moved:
            slot.found = found
            self._fetching -= 1
            self._fetched_bytes += slot.size
            if isinstance(found, ConsumedBatch):
                self._largest_bytes = max(self._largest_bytes or 0, slot.size)
            self._moved.notify_all()

    async def ready(self) -> list[Slot]:
        """The slots at the head whose fetches are over, at least one; none once everything was taken."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._is_head_over() or (self._ended and not self._slots))
            return list(takewhile(lambda slot: slot.found is not None, self._slots))

    async def release(self, count: int) -> None:
        """These slots at the head are done with."""
        async with self._moved:
            for _ in range(count):
                self._fetched_bytes -= self._slots.popleft().size
            self._moved.notify_all()

    async def end(self) -> None:
        """Nothing more will be admitted."""
        async with self._moved:
            self._ended = True
            self._moved.notify_all()

    def _has_room(self) -> bool:
        if not self._slots:
            return True
        fits = self.held_bytes + self._expected_bytes <= self._bytes_max
        return self._fetching < self._fetches_max and fits

    @property
    def _expected_bytes(self) -> int:
        """What one more fetch is taken to bring."""
        return self._bytes_max if self._largest_bytes is None else self._largest_bytes

    def _is_head_over(self) -> bool:
        return bool(self._slots) and self._slots[0].found is not None
