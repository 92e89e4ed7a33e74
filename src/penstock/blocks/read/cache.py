"""Decoded blocks kept for the next reader, within a bound of bytes: those that nobody used lately leave first.

An entry is named after bytes that never change, so nothing here is ever stale; entries of states that nobody
reads any more simply grow old. Readers hold on to entries, never to blocks: a block that leaves is gone from its entry
too, so that nothing outlives the bound, and whatever else was kept stays. Blocks that somebody is reading are listed
as well, so that nobody reads them twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from penstock.blocks.read.single_flight import SingleFlights
from penstock.observability import SILENT, Observer, names

__all__ = ["BlockCache", "CacheEntry", "Sized"]


class Sized(Protocol):
    """What a cache can hold."""

    @property
    def size_bytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


class CacheEntry(Generic[S]):
    """A block, None once it has left, and whether it was used since it last came up for leaving.

    Readers that hold an entry and use its block say so.
    """

    __slots__ = ("block", "used")

    def __init__(self, block: S) -> None:
        self.block: S | None = block
        self.used = False


class BlockCache:
    """Blocks of one store, by name. Not shared between threads: the event loop alone uses it."""

    def __init__(self, max_bytes: int, *, store: str, observer: Observer = SILENT) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        # How many blocks had to leave.
        self.evictions = 0
        # Blocks that are being read, by the names under which they will be kept.
        self.flights: SingleFlights[Sized] = SingleFlights()
        self._store = store
        self._observer = observer
        self._blocks: OrderedDict[Hashable, CacheEntry[Sized]] = OrderedDict()

    def get(self, name: Hashable, kind: type[S]) -> CacheEntry[S] | None:
        """The entry of a block, marked as used."""
        entry = self._blocks.get(name)
        if entry is None:
            return None
        assert isinstance(entry.block, kind)
        entry.used = True
        return entry  # type: ignore[return-value] # what the line above has made sure of

    def put(self, name: Hashable, block: S) -> CacheEntry[S] | None:
        """Keep a block, and return its entry. One that alone would take more than half of the room is not kept."""
        if name in self._blocks:
            return self.get(name, type(block))
        if not self.holds_half(block.size_bytes):
            return None
        while self.size_bytes + block.size_bytes > self.max_bytes:
            self._evict()
        entry = CacheEntry(block)
        self._blocks[name] = entry  # type: ignore[assignment] # `get` makes sure of its type
        self.size_bytes += block.size_bytes
        self._observer.gauge(names.BLOCKS_CACHE_BYTES, self.size_bytes, store=self._store)
        return entry

    def holds_half(self, size_bytes: int) -> bool:
        """Whether this much is at most half of what fits."""
        return 2 * size_bytes <= self.max_bytes

    def count(self, hits: int, misses: int) -> None:
        """Report how a read fared."""
        if hits:
            self._observer.count(names.BLOCKS_CACHE_READS, hits, store=self._store, outcome="hit")
        if misses:
            self._observer.count(names.BLOCKS_CACHE_READS, misses, store=self._store, outcome="miss")

    def __len__(self) -> int:
        return len(self._blocks)

    def _evict(self) -> None:
        """Let the oldest block go that was not used since it last came up."""
        while True:
            name, entry = self._blocks.popitem(last=False)
            if not entry.used:
                break
            entry.used = False
            self._blocks[name] = entry
        assert entry.block is not None
        self.size_bytes -= entry.block.size_bytes
        self.evictions += 1
        entry.block = None
