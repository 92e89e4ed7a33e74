"""Decoded blocks kept for the next reader, within a bound of bytes: those that nobody used lately leave first.

An entry is named after bytes that never change, so nothing here is ever stale; entries of states that nobody
reads any more simply grow old. What readers make of blocks and hold on to is kept here too, and forgotten as
soon as any block leaves, so that nothing outlives the bound.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from penstock.observability import SILENT, Observer, names

__all__ = ["BlockCache", "Entry", "Sized"]


class Sized(Protocol):
    """What a cache can hold."""

    @property
    def size_bytes(self) -> int: ...


T = TypeVar("T")
S = TypeVar("S", bound=Sized)


class Entry(Generic[S]):
    """A block, and whether it was used since it last came up for leaving. Readers that hold an entry say so."""

    __slots__ = ("block", "used")

    def __init__(self, block: S) -> None:
        self.block = block
        self.used = False


class BlockCache:
    """Blocks by name. Not shared between threads: the event loop alone uses it."""

    def __init__(self, max_bytes: int, *, observer: Observer = SILENT) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        # How many blocks had to leave.
        self.evictions = 0
        self._observer = observer
        self._blocks: OrderedDict[Hashable, Entry[Sized]] = OrderedDict()
        self._made: dict[Hashable, object] = {}

    def get(self, name: Hashable, kind: type[S]) -> Entry[S] | None:
        """The entry of a block, marked as used."""
        entry = self._blocks.get(name)
        if entry is None:
            return None
        assert isinstance(entry.block, kind)
        entry.used = True
        return entry  # type: ignore[return-value] # what the line above has made sure of

    def put(self, name: Hashable, block: Sized) -> None:
        """Keep a block, unless it alone would take more than half of the room."""
        if not self.holds_half(block.size_bytes) or name in self._blocks:
            return
        while self.size_bytes + block.size_bytes > self.max_bytes:
            self._evict()
        self._blocks[name] = Entry(block)
        self.size_bytes += block.size_bytes
        self._observer.gauge(names.VECTOR_CACHE_BYTES, self.size_bytes)

    def made(self, name: Hashable, kind: type[T]) -> T | None:
        """What a reader has made of blocks under this name, unless a block has left since."""
        made = self._made.get(name)
        assert made is None or isinstance(made, kind)
        return made

    def keep(self, name: Hashable, made: object) -> None:
        """Hold on to something that refers to kept blocks and to little else, until one of them may be gone."""
        self._made[name] = made

    def holds_half(self, size_bytes: int) -> bool:
        """Whether this much is at most half of what fits."""
        return 2 * size_bytes <= self.max_bytes

    def count(self, hits: int, misses: int) -> None:
        """Report how a read fared."""
        if hits:
            self._observer.count(names.VECTOR_CACHE_READS, hits, outcome="hit")
        if misses:
            self._observer.count(names.VECTOR_CACHE_READS, misses, outcome="miss")

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
        self.size_bytes -= entry.block.size_bytes
        self.evictions += 1
        self._made.clear()
