"""What a stream has seen of the queue and not yet acknowledged, and how much of it the next micro-batch takes. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from penstock.buffer import Descriptor
from penstock.errors import NotFound

__all__ = ["BatchIntake"]


class BatchIntake:
    """Descriptors in the order of their sequences. Sequences have no gaps in the queue, but set-aside ones leave some."""

    def __init__(self) -> None:
        self._sequences: list[int] = []
        self._descriptors: list[Descriptor] = []

    @property
    def first(self) -> int | None:
        return self._sequences[0] if self._sequences else None

    @property
    def end(self) -> int | None:
        """Behind the last one seen."""
        return self._sequences[-1] + 1 if self._sequences else None

    def add(self, descriptors: Sequence[Descriptor]) -> None:
        self._sequences.extend(descriptor.sequence for descriptor in descriptors)
        self._descriptors.extend(descriptors)

    def holds(self, sequence: int) -> bool:
        """Whether this one was seen and is not acknowledged yet."""
        index = bisect_left(self._sequences, sequence)
        return index < len(self._sequences) and self._sequences[index] == sequence

    def after(self, start: int, batches: int | None) -> list[Descriptor]:
        """From `start` on, at most `batches`."""
        index = bisect_left(self._sequences, start)
        return self._descriptors[index : None if batches is None else index + batches]

    def end_of(self, start: int, batches: int | None, bytes_max: int | None, sizes: Mapping[int, int]) -> int:
        """Where a micro-batch from `start` ends under both bounds. One batch always goes, however large."""
        end, total = start, 0
        for descriptor in self.after(start, batches):
            total += sizes.get(descriptor.sequence, 0)
            if bytes_max is not None and total > bytes_max and end > start:
                break
            end = descriptor.sequence + 1
        return end

    def between(self, start: int, end: int, *, whole: bool = True) -> list[Descriptor]:
        """The batches of a micro-batch; `NotFound` when the queue no longer has them all and `whole` asks for that."""
        low, high = bisect_left(self._sequences, start), bisect_left(self._sequences, end)
        if (
            whole
            and start < end
            and (high == low or self._sequences[high - 1] != end - 1 or self._sequences[low] != start)
        ):
            raise NotFound(
                f"batches {start} to {end - 1} are not all in the queue",
                "the checkpoint is older than what was acknowledged, or belongs to another queue",
                "use the checkpoint this queue was last read with, or start with a new one",
            )
        return self._descriptors[low:high]

    def forget_through(self, sequence: int) -> None:
        index = bisect_left(self._sequences, sequence + 1)
        del self._sequences[:index], self._descriptors[:index]
