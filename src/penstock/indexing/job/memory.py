"""Gives memory that a round has freed back to the machine.

Where the C library keeps what is freed for the next request, holes between blocks that live on add up: a driver that
wrote a gigabyte of text held twice what it used. Telling it to give holes back costs some milliseconds. On
machines whose library has no such call nothing happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

__all__ = ["ROUND_BYTES_MIN", "give_back_memory"]

# Rounds that write less leave holes that the next ones fill.
ROUND_BYTES_MIN: Final = 4 << 20


def give_back_memory() -> bool:
    """Whether anything was given back."""
    trim = _trim()
    return trim is not None and bool(trim(0))


@cache
def _trim() -> Callable[[int], Any] | None:
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found
