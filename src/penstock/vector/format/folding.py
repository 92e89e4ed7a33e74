"""Words written alike, so that it does not matter how somebody types them. Part of the stored form (docs/format/vector.md).

Case in full (`STRASSE`, `Straße`), accents of Latin, Greek and Cyrillic letters, the dotted and dotless I, vowel points
of Arabic and Hebrew, forms of Arabic letters that are typed for each other, and digits of all scripts. Marks that make
another letter of one (й, ї, ў, voiced kana, vowels of Indian scripts) stay.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

__all__ = ["INVISIBLE", "fold_word", "fold_words"]

# Words whose folded form is remembered: a word is folded once in each form that it is indexed in, part after part.
_KNOWN_WORDS: Final = 1 << 15

# Characters inside a word that nobody sees or types: soft hyphens, joiners, variation selectors, skin tones of emoji,
# and the points and stretches of Arabic and Hebrew. In the syntax that Arrow's and Python's patterns share.
INVISIBLE: Final = (
    "[\u00ad\u034f\u061c\u180e\u200c-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff"
    "\U0001f3fb-\U0001f3ff"
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]+"
)
# Accents, once letters are taken apart. A breve on и or у and the dots on і make letters of their own.
_ACCENTS: Final = re.compile("[\u0300-\u0305\u0307\u0309-\u036f]|(?<![\u0438\u0443])\u0306|(?<!\u0456)\u0308")
_INVISIBLE: Final = re.compile(INVISIBLE)
_FOREIGN_DIGIT: Final = re.compile(r"(?![0-9])\d")
_LETTERS: Final = str.maketrans(
    {
        "ı": "i",
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "\u0649": "\u064a",  # alef maksura, ya
        "\u06cc": "\u064a",  # Persian ya
        "\u06a9": "\u0643",  # Persian kaf
        "\u0671": "\u0627",  # alef wasla
        "\u0629": "\u0647",  # ta marbuta, ha
    }
)


def fold_word(word: str) -> str:
    """A word in the form in which it is looked up, whatever its case, accents and points."""
    if word.isascii():
        return word.lower()
    apart = _INVISIBLE.sub("", unicodedata.normalize("NFD", unicodedata.normalize("NFKC", word).casefold()))
    together = unicodedata.normalize("NFC", _ACCENTS.sub("", apart)).translate(_LETTERS)
    return _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), together)


def fold_words(words: list[bytes]) -> list[bytes]:
    """The same of words in UTF-8 and lower case."""
    return [word if word.isascii() else _folded(word) for word in words]


@lru_cache(_KNOWN_WORDS)
def _folded(word: bytes) -> bytes:
    return fold_word(word.decode()).encode()
