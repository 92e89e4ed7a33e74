"""Words that a PDF breaks at the end of a line, made whole.

PDFium writes U+0002 (U+FFFE through some of its calls) where it found a hyphen at the end of a line. It is no part of
the word unless the document also writes the word with a hyphen elsewhere, or what follows begins like a name or number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

__all__ = ["mended"]

_BREAK: Final = re.compile(r"[\x02\ufffe](?:\r?\n)?")
_HYPHENATED: Final = re.compile(r"\w-\w")
# Control characters that PDFs have for signs without a meaning; tabs, ends of lines and of pages stay.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
# No word that is broken has more on either side.
_WORD_CHARACTERS_MAX: Final = 64


def mended(text: str) -> str:
    """A text without broken words and control characters."""
    parts = _BREAK.split(text)
    if len(parts) > 1:
        known = _hyphenated(parts)
        joined = [parts[0]]
        for left, right in pairwise(parts):
            joined += ["-" if _keeps_hyphen(_last_word(left), _first_word(right), known) else "", right]
        text = "".join(joined)
    return _CONTROL.sub("", text)


def _keeps_hyphen(left: str, right: str, known: set[str]) -> bool:
    if not left or not right:
        return False
    return right[0].isupper() or right[0].isdigit() or f"{left}-{right}".lower() in known


def _hyphenated(parts: Iterable[str]) -> set[str]:
    """All pairs of words with a hyphen between them."""
    return {
        f"{_last_word(_before(part, found.start() + 1))}-{_first_word(_after(part, found.end() - 1))}".lower()
        for part in parts
        for found in _HYPHENATED.finditer(part)
    }


def _before(text: str, end: int) -> str:
    return text[max(0, end - _WORD_CHARACTERS_MAX) : end]


def _after(text: str, start: int) -> str:
    return text[start : start + _WORD_CHARACTERS_MAX]


def _last_word(text: str) -> str:
    end = text[-_WORD_CHARACTERS_MAX:]
    return end[len(end) - _letters(reversed(end)) :]


def _first_word(text: str) -> str:
    start = text[:_WORD_CHARACTERS_MAX]
    return start[: _letters(start)]


def _letters(signs: Iterable[str]) -> int:
    count = 0
    for sign in signs:
        if not (sign.isalnum() or sign == "_"):
            break
        count += 1
    return count
