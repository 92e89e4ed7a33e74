"""How a job's process takes memory from the machine, and gives it back.

Where the C library keeps what is freed for the next request, holes between blocks that live on add up: a driver that
wrote a gigabyte of text held twice what it used. So before a job begins, `settle_allocators` has large blocks taken from
the machine one by one, which their end gives back at once; small ones from few arenas; and Arrow's from the C library
instead of a pool of its own, which keeps what was freed. After a round,
`give_back_memory` gives the holes back, in some milliseconds. On machines whose library has no such calls nothing
happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

__all__ = ["ROUND_BYTES_MIN", "give_back_memory", "settle_allocators"]

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
