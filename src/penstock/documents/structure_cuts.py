"""Cuts that follow a document's structure: before a heading, and around a table or a block of code that fits a chunk.

Parsers write a heading as a line that begins with `#`, a table as lines with ` | ` between cells, and code as lines with
their indents, where a blank line holds one space: so a table or a block of code is one paragraph. Like all cuts these
look at a bounded neighbourhood of bytes, and give the same place wherever those were read.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["block_cut", "heading_cut", "last_blank_line"]

_HEADING: Final = re.compile(rb"\n(?=#{1,6} \S)")
_BREAK: Final = re.compile(rb"\n\r?\n")
# A line of a code block that is left empty.
_BLANK_LINE: Final = b"\n \n"
# Lines that tell what a block is.
_LINES_SEEN: Final = 40
_LINES_MIN: Final = 2
# A chunk before a block has at least this part of the way to where one usually ends; else it would be a crumb.
_SHARE_MIN: Final = 4


def heading_cut(data: bytes, low: int, target: int) -> int:
    """The last start of a heading in `(low, target]`; 0 if there is none."""
    # One byte before the window: a heading may begin right behind it.
    places = [found.end() for found in _HEADING.finditer(data, max(0, low - 1), min(len(data), target + 8))]
    return max((place for place in places if low < place <= target), default=0)


def last_blank_line(data: bytes, low: int, target: int) -> int:
    """The end of the last blank line inside code in `(low, target]`; 0 if there is none."""
    place = data.rfind(_BLANK_LINE, low, target)
    return place + len(_BLANK_LINE) if place >= 0 else 0


def block_cut(data: bytes, start: int, low: int, target: int, high: int) -> int:
    """Where to cut so that the table or code around `target` stays whole: behind it, or before it; 0 if neither fits.

    `start` is where the chunk begins, and `high` the last place where it may end.
    """
    before = _last_break(data, start, low)
    begin = before or start
    if not _is_block(data, begin, target):
        return 0
    behind = _BREAK.search(data, target, min(len(data), high))
    if behind is not None:
        return behind.end()
    if len(data) <= high:
        return len(data)
    # As many bytes as fit from here will about fit from there.
    room = high - start
    ends = _BREAK.search(data, begin, min(len(data), begin + room))
    fits = ends is not None or len(data) <= begin + room
    return before if fits and before - start >= (low - start) // _SHARE_MIN else 0


def _last_break(data: bytes, start: int, low: int) -> int:
    plain = data.rfind(b"\n\n", start, low)
    carriage = data.rfind(b"\n\r\n", max(start, plain), low)
    return carriage + 3 if carriage >= 0 else plain + 2 if plain >= 0 else 0


def _is_block(data: bytes, begin: int, target: int) -> bool:
    """Whether the paragraph that begins here is a table or code: most of its lines have cells, or an indent."""
    lines = data[begin:target].split(b"\n", _LINES_SEEN)[:_LINES_SEEN]
    shaped = sum(b" | " in line or line.startswith((b" ", b"\t")) for line in lines[1:])
    return len(lines) > _LINES_MIN and 2 * shaped >= len(lines) - 1
