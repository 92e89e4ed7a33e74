"""How a job's process takes memory from the machine, and gives it back.

Where the C library keeps what is freed for the next request, holes between blocks that live on add up: a driver that
wrote a gigabyte of text held twice what it used. So before a job begins, `settle_allocators` has large blocks taken from
the machine one by one, which their end gives back at once; small ones from few arenas; and Arrow's from the C library
instead of a pool of its own, which keeps what was freed. After a round,
`give_back_memory` gives the holes back, in some milliseconds, and `MemoryKeeper` does so within one: writing a few mebibytes
of text leaves holes of two hundred. On machines whose library has no such calls nothing
happens.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["ROUND_BYTES_MIN", "MemoryKeeper", "give_back_memory", "settle_allocators"]

# Of mallopt(3).
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
# Columns of a round and blocks of a store are larger, objects of Python smaller.
_LARGE_BYTES: Final = 512 << 10
# Free memory at the end of an arena that is kept for the next request. Whoever sets the bound above gets one of 128 KiB
# here, and then each array of a few hundred KiB is given back and taken again, cleared page by page: embedding took twice
# its time.
_KEPT_BYTES: Final = 4 << 20
# Threads that prepare writes and those of the store; each would else get an arena, and leave holes in it.
_ARENAS: Final = 2

# Rounds that write less leave holes that the next ones fill.
ROUND_BYTES_MIN: Final = 4 << 20


# How often a job's process is looked at, and by how much it has grown when its holes are given back.
_LOOK_SECONDS: Final = 0.1
_GROWN_BYTES: Final = 32 << 20


class MemoryKeeper:
    """Gives holes back whenever the process has grown, from a thread of its own; until it is closed."""

    def __init__(self, resident: Callable[[], int | None] | None = None) -> None:
        self._resident = resident or resident_bytes
        self._closed = threading.Event()
        self._lowest = self._resident()
        if self._lowest is not None and _trim() is not None:
            threading.Thread(target=self._keep, name="penstock-memory", daemon=True).start()

    def look(self) -> bool:
        """Whether the process had grown, and holes were given back."""
        held = self._resident()
        if held is None or self._lowest is None:
            return False
        self._lowest = min(self._lowest, held)
        if held - self._lowest < _GROWN_BYTES:
            return False
        give_back_memory()
        self._lowest = self._resident()
        return True

    def close(self) -> None:
        self._closed.set()

    def _keep(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            self.look()


def resident_bytes() -> int | None:
    """The memory that this process holds; None where the machine does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def give_back_memory() -> bool:
    """Whether anything was given back."""
    trim = _trim()
    return trim is not None and bool(trim(0))


@cache
def settle_allocators() -> bool:
    """For the whole process, once; whether the C library took it.

    The sooner the better: an arena that a thread has taken stays, and so does what Arrow took for its own pool.
    """
    try:
        adjust: Callable[[int, int], int] = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        taken = False
    else:
        taken = all(
            [
                adjust(_MMAP_THRESHOLD, _LARGE_BYTES),
                adjust(_TRIM_THRESHOLD, _KEPT_BYTES),
                adjust(_ARENA_MAX, _ARENAS),
            ]
        )
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    return taken


@cache
def _trim() -> Callable[[int], Any] | None:
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found
