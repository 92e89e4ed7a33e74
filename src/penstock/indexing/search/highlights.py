"""Where a passage matches a question: its words and other forms of them, told by how they begin. Pure.

Whoever wants the exact rule of the index reads the score.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.vector import content_words

__all__ = ["WordMatch", "highlights", "word_matches"]

_WORD: Final = re.compile(r"\w+")
# Other forms of a word differ in its last letters: "bake", "baking". Shorter words must be the same.
_STEM_LETTERS_MIN: Final = 3
_ENDING_LETTERS_MAX: Final = 3
# Of one passage: a long text may be one word.
_HIGHLIGHTS_MAX: Final = 200


class WordMatch(NamedTuple):
    """The characters of a text that match, and the number of the word that they match."""

    start: int
    end: int
    word: int


def highlights(text: str, question: str) -> list[list[int]]:
    """The stretches of a text that match words of a question, those left out that only hold it together."""
    found = word_matches(text, content_words(question))
    return [[match.start, match.end] for match, _ in zip(found, range(_HIGHLIGHTS_MAX), strict=False)]


def word_matches(text: str, words: Sequence[str]) -> Iterator[WordMatch]:
    """Words of a text that are forms of some words, which are in lower case."""
    by_stem = {_stem(word): number for number, word in reversed(list(enumerate(words)))}
    for found in _WORD.finditer(text):
        number = by_stem.get(_stem(found[0].casefold()))
        if number is not None:
            yield WordMatch(found.start(), found.end(), number)


def _stem(word: str) -> str:
    if len(word) <= _STEM_LETTERS_MIN:
        return word
    return word[: max(_STEM_LETTERS_MIN, len(word) - _ENDING_LETTERS_MAX)]
