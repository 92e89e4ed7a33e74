"""External ids as 128-bit hashes, and the dictionary that finds a row by them.

A visible row is known by the hash of its external id. A row of a version that is not current yet is known
by the hash of document, version and external id together, so that it never meets the row it will replace.
Two ids that share all 128 bits are not told apart: among a billion ids the odds are below one in 10^20.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.vector.arrays import Bools, Column, Cut, Ids, Indices, Words
from penstock.vector.format.idset import IdSet

__all__ = ["ABSENT", "DictionaryBlock", "Identities", "identities_of", "identities_of_versions", "identity_of_text"]

# What the dictionary says of an id that it does not know, or that was taken out.
ABSENT: Final = -1

_COUNT: Final = struct.Struct("<Q")
_LENGTH: Final = struct.Struct("<I")
_VISIBLE: Final = b"\x00"
_VERSIONED: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class Identities:
    """Hashes of external ids: the high and the low word of each."""

    high: Words
    low: Words

    def __len__(self) -> int:
        return len(self.high)

    def take(self, rows: Cut) -> Identities:
        return Identities(self.high[rows], self.low[rows])

    def unique(self) -> tuple[Identities, Indices]:
        """Each identity once, in order, and for each row of this the place of its identity there."""
        order = np.lexsort((self.low, self.high))
        ordered = self.take(order)
        fresh = ordered.first_of_each()
        places = np.empty(len(self), np.int64)
        places[order] = np.cumsum(fresh) - 1
        return ordered.take(fresh), places

    def first_of_each(self) -> Bools:
        """In an ordered sequence, where an identity differs from the one before."""
        fresh = np.ones(len(self), np.bool_)
        fresh[1:] = (self.high[1:] != self.high[:-1]) | (self.low[1:] != self.low[:-1])
        return fresh

    @classmethod
    def concatenate(cls, parts: Sequence[Identities]) -> Identities:
        if not parts:
            return cls(np.empty(0, np.uint64), np.empty(0, np.uint64))
        return cls(np.concatenate([part.high for part in parts]), np.concatenate([part.low for part in parts]))


def identities_of(names: Column, document: str | None = None, version: str | None = None) -> Identities:
    """Identities of visible rows, or of rows of one version of a document."""
    prefix = _VISIBLE if document is None else _version_prefix(document, version or "")
    return _hashed(prefix + name for name in _bytes(names))


def identities_of_versions(names: Column, versions: Iterable[tuple[str, str, int]]) -> Identities:
    """Identities of rows of several versions: each names its document, its version and how many rows come next."""
    listed = iter(_bytes(names))
    prefixes = ((_version_prefix(document, version), rows) for document, version, rows in versions)
    return _hashed(prefix + name for prefix, rows in prefixes for name in islice(listed, rows))


def _bytes(names: Column) -> list[bytes]:
    # A view where it can be one: a cast would load Arrow's kernels, which the search for a few names has no use for.
    as_bytes = names.view(pa.binary()) if names.type == pa.string() else names.cast(pa.binary())
    listed: list[bytes] = as_bytes.to_pylist()
    return listed


def _version_prefix(document: str, version: str) -> bytes:
    return _VERSIONED + b"".join(_LENGTH.pack(len(part)) + part for part in (document.encode(), version.encode()))


def _hashed(names: Iterable[bytes]) -> Identities:
    digest = xxhash.xxh3_128_digest
    digests = b"".join([digest(name) for name in names])
    words = np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, 2)
    return Identities(np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1]))


def identity_of_text(text: str) -> tuple[int, int]:
    """The identity of a document's or version's name."""
    digest = xxhash.xxh3_128_digest(text.encode())
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


@dataclass(frozen=True, slots=True)
class DictionaryBlock:
    """Identities and their rows, ordered, each identity once: u64 rows, high words, low words, ids."""

    identities: Identities
    ids: Ids

    @property
    def keys(self) -> Words:
        """What decides on a row's bucket."""
        return self.identities.high

    @property
    def size_bytes(self) -> int:
        return 24 * len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> DictionaryBlock:
        return DictionaryBlock(self.identities.take(rows), self.ids[rows])

    def find(self, wanted: Identities) -> Ids:
        """The row of each wanted identity, or ABSENT."""
        found = np.full(len(wanted), ABSENT, np.int64)
        place = np.searchsorted(self.identities.high, wanted.high)
        # Two identities that share the high word lie side by side; one step is nearly always enough.
        while True:
            candidate = np.minimum(place, max(len(self) - 1, 0))
            same = (place < len(self)) & (self.identities.high[candidate] == wanted.high) if len(self) else place < 0
            if not same.any():
                return found
            hit = same & (self.identities.low[candidate] == wanted.low)
            found[hit] = self.ids[candidate[hit]]
            place = np.where(same & ~hit, place + 1, len(self))

    def kept(self, dead: IdSet) -> Bools:
        kept: Bools = (self.ids != ABSENT) & ~dead.contains(self.ids)
        return kept

    def encode(self) -> BlockBody:
        words = [part.astype("<u8") for part in (self.identities.high, self.identities.low)]
        return BlockBody((_COUNT.pack(len(self)), *words, self.ids.astype("<i8")))

    @classmethod
    def decode(cls, body: memoryview) -> DictionaryBlock:
        rows = (len(body) - _COUNT.size) // 24
        if len(body) < _COUNT.size or _COUNT.unpack_from(body)[0] != rows or len(body) != _COUNT.size + 24 * rows:
            raise Corrupt("a dictionary block's length does not match", f"it has {len(body)} bytes")
        columns = np.frombuffer(body, "<u8", 3 * rows, _COUNT.size).reshape(3, rows)
        return cls(Identities(columns[0], columns[1]), columns[2].view("<i8"))

    @classmethod
    def of(cls, identities: Identities, ids: Ids) -> DictionaryBlock:
        """A block of rows in any order; of one identity's rows the last is kept."""
        order = np.lexsort((identities.low, identities.high))
        ordered = identities.take(order)
        last = np.roll(ordered.first_of_each(), -1)
        last[-1:] = True
        return cls(ordered.take(last), ids[order][last])

    @classmethod
    def merge(cls, parts: Sequence[DictionaryBlock]) -> DictionaryBlock:
        if len(parts) == 1:
            return parts[0]
        identities = Identities.concatenate([part.identities for part in parts])
        return cls.of(identities, np.concatenate([part.ids for part in parts]))
