"""Reads the next round while the one before it is embedded and written.

What turns out not to be of the next round, because somebody came first or a newer version is there, is forgotten.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.indexing.job.reading_thread import Readings, ReadingThread
from penstock.indexing.stages.port import Stages
from penstock.indexing.stages.readings import DocumentReading, ReadRequest

__all__ = ["AHEAD_BYTES_MIN", "ReadingAhead"]

# Less is read as soon as a thread has begun.
AHEAD_BYTES_MIN: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Begun:
    """Documents that are being read, or were and are not taken yet."""

    works: Sequence[Hashable]
    readings: Readings


class ReadingAhead:
    """Called by one thread at a time, but for `cancel`."""

    def __init__(self, stages: Stages) -> None:
        """`stages` are for this alone: one call at a time."""
        self._thread = ReadingThread(stages, "penstock-ahead")
        self._begun: _Begun | None = None

    @property
    def beside_others(self) -> bool:
        """Whether reading here takes nothing from the round before."""
        return self._thread.beside_others

    def begin(self, asked: Mapping[Hashable, ReadRequest]) -> None:
        """Read documents, told apart by their work, unless others are still being read."""
        if not self._thread.is_reading:
            self._begun = _Begun(list(asked), self._thread.begin(list(asked.values())))

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
