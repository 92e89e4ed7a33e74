"""The part of a passage that a person is shown: the words around the match, on one line. Pure.

A match is a word of the question or another form of it, told by how the two begin; whoever wants the exact rule of the
index reads the score.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.indexing import WordMatch

__all__ = ["snippet"]

_WORD: Final = re.compile(r"(?:[a-z0-9_]|[^\x00-\x7f\s])+")
_ELLIPSIS: Final = "…"


def snippet(text: str, question: str, characters_max: int) -> str:
    """The stretch that holds most of the question's words, the first of equals; the head where it holds none."""
    flat = " ".join(text.split())
    if len(flat) <= characters_max:
        return flat
    from penstock.indexing import word_matches

    words = list(dict.fromkeys(_WORD.findall(question.lower())))
    # A word that is longer than the stretch is in none.
    matches = [match for match in word_matches(flat, words) if match.end - match.start <= characters_max]
    found = _densest(matches, words, characters_max)
    return _cut(flat, *found, characters_max)


def _densest(matches: Sequence[WordMatch], words: Sequence[str], characters_max: int) -> tuple[int, int]:
    """Where the window begins and ends that holds the most letters of different words: long words say more."""
    counts, weight, best_weight, best, first = [0] * len(words), 0, 0, (0, 0), 0
    for match in matches:
        counts[match.word] += 1
        weight += len(words[match.word]) if counts[match.word] == 1 else 0
        while match.end - matches[first].start > characters_max:
            left = matches[first].word
            counts[left] -= 1
            weight -= len(words[left]) if not counts[left] else 0
            first += 1
        if weight > best_weight:
            best_weight, best = weight, (matches[first].start, match.end)
    return best


def _cut(text: str, start: int, end: int, characters_max: int) -> str:
    """The stretch in the middle of what is shown, from one blank to another."""
    begin = max(0, min(start - (characters_max - (end - start)) // 2, len(text) - characters_max))
    stop = begin + characters_max
    if begin:
        # Never past the match itself.
        blank = text.find(" ", begin - 1, start + 1)
        begin = blank + 1 if blank >= 0 else begin
    if stop < len(text):
        blank = text.rfind(" ", max(end, begin + 1), stop + 1)
        stop = blank if blank > 0 else stop
    front, back = f"{_ELLIPSIS} " if begin else "", f" {_ELLIPSIS}" if stop < len(text) else ""
    return f"{front}{text[begin:stop].strip()}{back}"
