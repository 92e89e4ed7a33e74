"""Reads a document that was put aside while rounds go on without it, one at a time.

The round that the document has to itself takes its reading from here.
"""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import wait
from dataclasses import dataclass

from penstock.indexing.job.reading_thread import Readings, ReadingThread
from penstock.indexing.stages.port import Stages
from penstock.indexing.stages.readings import DocumentReading, ReadRequest

__all__ = ["ReadingBeside"]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A document that is being read, or was and is not taken yet."""

    work: Hashable
    readings: Readings


class ReadingBeside:
    """Called by one thread at a time."""

    def __init__(self, stages: Stages) -> None:
        """`stages` are for this alone: one call at a time."""
        self._thread = ReadingThread(stages, "penstock-beside")
        self._begun: _Begun | None = None

    @property
    def beside_others(self) -> bool:
        """Whether reading here takes nothing from a round of others."""
        return self._thread.beside_others

    def begin(self, work: Hashable, request: ReadRequest) -> None:
        """Read a document, unless one is being read. What was read of another and never taken is forgotten."""
        begun = self._begun
        if begun is not None and (begun.work == work or self._thread.is_reading):
            return
        self._begun = _Begun(work, self._thread.begin([request]))

    def is_reading(self, work: Hashable, seconds: float = 0) -> bool:
        """Whether this document is still being read after so long."""
        begun = self._begun
        if begun is None or begun.work != work:
            return False
        return not wait([begun.readings], seconds).done

    def take(self, work: Hashable) -> DocumentReading | None:
        """What was read of a document; None if it was not, or is not yet. What its reading raised is raised here."""
        begun = self._begun
        if begun is None or begun.work != work or not begun.readings.done():
            return None
        self._begun = None
        (reading,) = begun.readings.result()
        return reading

    def cancel(self) -> None:
        """Give up what is being read, from any thread."""
        self._thread.cancel()
