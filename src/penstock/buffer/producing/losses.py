"""What failed and was not told to anybody yet, so that whoever ignores handles learns of it with the next flush.

A failure counts as told once every handle of its batch has raised it, or a flush or close has. Pure but
for the outcomes it is given.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Final

from penstock.buffer.producing.handle import BatchOutcome
from penstock.errors import PenstockError

__all__ = ["Losses"]

# Failures that are kept apart. Behind these, only their number is known; one that never flushes must not fill memory.
_KEPT_MAX: Final = 1024


class Losses:
    """The failed batches of one producer, since they were last told of."""

    def __init__(self) -> None:
        self._kept: list[BatchOutcome] = []
        # How many more there were, and the first of them.
        self._more = 0
        self._next: BatchOutcome | None = None

    def add(self, outcome: BatchOutcome) -> None:
        """Take note of a batch that failed."""
        if len(self._kept) >= _KEPT_MAX:
            self._kept = [known for known in self._kept if known.unheard]
        if len(self._kept) < _KEPT_MAX:
            self._kept.append(outcome)
        else:
            self._more += 1
            self._next = self._next or outcome

    def take(self, awaited: Collection[BatchOutcome]) -> PenstockError | None:
        """The first failure to raise now: of those `awaited`, heard of or not, and of all that nobody heard of.

        After this all of them count as told.
        """
        missed = [outcome for outcome in self._kept if outcome.unheard and outcome not in awaited]
        own = [outcome for outcome in awaited if outcome.error is not None]
        count, first = len(missed) + len(own) + self._more, next(iter((*missed, *own)), self._next)
        self._kept, self._more, self._next = [], 0, None
        if first is None or first.error is None:
            return None
        error = copy.copy(first.error)
        error.__cause__ = first.error
        if count > 1:
            error.add_note(f"{count} batches failed since the last flush; this is the first")
        return error
