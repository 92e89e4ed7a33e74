"""Reads the next round while the one before it is embedded and written, in a thread of its own.

A reading follows from its request alone, so it makes no difference when it was made. What turns out not to be of the
next round, because somebody came first or a newer version is there, is forgotten; a repetition after a crash finds
nothing here, and reads.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.indexing.stages.port import Stages
from penstock.indexing.stages.readings import DocumentReading, ReadRequest

__all__ = ["AHEAD_BYTES_MIN", "ReadingAhead"]

# Less is read as soon as a thread has begun.
AHEAD_BYTES_MIN: Final = 1 << 20

_Read: TypeAlias = dict[Hashable, DocumentReading]


@dataclass(frozen=True, slots=True)
class _Begun:
    """Documents that are being read, or were and are not taken yet."""

    asked: Mapping[Hashable, ReadRequest]
    read: Future[_Read] = field(default_factory=Future)


class ReadingAhead:
    """Called by one thread at a time, but for `cancel`."""

    def __init__(self, stages: Stages) -> None:
        """`stages` are for this alone: one call at a time."""
        self._stages = stages
        self._begun: _Begun | None = None

    @property
    def beside_others(self) -> bool:
        """Whether reading here takes nothing from the round before."""
        return self._stages.answers_beside

    def begin(self, asked: Mapping[Hashable, ReadRequest]) -> None:
        """Read documents, told apart by their work, unless others are still being read."""
        if self._begun is not None and not self._begun.read.done():
            return
        self._begun = begun = _Begun(asked)
        # Nobody waits for its end with that of the process: what it reads is read again.
        threading.Thread(target=self._read, args=(begun,), name="penstock-ahead", daemon=True).start()

    def take(self, works: Sequence[Hashable]) -> _Read:
        """What was read of some works, once it is; a bucket that did not answer then is asked again by the round.

        Nobody waits for the reading of others.
        """
        begun = self._begun
        if begun is None or not any(work in begun.asked for work in works):
            return {}
        read = begun.read.result()
        self._begun = None
        return {work: read[work] for work in works if work in read and not read[work].away}

    def cancel(self) -> None:
        """Give up what is being read, from any thread."""
        begun = self._begun
        if begun is not None and not begun.read.done():
            self._stages.cancel()

    def _read(self, begun: _Begun) -> None:
        read: _Read = {}
        # Whatever it was: the round reads for itself then, and is told.
        with suppress(BaseException):
            read = dict(zip(begun.asked, self._stages.read(list(begun.asked.values())), strict=True))
        begun.read.set_result(read)
