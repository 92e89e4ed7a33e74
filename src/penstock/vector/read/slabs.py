"""Memory for decoded blocks, in huge pages where the system has them.

A query looks at some dozen places in a few hundred megabytes. In pages of 4 KiB each of them is a page that the processor
has to look up first, which takes as long as comparing what is there; pages of 2 MiB are few enough to be known. Memory
is mapped in slabs, given out in pieces, and a piece returns when the last array that looks at it is gone. An empty slab
is unmapped. Small pieces, and all of them where there are no such pages, are ordinary memory.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from bisect import insort
from collections import deque
from typing import Final

import numpy as np

from penstock.vector.arrays import Bytes

__all__ = ["Slabs", "room_for"]

# The huge page of nearly all machines; a slab begins with one.
_PAGE_BYTES: Final = 2 << 20
_SLAB_BYTES: Final = 16 << 20
# Less is not worth a piece: a store of a few rows need not take a huge page.
_PIECE_BYTES_MIN: Final = 16 << 10
# Pieces begin and end at multiples of a cache line, and so of every number.
_STEP_BYTES: Final = 64
_HUGE: Final = getattr(mmap, "MADV_HUGEPAGE", None)


class _Slab:
    """Some huge pages, and what of them is free: ranges in order, none of which touch."""

    def __init__(self, size: int) -> None:
        self.memory = mmap.mmap(-1, size + _PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if _HUGE is not None:
            self.memory.madvise(_HUGE)
        skipped = -ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) % _PAGE_BYTES
        self.size = size
        self.free = [(skipped, skipped + size)]

    def take(self, size: int) -> int | None:
        """The beginning of a range that was free and is taken from now on, the first that is large enough."""
        for place, (begin, end) in enumerate(self.free):
            if end - begin >= size:
                self.free[place : place + 1] = [(begin + size, end)] if end - begin > size else []
                return begin
        return None

    def give_back(self, begin: int, size: int) -> None:
        insort(self.free, (begin, begin + size))
        joined: list[tuple[int, int]] = []
        for first, end in self.free:
            if joined and joined[-1][1] == first:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((first, end))
        self.free = joined

    @property
    def is_empty(self) -> bool:
        return len(self.free) == 1 and self.free[0][1] - self.free[0][0] == self.size


class Slabs:
    """Gives out pieces of slabs. Threads may share it."""

    def __init__(self) -> None:
        self._slabs: list[_Slab] = []
        self._lock = threading.Lock()
        # Pieces whose last array is gone. That can happen at any line of any thread, this one's next included, so they
        # are only noted, and returned by whoever asks for memory next.
        self._gone: deque[tuple[_Slab, int, int]] = deque()

    @property
    def mapped_bytes(self) -> int:
        return sum(slab.size for slab in self._slabs)

    def room(self, size_bytes: int) -> Bytes:
        """An array of so many bytes, whatever they hold."""
        if _HUGE is None or size_bytes < _PIECE_BYTES_MIN:
            return np.empty(size_bytes, np.uint8)
        size = -(-size_bytes // _STEP_BYTES) * _STEP_BYTES
        with self._lock:
            self._return_pieces()
            slab, begin = self._take(size)
        piece = (ctypes.c_uint8 * size).from_buffer(slab.memory, begin)
        # Arrays that are made of this one hold on to the piece, and not to each other.
        weakref.finalize(piece, self._gone.append, (slab, begin, size)).atexit = False
        room: Bytes = np.frombuffer(memoryview(piece), np.uint8, size_bytes)
        return room

    def _take(self, size: int) -> tuple[_Slab, int]:
        for slab in self._slabs:
            begin = slab.take(size)
            if begin is not None:
                return slab, begin
        slab = _Slab(max(_SLAB_BYTES, -(-size // _PAGE_BYTES) * _PAGE_BYTES))
        self._slabs.append(slab)
        begin = slab.take(size)
        assert begin is not None
        return slab, begin

    def _return_pieces(self) -> None:
        while self._gone:
            slab, begin, size = self._gone.popleft()
            slab.give_back(begin, size)
            if slab.is_empty:
                self._slabs.remove(slab)


_SLABS: Final = Slabs()


def room_for(size_bytes: int) -> Bytes:
    """Memory for a block that is kept, shared by all stores of the process."""
    return _SLABS.room(size_bytes)
