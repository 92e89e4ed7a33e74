"""A write of more rows than the buffer holds, as several writes that fit. Pure.

Only a write of rows alone is split: writing rows again is the same write, so whoever repeats a write whose
pieces were taken in part ends with what one write would have left. The source position goes with the last piece
and is durable after all others. Operations that were gathered to be flushed together are never taken apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.vector.operations import Change, Upsert, Version

__all__ = ["pieces_of"]


def pieces_of(change: Change, bytes_max: int) -> list[Change]:
    """Changes of at most about `bytes_max` bytes that do the same in their order; the change itself where it fits."""
    if change.size_bytes <= bytes_max or len(change.operations) != 1:
        return [change]
    ((spec, operation),) = change.operations
    if not isinstance(operation, Upsert) or len(operation.rows) < 2:
        return [change]
    pieces = [replace(change, operations=((spec, cut),)) for cut in _cuts(operation, bytes_max)]
    hidden = [replace(piece, source=None, position=None) for piece in pieces[:-1]]
    return [*hidden, pieces[-1]]


def _cuts(upsert: Upsert, bytes_max: int) -> Iterator[Upsert]:
    """Halves of halves until each fits: rows may differ in size, and a single one is never cut."""
    rows = len(upsert.rows)
    if upsert.size_bytes <= bytes_max or rows < 2:
        yield upsert
        return
    for first, last in ((0, rows // 2), (rows // 2, rows)):
        yield from _cuts(_cut(upsert, first, last), bytes_max)


def _cut(upsert: Upsert, first: int, last: int) -> Upsert:
    part = slice(first, last)
    return Upsert(
        upsert.rows.part(first, last),
        upsert.identities.take(part),
        tuple(_versions(upsert.versions, first, last)),
        None if upsert.versioned is None else upsert.versioned.take(part),
    )


def _versions(versions: tuple[tuple[Version, int], ...], first: int, last: int) -> Iterator[tuple[Version, int]]:
    """The versions that have rows between the two places, with how many of them lie there."""
    start = 0
    for version, count in versions:
        inside = min(start + count, last) - max(start, first)
        if inside > 0:
            yield version, inside
        start += count
