"""Words that a PDF breaks at the end of a line, made whole.

PDFium writes U+0002 (U+FFFE through some of its calls) where it found a hyphen at the end of a line. Whether it is a
part of the word, the document itself shows best: it writes the word elsewhere with a hyphen, or without, or it has both
halves as words of their own (`user-supplied`). Else what follows decides: a name or a number keeps the hyphen. A soft
hyphen is never a part of its word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

__all__ = ["mended"]

_BREAK: Final = re.compile(r"[\x02\ufffe](?:\r?\n)?")
_SOFT_HYPHEN: Final = re.compile(r"\xad(?:\r?\n)?")
_WHOLE_WORD: Final = re.compile(r"(?<![\w-])\w++(?!-)")
_HYPHENATED: Final = re.compile(r"\w-\w")
# Control characters that PDFs have for signs without a meaning; tabs, ends of lines and of pages stay.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
# No word that is broken has more on either side.
_WORD_CHARACTERS_MAX: Final = 64
# Shorter halves are words by chance: `be-have`, `on-ward`.
_HALF_CHARACTERS_MIN: Final = 3


def mended(text: str) -> str:
    """A text without broken words and control characters."""
    parts = _BREAK.split(_SOFT_HYPHEN.sub("", text))
    known = _Known(_hyphenated(parts), _whole_words(parts)) if len(parts) > 1 else _Known()
    joined = [parts[0]]
    for left, right in pairwise(parts):
        joined += ["-" if known.keeps_hyphen(_last_word(left), _first_word(right)) else "", right]
    return _CONTROL.sub("", "".join(joined))


@dataclass(frozen=True, slots=True)
class _Known:
    """What a document writes with a hyphen, and its words without one, in lower case."""

    hyphenated: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()

    def keeps_hyphen(self, left: str, right: str) -> bool:
        if not left or not right:
            return False
        if f"{left}-{right}".lower() in self.hyphenated:
            return True
        if f"{left}{right}".lower() in self.words:
            return False
        # In a line of capitals they say nothing.
        if right[0].isdigit() or (right[0].isupper() and not left.isupper()):
            return True
        halves = (left.lower(), right.lower())
        return min(map(len, halves)) >= _HALF_CHARACTERS_MIN and self.words.issuperset(halves)


def _whole_words(parts: Sequence[str]) -> frozenset[str]:
    """All words that are neither halves of broken words nor beside a hyphen."""
    words: set[str] = set()
    for place, part in enumerate(parts):
        start = len(_first_word(part)) if place else 0
        end = len(part) - (len(_last_word(part)) if place + 1 < len(parts) else 0)
        words.update(found.lower() for found in _WHOLE_WORD.findall(part, start, max(start, end)))
    return frozenset(words)


def _hyphenated(parts: Iterable[str]) -> frozenset[str]:
    """All pairs of words with a hyphen between them."""
    return frozenset(
        f"{_last_word(_before(part, found.start() + 1))}-{_first_word(_after(part, found.end() - 1))}".lower()
        for part in parts
        for found in _HYPHENATED.finditer(part)
    )


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
