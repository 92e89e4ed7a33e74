"""What a producer gives back: a handle on the batch an input went into, and on what becomes of it."""

from __future__ import annotations

import asyncio
import copy

from penstock.errors import PenstockError

__all__ = ["BatchOutcome", "InputHandle"]


class InputHandle:
    """One accepted input. Waiting for it may be cancelled and repeated; the input goes its way regardless."""

    __slots__ = ("_heard", "_outcome")

    def __init__(self, outcome: BatchOutcome) -> None:
        self._outcome = outcome
        self._heard = False
        outcome.unheard += 1

    async def durable(self) -> int:
        """Wait until the batch object and its manifest entry are durable; the batch's sequence in the queue.

        `OutcomeUnknown`: it may have been enqueued, or may not. Any other error: it was not.
        """
        try:
            return await self._outcome.wait()
        except PenstockError:
            if not self._heard:
                self._heard = True
                self._outcome.unheard -= 1
            raise

    @property
    def done(self) -> bool:
        """Whether `durable` would answer at once, be it with an error."""
        return self._outcome.done


class BatchOutcome:
    """What becomes of one batch, told to everyone whose input is in it."""

    __slots__ = ("_error", "_sequence", "_told", "unheard")

    def __init__(self) -> None:
        # Handles that have not raised its failure, if there is one.
        self.unheard = 0
        self._told = asyncio.Event()
        self._sequence = -1
        self._error: PenstockError | None = None

    @property
    def done(self) -> bool:
        return self._told.is_set()

    @property
    def error(self) -> PenstockError | None:
        return self._error

    def enqueued(self, sequence: int) -> None:
        self._sequence = sequence
        self._told.set()

    def failed(self, error: PenstockError) -> None:
        self._error = error
        self._told.set()

    async def told(self) -> None:
        """Wait until it is known, without raising."""
        await self._told.wait()

    async def wait(self) -> int:
        await self._told.wait()
        if self._error is not None:
            # A copy for each: an error that many tasks raise would gather the tracebacks of all of them.
            raise copy.copy(self._error) from self._error
        return self._sequence
