"""Gives memory that a round has freed back to the machine.

Where the C library keeps what is freed for the next request, holes between blocks that live on add up: a driver that
wrote a gigabyte of text held twice what it used. Telling it to give holes back costs some milliseconds. It also keeps
one set of holes for every few threads, and the store has many: a program of its own can bound them at its start. On
machines whose library has no such calls nothing happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

__all__ = ["ROUND_BYTES_MIN", "give_back_memory", "limit_arenas"]

# Rounds that write less leave holes that the next ones fill.
ROUND_BYTES_MIN: Final = 4 << 20
# The number of this setting in glibc's malloc.h, and two arenas: the thread that works, and all that serve it.
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2


def give_back_memory() -> bool:
    """Whether anything was given back."""
    trim = _trim()
    return trim is not None and bool(trim(0))


def limit_arenas() -> bool:
    """Whether the C library keeps what threads free in few places from now on. For a process that only runs a job."""
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS))
    except (AttributeError, OSError, TypeError):
        return False


@cache
def _trim() -> Callable[[int], Any] | None:
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found
