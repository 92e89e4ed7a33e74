"""Cells finish in any order; their chunks leave in the order of the document, numbered 0 to N.

`CellRelease` is the per-document state that makes parallel reading look sequential: it holds finished cells until the
ones before them are there, and knows at every moment where a restart would go on. Its state is small once cells are
released, and serialisable through `progress`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.documents.chunker import CellChunks, Chunk, Progress
from penstock.errors import AtCapacity

__all__ = ["CellRelease"]

# Cells read ahead of the first missing one: with cells of 1 MiB, some 64 MiB of text and chunks.
CELLS_HELD_MAX: Final = 64


class CellRelease:
    """Numbers the chunks of one document. A cell offered twice, or before the start, releases nothing."""

    def __init__(self, first_cell: int = 0, next_seq: int = 0, *, cells_held_max: int = CELLS_HELD_MAX) -> None:
        self._next_cell = first_cell
        self._next_seq = next_seq
        self._next_byte_start = 0
        self._cells_held_max = cells_held_max
        self._held: dict[int, CellChunks] = {}

    @property
    def next_cell(self) -> int:
        return self._next_cell

    @property
    def progress(self) -> Progress:
        """Where a restart goes on: the first anchor of the next cell."""
        return Progress(self._next_seq, self._next_byte_start)

    def offer(self, cell: CellChunks) -> list[Chunk]:
        """Take a finished cell and give all chunks that are now in order; `AtCapacity` hands the cell back."""
        if cell.cell < self._next_cell or cell.cell in self._held:
            return []
        if cell.cell != self._next_cell and len(self._held) >= self._cells_held_max:
            raise AtCapacity(
                f"cell {cell.cell} is too far ahead",
                f"{len(self._held)} cells already wait for cell {self._next_cell}",
                "offer it again once that cell is there",
                rejected=cell,
            )
        self._held[cell.cell] = cell
        return self._released()

    def _released(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        while cell := self._held.pop(self._next_cell, None):
            chunks += [msgspec.structs.replace(chunk, seq=self._next_seq + chunk.seq) for chunk in cell.chunks]
            self._next_cell += 1
            self._next_seq += len(cell.chunks)
            self._next_byte_start = cell.end
        return chunks
