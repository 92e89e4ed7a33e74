"""Decoded blocks kept for the next reader, within a bound of bytes: the least recently used leave first.

An entry is named after bytes that never change, so nothing here is ever stale; entries of states that nobody
reads any more simply grow old.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

from penstock.observability import SILENT, Observer, names

__all__ = ["BlockCache", "Sized"]


class Sized(Protocol):
    """What a cache can hold."""

    @property
    def size_bytes(self) -> int: ...


T = TypeVar("T", bound=Sized)


class BlockCache:
    """Blocks by name. Not shared between threads: the event loop alone uses it."""

    def __init__(self, max_bytes: int, *, observer: Observer = SILENT) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        # How many blocks had to leave: whoever holds on to blocks lets go of them when this changes.
        self.evictions = 0
        self._observer = observer
        self._blocks: OrderedDict[Hashable, Sized] = OrderedDict()

    def get(self, name: Hashable, kind: type[T]) -> T | None:
        block = self._blocks.get(name)
        if block is None:
            return None
        assert isinstance(block, kind)
        self._blocks.move_to_end(name)
        return block

    def put(self, name: Hashable, block: Sized) -> None:
        """Keep a block, unless it alone would take more than half of the room."""
        if not self.holds_half(block.size_bytes) or name in self._blocks:
            return
        self._blocks[name] = block
        self.size_bytes += block.size_bytes
        while self.size_bytes > self.max_bytes:
            _, evicted = self._blocks.popitem(last=False)
            self.size_bytes -= evicted.size_bytes
            self.evictions += 1
        self._observer.gauge(names.VECTOR_CACHE_BYTES, self.size_bytes)

    def holds_half(self, size_bytes: int) -> bool:
        """Whether this much is at most half of what fits."""
        return 2 * size_bytes <= self.max_bytes

    def touch(self, names: Iterable[Hashable]) -> None:
        """Mark blocks as used."""
        for name in names:
            if name in self._blocks:
                self._blocks.move_to_end(name)

    def count(self, hits: int, misses: int) -> None:
        """Report how a read fared."""
        if hits:
            self._observer.count(names.VECTOR_CACHE_READS, hits, outcome="hit")
        if misses:
            self._observer.count(names.VECTOR_CACHE_READS, misses, outcome="miss")

    def __len__(self) -> int:
        return len(self._blocks)
