"""Anchors: places in a document that every reader finds alike, so that cells can be chunked alone and in any order.

A cell k owns the bytes [kG, (k+1)G) of the document, where G is the grid of the configuration. Its anchors are chosen
from what stands there, not from where reading began: starts of paragraphs whose next 32 bytes hash to one in 256;
without any, starts of lines whose hash is one in 1,024; without those, the first paragraph, line, word or character
near the cell's start. So an insertion moves few of them, and every cell has at least one. The rule is drawn in
`docs/rooms/documents.md`; a change to it changes every chunk, and must change `RULE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.documents.boundaries import is_whole, next_whole
from penstock.documents.sources import ByteSource

__all__ = ["CELL_BYTES", "RULE", "cell_anchors", "cell_count", "first_anchor"]

RULE: Final = 2

# Large enough that a cell's forced anchor touches one chunk in three hundred, small enough to read in one request.
CELL_BYTES: Final = 1 << 20

_HASH_BYTES: Final = 32
_PARAGRAPH_ODDS: Final = 256
_LINE_ODDS: Final = 1024
# A paragraph start is known by up to three bytes before it: LF, CR, LF.
_CONTEXT_BYTES: Final = 3
# Repeated paragraphs hash alike; without a distance between anchors each could become a chunk of its own.
_DISTANCE_BYTES: Final = 16 << 10
# How far a cell without content-defined anchors looks for a good place.
_NEAR_BYTES: Final = 16 << 10
# The first anchor of a cell usually comes early: look at this much before asking for the whole cell.
_PEEK_BYTES: Final = 128 << 10

# Odd 64-bit constants without structure (fractional parts of square roots of primes).
_FACTORS: Final = np.array(
    [0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1], dtype=np.uint64
)
_FINAL_FACTOR: Final = np.uint64(0x510E527FADE682D1)


def cell_count(size: int, cell_bytes: int = CELL_BYTES) -> int:
    """The number of cells of a document of `size` bytes; 0 for an empty one."""
    return -(-size // cell_bytes)


def cell_anchors(source: ByteSource, cell: int, cell_bytes: int = CELL_BYTES) -> tuple[int, ...]:
    """The anchors of one cell, in order; never empty for a cell of the document."""
    start, end = cell * cell_bytes, min((cell + 1) * cell_bytes, source.size)
    if cell == 0 and end <= _DISTANCE_BYTES:
        # Too close to the start, all of them: most documents are so small, and need not be looked through.
        return (0,)
    view = _CellView(source, start, end)
    found = view.hashed_paragraphs() or view.hashed_lines()
    if cell == 0:
        found = [0, *(anchor for anchor in found if anchor > 0)]
    return tuple(_spaced(found)) or (view.near_anchor(),)


def first_anchor(source: ByteSource, cell: int, cell_bytes: int = CELL_BYTES) -> int:
    """The first anchor of a cell, or the document's end past the last cell; reads a whole cell only if it must."""
    start, end = cell * cell_bytes, min((cell + 1) * cell_bytes, source.size)
    if start >= source.size:
        return source.size
    if cell == 0:
        return 0
    early = _CellView(source, start, min(end, start + _PEEK_BYTES)).hashed_paragraphs()
    return early[0] if early else cell_anchors(source, cell, cell_bytes)[0]


def _spaced(anchors: list[int]) -> Iterator[int]:
    last = -_DISTANCE_BYTES
    for anchor in anchors:
        if anchor - last >= _DISTANCE_BYTES:
            last = anchor
            yield anchor


class _CellView:
    """The bytes of a cell with what the rule sees around them; offsets into it are shifted by `base`."""

    def __init__(self, source: ByteSource, start: int, end: int) -> None:
        self._start, self._end = start, end
        context = min(_CONTEXT_BYTES, start)
        self._base = start - context
        self._data = source.read(self._base, min(end + _HASH_BYTES, source.size))
        # Zeros stand for what is not there: before the document, and in the last hashes of it.
        self._padding = _CONTEXT_BYTES
        padded = bytes(_CONTEXT_BYTES) + self._data + bytes(_HASH_BYTES)
        self._bytes = np.frombuffer(padded, dtype=np.uint8)

    def hashed_paragraphs(self) -> list[int]:
        return self._hashed(self._paragraphs(), _PARAGRAPH_ODDS)

    def hashed_lines(self) -> list[int]:
        return self._hashed(self._lines(), _LINE_ODDS)

    def near_anchor(self) -> int:
        """The first paragraph, line or word close to the cell's start, or its first whole character."""
        limit = min(self._end, self._start + _NEAR_BYTES)
        for places in (self._paragraphs(), self._lines(), self._words(limit)):
            near = places[places < limit - self._base + self._padding] - self._padding
            for place in near.tolist():
                if is_whole(self._data, place):
                    return self._base + int(place)
        return self._base + next_whole(self._data, self._start - self._base, limit - self._base)

    def _lines(self) -> npt.NDArray[np.intp]:
        """Places, in the padded bytes, after a line break and before something that is none."""
        breaks = np.flatnonzero(self._bytes[: self._limit] == 0x0A) + 1
        following = self._bytes[breaks]
        inside = (breaks >= self._first) & (breaks < self._limit)
        lines: npt.NDArray[np.intp] = breaks[inside & (following != 0x0A) & (following != 0x0D)]
        return lines

    def _paragraphs(self) -> npt.NDArray[np.intp]:
        lines = self._lines()
        before = self._bytes[lines - 2]
        blank = (before == 0x0A) | ((before == 0x0D) & (self._bytes[lines - 3] == 0x0A))
        paragraphs: npt.NDArray[np.intp] = lines[blank]
        return paragraphs

    def _words(self, limit: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self._bytes[self._first : limit - self._base + self._padding] == 0x20) + self._first

    def _hashed(self, places: npt.NDArray[np.intp], odds: int) -> list[int]:
        if not places.size:
            return []
        windows = np.lib.stride_tricks.sliding_window_view(self._bytes, _HASH_BYTES)[places]
        words = np.ascontiguousarray(windows).view("<u8") * _FACTORS
        mixed = np.bitwise_xor.reduce(words ^ (words >> np.uint64(29)), axis=1) * _FINAL_FACTOR
        chosen = places[(mixed >> np.uint64(40)) % np.uint64(odds) == 0] - self._padding
        return [self._base + int(place) for place in chosen if is_whole(self._data, int(place))]

    @property
    def _first(self) -> int:
        return self._start - self._base + self._padding

    @property
    def _limit(self) -> int:
        return self._end - self._base + self._padding
