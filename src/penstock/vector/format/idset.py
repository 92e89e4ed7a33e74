"""A set of internal ids as one bit each: what a scan consults for every row that it passes.

Immutable for readers; a writer copies it, changes the copy and publishes that. Bit i of byte j stands for
id 8j + i, which is the order that faiss's bitmap selector reads.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.vector.arrays import Bools, Bytes, Ids

__all__ = ["BITMAP_IDS", "IdSet"]

# Ids whose bits share a block in the store.
BITMAP_IDS: Final = 1 << 20

_GROWTH_BYTES: Final = 1 << 10


class IdSet:
    """Ids below `limit`. Ids at or beyond it, and negative ones, are never members."""

    __slots__ = ("bits", "limit")

    def __init__(self, limit: int = 0, bits: Bytes | None = None) -> None:
        self.limit = limit
        self.bits: Bytes = np.zeros(-(-limit // 8), np.uint8) if bits is None else bits

    @classmethod
    def of(cls, ids: Ids, limit: int) -> IdSet:
        made = cls(limit)
        made.add(ids)
        return made

    @classmethod
    def of_mask(cls, mask: Bools) -> IdSet:
        """The ids whose place in `mask` is true."""
        return cls(len(mask), np.packbits(mask, bitorder="little"))

    def copy(self, limit: int | None = None) -> IdSet:
        """A copy that may hold ids up to a higher limit."""
        limit = self.limit if limit is None else max(limit, self.limit)
        bits = np.zeros(-(-limit // 8), np.uint8)
        bits[: len(self.bits)] = self.bits
        return IdSet(limit, bits)

    def add(self, ids: Ids) -> None:
        np.bitwise_or.at(self.bits, ids >> 3, _bit(ids))

    def discard(self, ids: Ids) -> None:
        np.bitwise_and.at(self.bits, ids >> 3, ~_bit(ids))

    def contains(self, ids: Ids) -> Bools:
        if not self.limit or not len(ids):
            return np.zeros(len(ids), np.bool_)
        known = (ids >= 0) & (ids < self.limit)
        if known.all():
            members: Bools = (self.bits[ids >> 3] & _bit(ids)).astype(np.bool_)
            return members
        found = np.zeros(len(ids), np.bool_)
        found[known] = self.contains(ids[known])
        return found

    def mask(self) -> Bools:
        """One truth value for each id below the limit."""
        return np.unpackbits(self.bits, count=self.limit, bitorder="little").astype(np.bool_)

    def ids(self, start: int = 0, end: int | None = None) -> Ids:
        """Members from `start` up to `end`, in order."""
        end = self.limit if end is None else min(end, self.limit)
        first = start // 8
        found = np.flatnonzero(np.unpackbits(self.bits[first : -(-end // 8)], bitorder="little")) + 8 * first
        return found[(found >= start) & (found < end)]

    def minus(self, other: IdSet, end: int) -> Ids:
        """Members below `end` that the other set does not have. Costs little when the two hardly differ."""
        size = min(-(-end // 8), len(self.bits))
        if not self.bits[:size].any():
            return np.empty(0, np.int64)
        theirs = np.zeros(size, np.uint8)
        theirs[: min(size, len(other.bits))] = other.bits[:size]
        differing = self.bits[:size] & ~theirs
        places = np.flatnonzero(differing)
        bits = np.unpackbits(differing[places], bitorder="little").reshape(-1, 8)
        ids = (8 * places[:, None] + np.arange(8))[bits.astype(np.bool_)]
        return ids[ids < end]

    def union(self, other: IdSet) -> IdSet:
        merged = self.copy(other.limit)
        merged.bits[: len(other.bits)] |= other.bits
        return merged

    def complement(self, limit: int) -> IdSet:
        """The ids below `limit` that are not members."""
        bits = ~self.copy(limit).bits
        if limit % 8:
            bits[limit // 8] &= (1 << limit % 8) - 1
        return IdSet(limit, bits)

    def intersection(self, other: IdSet) -> IdSet:
        size = min(len(self.bits), len(other.bits))
        return IdSet(min(self.limit, other.limit), self.bits[:size] & other.bits[:size])

    def __len__(self) -> int:
        return int(np.bitwise_count(self.bits).sum())

    def __bool__(self) -> bool:
        return bool(self.bits.any())


def _bit(ids: Ids) -> Bytes:
    bit: Bytes = np.left_shift(1, ids & 7).astype(np.uint8)
    return bit
