"""The global index: which times each shard holds, for readers that would rather not ask all of them.

Derived, and never authoritative: a reader passes a shard over only by an index that is younger than the age
it allows its plans, of the same generation of shards, and sound. Otherwise it asks every shard.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.catalog.format.data_file import HOUR_NS
from penstock.catalog.format.head import CatalogHead
from penstock.catalog.format.members import check_seal, sealed
from penstock.errors import Corrupt
from penstock.undecodable import UNDECODABLE

__all__ = ["GlobalIndex", "ShardTimes", "times_of"]

VERSION = 1
# More ranges than this are joined, the nearest first: the index stays small however scattered the data is.
RANGES_MAX = 64


class ShardTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one shard, both ends included, at one sequence of its head."""

    seq: int
    ranges: tuple[tuple[int, int], ...]


class GlobalIndex(msgspec.Struct, frozen=True, kw_only=True):
    """`made_ms` is the moment before the first head was read, by the clock of whoever made it."""

    version: int = VERSION
    generation: int
    made_ms: int
    shards: dict[str, ShardTimes]

    @classmethod
    def decode(cls, body: bytes) -> GlobalIndex | None:
        """None for whatever cannot be read: then it is as if there were none."""
        try:
            check_seal(body, "the global index")
            found = msgspec.json.decode(body, type=cls)
        except (*UNDECODABLE, Corrupt):
            return None
        return found if found.version == VERSION else None

    def encode(self) -> bytes:
        return sealed(msgspec.json.encode(self)[:-1])

    def needed(self, shards: Iterable[str], start: int, end: int) -> list[str]:
        """The shards that may hold a time in `[start, end)`; one that the index does not know is asked."""
        return [shard for shard in shards if self._may_hold(shard, start, end)]

    def _may_hold(self, shard: str, start: int, end: int) -> bool:
        known = self.shards.get(shard)
        return known is None or any(first < end and last >= start for first, last in known.ranges)


def times_of(head: CatalogHead) -> ShardTimes:
    """Hours that inline files touch and the ranges of segments, joined where they meet."""
    spans = [(hour, hour + HOUR_NS - 1) for hour in head.time_index]
    spans += [(entry.min_ts, entry.max_ts) for entry in head.stored]
    return ShardTimes(seq=head.seq, ranges=tuple(_joined(spans)))


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    while len(merged) > RANGES_MAX:
        gap = min(range(len(merged) - 1), key=lambda at: merged[at + 1][0] - merged[at][1])
        merged[gap : gap + 2] = [(merged[gap][0], merged[gap + 1][1])]
    return merged
