"""Whether a text that was decoded by a guess is spelled as its script is: bytes of another encoding rarely are.

Short texts have no frequency of letters to go by. What no language of a script does shows in a few words all the same.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_spelled"]

_THAI: Final = re.compile(r"[\u0e01-\u0e5b]")
# Nearly every syllable is written with one of them.
_THAI_VOWEL: Final = re.compile(r"[\u0e30-\u0e3a\u0e40-\u0e4e]")
_HEBREW: Final = re.compile(r"[\u0590-\u05f4]+")
# A point without its letter, or the form that a letter has only at the end of a word.
_HEBREW_FAULT: Final = re.compile(r"^[\u0591-\u05c7]|[ךםןףץ](?=[\u05d0-\u05ea])")
_CYRILLIC: Final = re.compile(r"[\u0400-\u04ff]+")
_CYRILLIC_LETTER: Final = re.compile(r"[\u0400-\u04ff]")
_CYRILLIC_VOWEL: Final = re.compile(r"[аеёиоуыэюяіїєъ]", re.IGNORECASE)
_CYRILLIC_FAULT: Final = re.compile(r"^[ъьЪЬ]")
_HANGUL: Final = re.compile(r"[\uac00-\ud7a3]")
# Particles, endings and the most frequent syllables: about half of any Korean text.
_HANGUL_USUAL: Final = re.compile(
    "[이다는의에을를가은한로고하지사도기서니자리시나어대인그들해으전정것수일과있아부보제여라만상원습할면된되와]"
)

_VOWELS_MIN: Final = 0.2
_HANGUL_USUAL_MIN: Final = 0.2
_FAULTS_MAX: Final = 0.1
# Fewer letters than this say nothing.
_LETTERS_MIN: Final = 8


def is_spelled(text: str) -> bool:
    """False when much of a text is in a script and is not spelled as words of it are."""
    return (
        _has_enough(text, _THAI, _THAI_VOWEL, _VOWELS_MIN)
        and _has_enough(text, _HANGUL, _HANGUL_USUAL, _HANGUL_USUAL_MIN)
        and _has_enough(text, _CYRILLIC_LETTER, _CYRILLIC_VOWEL, _VOWELS_MIN)
        and not _has_faults(text, _HEBREW, _HEBREW_FAULT)
        and not _has_faults(text, _CYRILLIC, _CYRILLIC_FAULT)
    )


def _has_enough(text: str, letter: re.Pattern[str], wanted: re.Pattern[str], part: float) -> bool:
    letters = letter.findall(text)
    return len(letters) < _LETTERS_MIN or len(wanted.findall(text)) >= part * len(letters)


def _has_faults(text: str, word: re.Pattern[str], fault: re.Pattern[str]) -> bool:
    words = word.findall(text)
    return sum(fault.search(found) is not None for found in words) > _FAULTS_MAX * len(words)
