"""The chunker: a list of chunks that is a pure function of the bytes and the configuration.

A document is cut at anchors (`penstock.documents.anchors`) into segments, and each segment greedily into chunks, so
that cells can be read with any range size, on any machine, in any order, again after a crash, and give the same
chunks. The cores of the chunks cover the text without a gap; before its core a chunk repeats some tokens of what came
before, as context. No chunk has more than `max_tokens` tokens. Bytes that are not UTF-8 become one question mark
each, and are counted; nothing else about the text changes.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from penstock.documents.anchors import CELL_BYTES, RULE, cell_anchors, cell_count, first_anchor
from penstock.documents.boundaries import best_cut, code_point, context_start, previous_whole
from penstock.documents.sources import BlockSource, ByteSource, BytesSource
from penstock.documents.tokens import Ruler, TokenCounter, token_counter
from penstock.errors import InvalidInput

__all__ = ["START", "CellChunks", "Chunk", "Chunker", "ChunkingConfig", "Progress"]

# Overlap is looked for in so many bytes a token before the core: English has four, a run of blanks dozens.
_LOOKBACK_BYTES_PER_TOKEN: Final = 8
# A chunk ends between this part of its target and the target, at the best place there.
_WINDOW_PERCENT: Final = 50
_REPLACEMENT: Final = "penstock-question-mark"


@dataclass(frozen=True, slots=True)
class ChunkingConfig:
    """How text is cut into chunks. `target_tokens` and `max_tokens` count the whole chunk, its overlap included."""

    # Target chunk size, in tokens.
    target_tokens: int = 800
    # Maximum chunk size, in tokens.
    max_tokens: int = 1200
    # Overlap with the text before a chunk, in tokens.
    overlap_tokens: int = 100
    # Token counter: exact (`cl100k`), or an `estimate`.
    counter: str = "cl100k"
    # Size of one unit of reading, in bytes of text.
    cell_bytes: int = CELL_BYTES

    def __post_init__(self) -> None:
        if not 0 <= self.overlap_tokens < self.target_tokens:
            self._refuse("overlap_tokens", "it must be at least 0 and less than target_tokens")
        if self.max_tokens < self.target_tokens + self.overlap_tokens:
            self._refuse("max_tokens", "it must hold a target and an overlap")
        if self.core_tokens < 8:
            self._refuse("target_tokens", "it must leave at least 8 tokens beside the overlap")
        if self.cell_bytes < 1024:
            self._refuse("cell_bytes", "it must be at least 1024")

    @property
    def core_tokens(self) -> int:
        """How many tokens a chunk brings that the one before it did not have."""
        return self.target_tokens - self.overlap_tokens

    @property
    def lookback_bytes(self) -> int:
        return self.overlap_tokens * _LOOKBACK_BYTES_PER_TOKEN

    @property
    def fingerprint(self) -> str:
        """Changes whenever the chunks of some text change: a new one means a reindex."""
        return f"{RULE}/{self.counter}/{self.target_tokens}/{self.max_tokens}/{self.overlap_tokens}/{self.cell_bytes}"

    def _refuse(self, field: str, why: str) -> None:
        raise InvalidInput(f"chunking with {field}={getattr(self, field)} is not possible", why)


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A piece of a document. `text` is its bytes `[start, end)`; those before `core_start` are overlap."""

    seq: int
    start: int
    core_start: int
    end: int
    tokens: int
    text: str


class Progress(msgspec.Struct, frozen=True):
    """How far a document has been chunked: what a crash must not lose. Any chunk's end is a place to resume."""

    next_seq: int = 0
    next_byte_start: int = 0


START: Final = Progress()


class CellChunks(msgspec.Struct, frozen=True):
    """The chunks of one cell, numbered from zero: whoever knows the cells before it adds what they had."""

    cell: int
    start: int
    end: int
    chunks: tuple[Chunk, ...]
    replaced_bytes: int


class Chunker:
    """Chunks documents by cells, or from one end to the other. Stateless: one serves any number of documents."""

    def __init__(self, config: ChunkingConfig | None = None) -> None:
        self.config = config or ChunkingConfig()
        self._counter: TokenCounter = token_counter(self.config.counter)

    def chunk(self, data: bytes) -> list[Chunk]:
        """All chunks of a text that is already here."""
        return list(self.document(BytesSource(data)))

    def document(self, source: ByteSource, progress: Progress = START) -> Iterator[Chunk]:
        """The chunks from `progress` on, reading forward in bounded memory."""
        seq = progress.next_seq
        for cell in self.cells(source, progress):
            for chunk in cell.chunks:
                if chunk.core_start >= progress.next_byte_start:
                    yield msgspec.structs.replace(chunk, seq=seq)
                    seq += 1

    def cells(self, source: ByteSource, progress: Progress = START) -> Iterator[CellChunks]:
        """The cells from the one that holds `progress` on, in order."""
        blocks = BlockSource(source)
        first = self._cell_of(blocks, progress.next_byte_start)
        for cell in range(first, self.cell_count(source.size)):
            yield self.cell(blocks, cell)

    def cell_count(self, size: int) -> int:
        return cell_count(size, self.config.cell_bytes)

    def cell(self, source: ByteSource, cell: int) -> CellChunks:
        """The chunks whose core begins at or after this cell's first anchor and before the next cell's."""
        size = self.config.cell_bytes
        anchors = [*cell_anchors(source, cell, size), first_anchor(source, cell + 1, size)]
        chunks: list[Chunk] = []
        replaced = 0
        for start, end in pairwise(anchors):
            segment = _Segment(source, start, end, self.config, self._counter)
            replaced += segment.replaced_bytes
            chunks.extend(segment.chunks(len(chunks)))
        return CellChunks(cell, anchors[0], anchors[-1], tuple(chunks), replaced)

    def _cell_of(self, source: ByteSource, place: int) -> int:
        """The cell in whose segments `place` lies: its own, or the one before when its own begins later."""
        cell = place // self.config.cell_bytes
        if 0 < place < source.size and first_anchor(source, cell, self.config.cell_bytes) > place:
            return cell - 1
        return cell


class _Segment:
    """One stretch between anchors, with the look-back before it, encoded once."""

    def __init__(self, source: ByteSource, start: int, end: int, config: ChunkingConfig, counter: TokenCounter) -> None:
        self._config = config
        self._base = max(0, start - config.lookback_bytes)
        raw = source.read(self._base, end)
        context = _aligned(raw, start - self._base)
        raw = raw[context:]
        self._base += context
        self._first = start - self._base
        self.replaced_bytes = 0
        self._text, self._data = self._decoded(raw)
        self._ascii = self._data.isascii()
        self._ruler: Ruler = counter.ruler(self._data, self._text)
        self._reach = _Reach.of(config, self._ruler.units_per_token)

    def chunks(self, seq: int) -> Iterator[Chunk]:
        start, end = self._first, len(self._data)
        while start < end:
            mark = self._ruler.mark(start)
            stop = self._stop(start, mark, end)
            context = self._context(start, mark)
            chunk = self._chunk(seq, context, start, stop)
            yield chunk
            seq, start = seq + 1, chunk.end - self._base

    def _decoded(self, raw: bytes) -> tuple[str, bytes]:
        try:
            return raw.decode("utf-8"), raw
        except UnicodeDecodeError:
            text = raw.decode("utf-8", _REPLACEMENT)
            data = text.encode("utf-8")
            changed = np.frombuffer(raw, np.uint8) != np.frombuffer(data, np.uint8)
            self.replaced_bytes = int(np.count_nonzero(changed[self._first :]))
            return text, data

    def _stop(self, start: int, mark: int, end: int) -> int:
        """Where the core that begins at `start` ends: at the best place near the target."""
        reach, place = self._reach, self._ruler.place
        # A rest that needs no more than a target is not cut into a chunk and a crumb.
        if place(mark + reach.rest) >= end:
            return end
        low = max(start, place(mark + reach.low))
        target = max(low + 1, place(mark + reach.target))
        high = place(mark + reach.high)
        return best_cut(self._data, low, target, high, ascii_only=self._ascii, start=start)

    def _context(self, core_start: int, mark: int) -> int:
        """Where the overlap begins: a pure function of a fixed number of bytes before the core."""
        reach = self._reach
        if not reach.overlap or not core_start:
            return core_start
        low = max(self._ruler.place(mark - reach.overlap), core_start - self._config.lookback_bytes)
        return context_start(self._data, low, core_start, ascii_only=self._ascii)

    def _chunk(self, seq: int, start: int, core_start: int, end: int) -> Chunk:
        """The chunk with that core, or with less of it: alone, a text can have more tokens than among neighbours."""
        tokens = self._ruler.count(start, end)
        budget = self._config.max_tokens
        while tokens > self._config.max_tokens:
            if start == core_start:
                budget = budget * 7 // 8
                end = self._shorter(core_start, end, budget)
            start = core_start
            tokens = self._ruler.count(start, end)
        text = self._text[start:end] if self._ascii else self._data[start:end].decode("utf-8")
        base = self._base
        return Chunk(seq, base + start, base + core_start, base + end, tokens, text)

    def _shorter(self, start: int, end: int, budget: int) -> int:
        """A place before `end`. A token limit is kept even where one character with its marks is over it."""
        reach = self._ruler.place(self._ruler.mark(start) + budget * self._ruler.units_per_token)
        place = max(start + 1, min(end - 1, reach))
        shorter = previous_whole(self._data, place, start)
        return shorter if shorter < end else code_point(self._data, place, start)


@dataclass(frozen=True, slots=True)
class _Reach:
    """The distances of the rule, in a ruler's units."""

    low: int
    target: int
    rest: int
    high: int
    overlap: int

    @classmethod
    def of(cls, config: ChunkingConfig, units: int) -> _Reach:
        core = config.core_tokens * units
        return cls(
            low=core * _WINDOW_PERCENT // 100,
            target=core,
            rest=config.target_tokens * units,
            high=(config.max_tokens - config.overlap_tokens) * units,
            overlap=config.overlap_tokens * units,
        )


def _aligned(raw: bytes, limit: int) -> int:
    """How many bytes at the start of the look-back belong to a character that began before it."""
    for place in range(min(4, limit)):
        if not 0x80 <= raw[place] < 0xC0:
            return place
    return 0


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    """One mark a byte, so that every offset stays what it was."""
    assert isinstance(error, UnicodeDecodeError)
    return "?" * (error.end - error.start), error.end


codecs.register_error(_REPLACEMENT, _question_marks)
