"""What an open file wrote, piece by piece, and what a power loss leaves of it.

Pure. A drive writes a sector whole or not at all, and sectors in any order: of each unsynced piece any subset of
its sectors survives, whatever became of earlier pieces. Lost sectors of a grown file read as zeros or as rubbish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.testing.entropy import SeededEntropy

__all__ = ["SECTOR_BYTES", "Piece", "after_power_loss", "spliced"]

# What a drive writes whole or not at all.
SECTOR_BYTES: Final = 512


@dataclass(slots=True, eq=False)
class Piece:
    """`data` written at `offset`; without data, a change of the length to `offset`."""

    offset: int
    data: bytes | None
    # A power loss cannot take it any more.
    settled: bool = False
    # A sync of it failed: the system takes it for written, and no later sync writes it.
    poisoned: bool = False


def spliced(body: bytes, piece: Piece) -> bytes:
    """The file's bytes after this piece."""
    if piece.data is None:
        return body[: piece.offset].ljust(piece.offset, b"\0")
    return body[: piece.offset].ljust(piece.offset, b"\0") + piece.data + body[piece.offset + len(piece.data) :]


def after_power_loss(synced: bytes, pieces: Sequence[Piece], entropy: SeededEntropy) -> bytes:
    """One of the states in which the power may leave a file: settled pieces whole, of the others any sectors."""
    is_rubbish = entropy.chance(0.5)
    body = synced
    for piece in pieces:
        if piece.settled:
            body = spliced(body, piece)
        elif piece.data is None:
            body = spliced(body, piece) if entropy.chance(0.5) else body
        else:
            body = _torn(body, piece.offset, piece.data, is_rubbish, entropy)
    return body


def _torn(body: bytes, offset: int, data: bytes, is_rubbish: bool, entropy: SeededEntropy) -> bytes:
    for start, part in _sectors(offset, data):
        if entropy.chance(0.5):
            body = spliced(body, Piece(start, part))
        elif is_rubbish and start >= len(body):
            body = spliced(body, Piece(start, entropy.token(len(part))))
    return body


def _sectors(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
        yield offset + start, data[start:end]
        start = end
