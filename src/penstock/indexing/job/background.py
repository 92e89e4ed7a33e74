"""Documents read in threads of their own while rounds go on: the next round, and a document that was put aside.

A reading follows from its request alone, so it makes no difference when it was made; a repetition after a crash finds
nothing here, and reads.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.indexing.stages.port import Stages
from penstock.indexing.stages.readings import DocumentReading, ReadRequest

__all__ = ["AHEAD_BYTES_MIN", "ReadingAhead", "ReadingBeside"]

# Less is read as soon as a thread has begun.
AHEAD_BYTES_MIN: Final = 1 << 20

# One for each request, or what their reading raised.
_Readings: TypeAlias = "Future[Sequence[DocumentReading]]"


class _ReadingThread:
    """Called by one thread at a time, but for `cancel`."""

    def __init__(self, stages: Stages, name: str) -> None:
        """`stages` are for this alone: one call at a time."""
        self._stages = stages
        self._name = name
        self._begun: _Readings | None = None

    @property
    def beside_others(self) -> bool:
        """Whether reading here takes nothing from a round of others."""
        return self._stages.answers_beside

    @property
    def is_reading(self) -> bool:
        return self._begun is not None and not self._begun.done()

    def begin(self, requests: Sequence[ReadRequest]) -> _Readings:
        """Read documents; nothing else may be under way."""
        begun: _Readings = Future()
        self._begun = begun
        # Nobody waits for its end with that of the process: what it reads is read again.
        threading.Thread(target=self._read, args=(begun, requests), name=self._name, daemon=True).start()
        return begun

    def cancel(self) -> None:
        """Give up what is being read, from any thread."""
        if self.is_reading:
            self._stages.cancel()

    def close(self) -> None:
        """Give up what is being read, and let go of what reads."""
        self.cancel()
        self._stages.close()

    def _read(self, begun: _Readings, requests: Sequence[ReadRequest]) -> None:
        try:
            readings = self._stages.read(requests)
        except BaseException as error:  # noqa: BLE001 - whoever takes the readings is told, whatever it was
            begun.set_exception(error)
        else:
            begun.set_result(readings)


@dataclass(frozen=True, slots=True)
class _Round:
    """Documents that are being read, or were and are not taken yet."""

    works: Sequence[Hashable]
    readings: _Readings


class ReadingAhead:
    """Reads the next round while the one before it is embedded and written.

    What turns out not to be of the next round, because somebody came first or a newer version is there, is forgotten.
    Called by one thread at a time, but for `cancel`.
    """

    def __init__(self, stages: Stages) -> None:
        """`stages` are for this alone: one call at a time."""
        self._thread = _ReadingThread(stages, "penstock-ahead")
        self._begun: _Round | None = None

    @property
    def beside_others(self) -> bool:
        """Whether reading here takes nothing from the round before."""
        return self._thread.beside_others

    def begin(self, asked: Mapping[Hashable, ReadRequest]) -> None:
        """Read documents, told apart by their work, unless others are still being read."""
        if not self._thread.is_reading:
            self._begun = _Round(list(asked), self._thread.begin(list(asked.values())))

    def take(self, works: Sequence[Hashable]) -> dict[Hashable, DocumentReading]:
        """What was read of some works, once it is; a bucket that did not answer then is asked again by the round.

        Nobody waits for the reading of others.
        """
        begun = self._begun
        if begun is None or set(begun.works).isdisjoint(works):
            return {}
        failed = begun.readings.exception() is not None
        self._begun = None
        if failed:
            # The round reads for itself then, and is told.
            return {}
        read = dict(zip(begun.works, begun.readings.result(), strict=True))
        return {work: read[work] for work in works if work in read and not read[work].away}

    def cancel(self) -> None:
        """Give up what is being read, from any thread."""
        self._thread.cancel()

    def close(self) -> None:
        """Give up what is being read, and let go of what reads."""
        self._thread.close()


@dataclass(frozen=True, slots=True)
class _Document:
    """A document that is being read, or was and is not taken yet."""

    work: Hashable
    readings: _Readings


class ReadingBeside:
    """Reads a document that was put aside while rounds go on without it, one at a time.

    The round that the document has to itself takes its reading from here. Called by one thread at a time, but for `cancel`.
    """

    def __init__(self, stages: Stages) -> None:
        """`stages` are for this alone: one call at a time."""
        self._thread = _ReadingThread(stages, "penstock-beside")
        self._begun: _Document | None = None

    @property
    def beside_others(self) -> bool:
        """Whether reading here takes nothing from a round of others."""
        return self._thread.beside_others

    def begin(self, work: Hashable, request: ReadRequest) -> None:
        """Read a document, unless one is being read. What was read of another and never taken is forgotten."""
        begun = self._begun
        if begun is not None and (begun.work == work or self._thread.is_reading):
            return
        self._begun = _Document(work, self._thread.begin([request]))

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
