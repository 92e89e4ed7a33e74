"""Reads a document that was put aside while rounds go on without it: one at a time, in a thread of its own.

A reading follows from its request alone, so it makes no difference when it was made. The round that the document has to
itself takes its reading from here; a repetition after a crash finds none here, and reads.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from penstock.indexing.stages.port import Stages
from penstock.indexing.stages.readings import DocumentReading, ReadRequest

__all__ = ["ReadingBeside"]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A document that is being read, or was and is not taken yet."""

    work: Hashable
    reading: Future[DocumentReading] = field(default_factory=Future)


class ReadingBeside:
    """Called by one thread at a time."""

    def __init__(self, stages: Stages) -> None:
        """`stages` are for this alone: one call at a time."""
        self._stages = stages
        self._begun: _Begun | None = None

    @property
    def beside_others(self) -> bool:
        """Whether reading here takes nothing from a round of others."""
        return self._stages.answers_beside

    def begin(self, work: Hashable, request: ReadRequest) -> None:
        """Read a document, unless one is being read. What was read of another and never taken is forgotten."""
        begun = self._begun
        if begun is not None and (begun.work == work or not begun.reading.done()):
            return
        self._begun = begun = _Begun(work)
        # Nobody waits for its end with that of the process: what it reads is read again.
        threading.Thread(target=self._read, args=(begun, request), name="penstock-beside", daemon=True).start()

    def is_reading(self, work: Hashable, seconds: float = 0) -> bool:
        """Whether this document is still being read after so long."""
        begun = self._begun
        if begun is None or begun.work != work:
            return False
        return not wait([begun.reading], seconds).done

    def take(self, work: Hashable) -> DocumentReading | None:
        """What was read of a document; None if it was not, or is not yet. What its reading raised is raised here."""
        begun = self._begun
        if begun is None or begun.work != work or not begun.reading.done():
            return None
        self._begun = None
        return begun.reading.result()

    def cancel(self) -> None:
        """Give up what is being read, from any thread."""
        begun = self._begun
        if begun is not None and not begun.reading.done():
            self._stages.cancel()

    def _read(self, begun: _Begun, request: ReadRequest) -> None:
        try:
            (reading,) = self._stages.read([request])
        except BaseException as error:  # noqa: BLE001 - whoever takes the reading is told, whatever it was
            begun.reading.set_exception(error)
        else:
            begun.reading.set_result(reading)
