"""Readings made in a thread of their own while rounds go on, one request for them at a time.

A reading follows from its request alone, so it makes no difference when it was made; a repetition after a crash finds
nothing here, and reads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TypeAlias

from penstock.indexing.stages.port import Stages
from penstock.indexing.stages.readings import DocumentReading, ReadRequest

__all__ = ["ReadingThread", "Readings"]

# One for each request, or what their reading raised.
Readings: TypeAlias = "Future[Sequence[DocumentReading]]"


class ReadingThread:
    """Called by one thread at a time, but for `cancel`."""

    def __init__(self, stages: Stages, name: str) -> None:
        """`stages` are for this alone: one call at a time."""
        self._stages = stages
        self._name = name
        self._begun: Readings | None = None

    @property
    def beside_others(self) -> bool:
        """Whether reading here takes nothing from a round of others."""
        return self._stages.answers_beside

    @property
    def is_reading(self) -> bool:
        return self._begun is not None and not self._begun.done()

    def begin(self, requests: Sequence[ReadRequest]) -> Readings:
        """Read documents; nothing else may be under way."""
        begun: Readings = Future()
        self._begun = begun
        # Nobody waits for its end with that of the process: what it reads is read again.
        threading.Thread(target=self._read, args=(begun, requests), name=self._name, daemon=True).start()
        return begun

    def cancel(self) -> None:
        """Give up what is being read, from any thread."""
        if self.is_reading:
            self._stages.cancel()

    def _read(self, begun: Readings, requests: Sequence[ReadRequest]) -> None:
        try:
            readings = self._stages.read(requests)
        except BaseException as error:  # noqa: BLE001 - whoever takes the readings is told, whatever it was
            begun.set_exception(error)
        else:
            begun.set_result(readings)
