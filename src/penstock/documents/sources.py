"""Where a document's bytes come from: any range, in any order, of one version that does not change.

A source of an object store reads conditionally on the version the notification named; when the object was replaced in
the meantime its reads raise `Conflict`, and the document is superseded. `BlockSource` lies over a slow source and asks
it for whole blocks, each about once, so that the chunker may ask for overlapping ranges freely.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

from penstock.errors import Conflict, InvalidInput

__all__ = ["BlockSource", "ByteSource", "BytesSource"]

# One range request: large enough that its latency is small beside its transfer.
BLOCK_BYTES: Final = 1 << 20
# A cell, the next one, and their neighbours' edges.
BLOCKS_KEPT: Final = 4


class ByteSource(Protocol):
    """One version of one text, by byte ranges."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, end: int) -> bytes:
        """Exactly the bytes `[start, end)`, which lie inside the text."""
        ...


class BytesSource:
    """A text that is already here."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]


class BlockSource:
    """Reads `beneath` in aligned blocks and keeps the last few. Not for use by several threads at once."""

    def __init__(self, beneath: ByteSource, *, block_bytes: int = BLOCK_BYTES, blocks_kept: int = BLOCKS_KEPT) -> None:
        if block_bytes < 1 or blocks_kept < 1:
            raise InvalidInput(f"cannot keep {blocks_kept} blocks of {block_bytes} bytes", "both must be positive")
        self._beneath = beneath
        self._block_bytes = block_bytes
        self._blocks_kept = blocks_kept
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    @property
    def size(self) -> int:
        return self._beneath.size

    def read(self, start: int, end: int) -> bytes:
        size = self._block_bytes
        numbers = range(start // size, max(start, end - 1) // size + 1)
        # Sliced before they are joined: most reads are far smaller than a block.
        return b"".join([self._block(n)[max(0, start - n * size) : end - n * size] for n in numbers])

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            block = self._fetch(number)
            self._blocks[number] = block
            if len(self._blocks) > self._blocks_kept:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return block

    def _fetch(self, number: int) -> bytes:
        start = number * self._block_bytes
        end = min(start + self._block_bytes, self.size)
        block = self._beneath.read(start, end)
        if len(block) != end - start:
            raise Conflict(
                f"bytes [{start}, {end}) of the document were requested, and {len(block)} arrived",
                "the object changed while it was read",
                "the notification of the new version will index it",
            )
        return block
