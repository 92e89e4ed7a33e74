"""Where a passage matches a question: its words and other forms of them, told by how they begin. Pure.

In scripts without spaces, and in Korean, whose endings follow without one, a match is two characters that follow each
other in the question too. Whoever wants the exact rule of the index reads the score.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.vector import content_words, fold_word

__all__ = ["WordMatch", "highlights", "word_matches"]

# Characters that are words without blanks around them: of scripts without spaces, Korean ones, and symbols.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_SYMBOLS: Final = "\u20a0-\u20cf\u2190-\u22ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
# Marks and what nobody sees belong to the word around them.
_INSIDE: Final = (
    "\u00ad\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u200c\u200d\u2060"
)
_WORD: Final = re.compile(
    f"([{_UNSPACED}]+|[{_SYMBOLS}]\ufe0f?)|(?:(?![{_UNSPACED}])\\w)(?:(?![{_UNSPACED}])[\\w{_INSIDE}])*"
)
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
    """Words of a text that are forms of some words."""
    by_stem: dict[str, int] = {}
    by_pair: dict[str, int] = {}
    for number, word in enumerate(words):
        for found in _WORD.finditer(word):
            if found[1]:
                by_pair |= {pair: number for pair in _pairs(found[1]) if pair not in by_pair}
            else:
                by_stem.setdefault(_stem(fold_word(found[0])), number)
    for found in _WORD.finditer(text):
        if found[1]:
            yield from _pair_matches(found, by_pair) if by_pair else ()
        elif (known := by_stem.get(_stem(fold_word(found[0])))) is not None:
            yield WordMatch(found.start(), found.end(), known)


def _pairs(run: str) -> list[str]:
    """Each two characters that follow each other; a single one is itself."""
    return [run[place : place + 2] for place in range(len(run) - 1)] if len(run) > 1 else [run]


def _pair_matches(run: re.Match[str], by_pair: dict[str, int]) -> Iterator[WordMatch]:
    """Stretches of a run that are made of pairs, or single characters, of the question."""
    start, end, word = -1, -1, 0
    for place in range(run.start(), run.end()):
        text = run.string[place : min(place + 2, run.end())]
        size, known = 2, by_pair.get(text)
        if known is None:
            size, known = 1, by_pair.get(text[0])
        if known is None:
            continue
        if start >= 0 and place > end:
            yield WordMatch(start, end, word)
            start = -1
        if start < 0:
            start, word = place, known
        end = max(end, min(place + size, run.end()))
    if start >= 0:
        yield WordMatch(start, end, word)


def _stem(word: str) -> str:
    if len(word) <= _STEM_LETTERS_MIN:
        return word
    return word[: max(_STEM_LETTERS_MIN, len(word) - _ENDING_LETTERS_MAX)]
