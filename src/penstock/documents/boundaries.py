"""Where a text may be cut: ends of paragraphs, sentences, lines and words, and never inside a character.

All functions work on the bytes of valid UTF-8 and look at a bounded neighbourhood, so that the same bytes give the
same cut wherever they were read. A cut never falls inside a UTF-8 sequence, between CR and LF, or before a character
that belongs to the one before it (a combining mark, a joiner, a skin tone).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from penstock.documents.structure_cuts import block_cut, heading_cut, last_blank_line

__all__ = ["best_cut", "code_point", "context_start", "is_whole", "next_whole", "previous_whole"]

# Marks pile up a few to a character; a text made of nothing else must still end a chunk somewhere.
_CLUSTER_BYTES_MAX: Final = 256

# A sentence is cut before the space that follows it, or after the line break: those are the places where a tokenizer
# cuts too, and a chunk that begins with its space has the tokens it had inside the document.
_ASCII_ENDS: Final = rb"[.?!](?= )|[.?!]\r?\n"
_ENDS: Final = b"|".join(
    [
        _ASCII_ENDS,
        "。|！|？|।|။|។".encode(),
        "(?:؟|۔)(?= )".encode(),
    ]
)


class _Ends:
    """The searches for one alphabet. A greedy prefix finds the last end by stepping back from the window's end."""

    def __init__(self, sentence: bytes) -> None:
        self.last_sentence = re.compile(rb"(?s:.*)(?:%b)" % sentence)
        self.first = re.compile(rb"%b|\n" % sentence)


_ALPHABETS: Final = {True: _Ends(_ASCII_ENDS), False: _Ends(_ENDS)}


def best_cut(data: bytes, low: int, target: int, high: int, *, ascii_only: bool, start: int | None = None) -> int:
    """The best place in `(low, high]` to end a chunk that begins at `start` and should end at `target`.

    Before the last heading; else the last end of a paragraph up to the target; else around a table or code that fits a
    chunk, which may be before `low`; else the last end of a sentence or a line up to the target, or the first one after
    it; else the end of a word, before or after; else the last whole character up to the target.
    """
    cut = heading_cut(data, low, target) or _last_paragraph(data, low, target)
    if not cut:
        ends = _ALPHABETS[ascii_only]
        cut = (
            block_cut(data, low if start is None else start, low, target, high)
            or last_blank_line(data, low, target)
            or _end(ends.last_sentence.match(data, low, target))
            or data.rfind(b"\n", low, target) + 1
            or _end(ends.first.search(data, target, high))
            or max(data.rfind(b" ", low + 1, target + 1), 0)
            or max(data.find(b" ", target + 1, high + 1), 0)
            or target
        )
    return cut if is_whole(data, cut) else previous_whole(data, cut, low)


def context_start(data: bytes, low: int, end: int, *, ascii_only: bool) -> int:
    """Where the overlap before `end` begins: at the first sentence, line or word from `low` on."""
    start = _end(_ALPHABETS[ascii_only].first.search(data, low, end - 1)) or data.find(b" ", low, end)
    return next_whole(data, start if start > 0 else low, end)


def is_whole(data: bytes, place: int) -> bool:
    """Whether a cut at `place` breaks no character."""
    if place <= 0 or place >= len(data):
        return True
    following = data[place]
    if following < 0x80:
        return following != 0x0A or data[place - 1] != 0x0D
    if following < 0xC0:
        return False
    after = data[place : place + 4].decode("utf-8", "ignore")[:1]
    before = data[max(0, place - 4) : place].decode("utf-8", "ignore")[-1:]
    return not after or not _extends(before, after)


def previous_whole(data: bytes, place: int, low: int) -> int:
    """The last whole place in `(low, place]`, or, when one character fills all of it, the first one after."""
    for candidate in range(place, max(low, place - _CLUSTER_BYTES_MAX), -1):
        if is_whole(data, candidate):
            return candidate
    return next_whole(data, place, len(data)) if place - low <= _CLUSTER_BYTES_MAX else code_point(data, place, low)


def next_whole(data: bytes, place: int, high: int) -> int:
    """The first whole place in `[place, high]`; a pile of marks without end is cut between two of them."""
    for candidate in range(place, min(high, place + _CLUSTER_BYTES_MAX) + 1):
        if is_whole(data, candidate):
            return candidate
    return min(high, _next_start(data, place))


def code_point(data: bytes, place: int, low: int) -> int:
    """The last place in `(low, place]` between code points, or the first one after: for where marks must be parted."""
    while place > low and _is_inside(data, place):
        place -= 1
    return place if place > low else _next_start(data, low + 1)


def _next_start(data: bytes, place: int) -> int:
    while _is_inside(data, place):
        place += 1
    return place


def _is_inside(data: bytes, place: int) -> bool:
    """Whether a cut at `place` would part a UTF-8 sequence."""
    return place < len(data) and 0x80 <= data[place] < 0xC0


def _extends(before: str, after: str) -> bool:
    """Whether `after` is drawn as a part of the character before it."""
    point = ord(after)
    return (
        unicodedata.category(after).startswith("M")
        or point in (0x200C, 0x200D)
        or before == "\u200d"
        or 0x1F3FB <= point <= 0x1F3FF  # skin tones
        or 0x1160 <= point <= 0x11FF  # vowels and finals of Hangul written in parts
        or 0xE0020 <= point <= 0xE007F  # tags of flags
        or (0x1F1E6 <= point <= 0x1F1FF and 0x1F1E6 <= ord(before or " ") <= 0x1F1FF)  # a flag is a pair
    )


def _last_paragraph(data: bytes, low: int, target: int) -> int:
    plain = data.rfind(b"\n\n", low, target)
    carriage = data.rfind(b"\n\r\n", max(low, plain), target)
    return carriage + 3 if carriage >= 0 else plain + 2 if plain >= 0 else 0


def _end(found: re.Match[bytes] | None) -> int:
    return found.end() if found else 0
