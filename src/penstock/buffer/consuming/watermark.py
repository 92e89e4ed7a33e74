"""The watermark of a pipelined consumer: fetches complete in any order, acknowledgements only in one. Pure."""

from __future__ import annotations

from collections import deque

from penstock.buffer.consuming.cursor import whole_number
from penstock.errors import InvalidInput

__all__ = ["Watermark"]


class Watermark:
    """Tracks which sequences are processed; `value` is the last with none unprocessed before it.

    ```python
    watermark.begin(descriptor.sequence)        # in the order of next_descriptors
    ...
    if watermark.complete(descriptor.sequence): # in any order, once the sink has it durably
        await consumer.ack_through(watermark.value)
    ```
    A sequence that is never completed holds the watermark for ever, which is what it is for.
    """

    def __init__(self) -> None:
        self._begun: deque[int] = deque()
        self._unfinished: set[int] = set()
        self.value: int | None = None

    def __len__(self) -> int:
        """Sequences begun and not yet below the watermark."""
        return len(self._begun)

    def begin(self, sequence: int) -> None:
        sequence = whole_number(sequence, "sequence cannot begin")
        if self._begun and sequence <= self._begun[-1]:
            raise InvalidInput(f"sequence {sequence} was begun out of order", f"{self._begun[-1]} was begun before it")
        self._begun.append(sequence)
        self._unfinished.add(sequence)

    def complete(self, sequence: int) -> bool:
        """Mark one as processed; whether the watermark moved."""
        sequence = whole_number(sequence, "sequence cannot be completed")
        if sequence not in self._unfinished:
            raise InvalidInput(f"sequence {sequence} cannot be completed", "it was not begun, or is already completed")
        self._unfinished.discard(sequence)
        before = self.value
        while self._begun and self._begun[0] not in self._unfinished:
            self.value = self._begun.popleft()
        return self.value != before
