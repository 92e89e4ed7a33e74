"""What is asked of the reading stage, and what it answers: the same structs whichever engine runs it. Pure.

A request names some cells of one document's text, so that several tasks can read one document. A task answers with the
chunks of those cells and then one ending. What all tasks told of a document becomes its `DocumentReading`, in which
chunks have their numbers: they are given here, in the order of the text, whoever read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from penstock.documents import Chunk, ChunkingConfig, Progress, UploadNotification

__all__ = ["DocumentReading", "Ending", "Piece", "ReadOutcome", "ReadRequest", "gathered", "runs"]


class ReadOutcome(StrEnum):
    """How reading ended."""

    MORE = "more"
    END = "end"
    UNASKED = "unasked"  # its bucket answered for nobody, so that it was not asked for this one
    AWAY = "away"  # its bucket did not answer
    APART = "apart"  # it needs more time than others wait for
    RESTART = "restart"  # its text is gone, and the parsers of today would make another
    QUARANTINED = "quarantined"  # it cannot be read or parsed
    SUPERSEDED = "superseded"  # the object changed under the reader


# The worst of what the tasks of one document told: a version that is no longer there is no fault of the document.
_RANK: Final = {outcome: rank for rank, outcome in enumerate(ReadOutcome)}
_FAILED: Final = (ReadOutcome.QUARANTINED, ReadOutcome.SUPERSEDED)
_AWAY: Final = (ReadOutcome.AWAY, ReadOutcome.UNASKED, ReadOutcome.APART)


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Cells of one version of one object."""

    upload: UploadNotification
    # What is there already of the document; chunks before `next_byte_start` are not told again.
    progress: Progress
    first_cell: int
    cells: int
    chunking: ChunkingConfig
    # Known from a round before: the text is read by ranges, from the object itself or from where it was put.
    text_bytes: int | None = None
    parsed: str | None = None
    # Whether nobody waits for it: it is parsed with all that a document may take.
    apart: bool = False
    # What is still to be read of the document, as far as is known.
    bytes_left: int = 1


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the reading of one request ended, and how far it came."""

    outcome: ReadOutcome
    detail: tuple[str, ...] = ()
    next_byte_start: int = 0
    # None where a later round must parse again, because the text is kept nowhere.
    text_bytes: int | None = None
    # Of the object as it was read: what the notification named, or the one it was found with.
    version: str | None = None
    # Where the text was put, when it is a parsed one and not all of it was read; and how often it was parsed for this.
    parsed: str | None = None
    parses: int = 0
    # What the file itself is called, where its parser knows.
    title: str | None = None
    # Of a side-car file, what it says, as JSON.
    metadata: str | None = None
    # What the object's writer said of it, as JSON, where that is wanted.
    said: str | None = None


# The place of a request among those that were asked together, and a part of its answer.
Piece: TypeAlias = tuple[int, Chunk | Ending]


@dataclass(slots=True)
class DocumentReading:
    """What a round read of one document. A document that failed has no chunks: those of this round mean nothing."""

    # In the order of the text, and numbered by it.
    chunks: list[Chunk] = field(default_factory=list)
    outcome: ReadOutcome = ReadOutcome.MORE
    next_byte_start: int = 0
    text_bytes: int | None = None
    version: str | None = None
    parsed: str | None = None
    parses: int = 0
    detail: tuple[str, ...] = ()
    title: str | None = None
    metadata: str | None = None
    said: str | None = None

    @property
    def failed(self) -> bool:
        return self.outcome in _FAILED

    @property
    def away(self) -> bool:
        """Whether its bucket did not answer or was not asked as it had not, or it needs more time than there is."""
        return self.outcome in _AWAY

    @property
    def void(self) -> bool:
        """Whether nothing of what was read counts."""
        return self.failed or self.away or self.outcome is ReadOutcome.RESTART

    def end(self, ending: Ending) -> None:
        """Take in how one part of the document ended; the worst decides, and the farthest is how far it came."""
        self.outcome = max(self.outcome, ending.outcome, key=_RANK.__getitem__)
        self.next_byte_start = max(self.next_byte_start, ending.next_byte_start)
        self.text_bytes, self.version, self.parsed = ending.text_bytes, ending.version, ending.parsed
        self.parses += ending.parses
        self.title, self.metadata = ending.title or self.title, ending.metadata
        self.said = ending.said
        self.detail += ending.detail

    def number(self, seq: int) -> None:
        """Put the chunks into the order of the text and count them from `seq` on."""
        ordered = [] if self.void else sorted(self.chunks, key=lambda chunk: chunk.core_start)
        self.chunks = [msgspec.structs.replace(chunk, seq=seq + place) for place, chunk in enumerate(ordered)]


def gathered(pieces: Iterable[Piece], asked: Sequence[ReadRequest]) -> list[DocumentReading]:
    """One reading a request, from pieces in any order; a request that was split has one ending a part."""
    readings = [DocumentReading() for _ in asked]
    endings: list[list[Ending]] = [[] for _ in asked]
    for place, piece in pieces:
        if isinstance(piece, Ending):
            endings[place].append(piece)
        else:
            readings[place].chunks.append(piece)
    for request, reading, parts in zip(asked, readings, endings, strict=True):
        for part in sorted(parts, key=lambda part: part.next_byte_start):
            reading.end(part)
        reading.number(request.progress.next_seq)
    return readings


def runs(request: ReadRequest, tasks: int) -> Iterator[ReadRequest]:
    """A request in runs of cells, one a task; a document that nobody has looked into yet is one run."""
    cells = request.cells if request.text_bytes is None else -(-request.cells // tasks)
    end = request.first_cell + request.cells
    for start in range(request.first_cell, end, cells):
        yield msgspec.structs.replace(request, first_cell=start, cells=min(cells, end - start))
