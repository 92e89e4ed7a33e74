"""Chains of frames, each a u32 length and that many bytes: what batch objects and manifests are made of.

Walking a chain reads the lengths alone, in order, and refuses one that does not end exactly where it must.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from penstock.errors import Corrupt

__all__ = ["LENGTH", "LENGTH_MAX", "frame_starts"]

LENGTH: Final = struct.Struct("<I")
LENGTH_MAX: Final = (1 << 32) - 1


def frame_starts(block: memoryview, count: int, what: str) -> array[int]:
    """Where each of `count` frames starts, and last of all where they end: they must fill `block` to the byte."""
    end = len(block)
    if count > end // LENGTH.size:
        raise Corrupt(f"{what} is damaged", f"its footer counts {count} frames, and {end} bytes are too few for them")
    starts = array("Q", bytes(8 * (count + 1)))
    length_at, size, start = LENGTH.unpack_from, LENGTH.size, 0
    try:
        for index in range(count):
            starts[index] = start
            start += size + length_at(block, start)[0]
    except struct.error as error:
        raise Corrupt(f"{what} is damaged", f"frame {index} of {count} starts past the end at {end} bytes") from error
    if start != end:
        raise Corrupt(f"{what} is damaged", f"its {count} frames end at byte {start} and not at {end}")
    starts[count] = end
    return starts
