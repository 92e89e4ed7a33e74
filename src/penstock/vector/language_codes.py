"""The language that a text is written in, as a person would name it: an ISO 639-1 code, or nothing where it is not clear.

Told from function words, as for stems, and for scripts that one language uses from the script. A table of numbers or
some lines of code are in no language.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.vector.format.languages import Language, evidence_of, is_function_word

__all__ = ["content_words", "guess_language"]

_CODES: Final = {
    Language.ENGLISH: "en",
    Language.GERMAN: "de",
    Language.FRENCH: "fr",
    Language.SPANISH: "es",
    Language.ITALIAN: "it",
    Language.PORTUGUESE: "pt",
    Language.DUTCH: "nl",
    Language.SWEDISH: "sv",
    Language.DANISH: "da",
    Language.NORWEGIAN: "no",
    Language.FINNISH: "fi",
    Language.HUNGARIAN: "hu",
    Language.ROMANIAN: "ro",
    Language.TURKISH: "tr",
    Language.RUSSIAN: "ru",
    Language.GREEK: "el",
    Language.ARABIC: "ar",
}
# Scripts without function words here; kana before Han, because Japanese has both.
_SCRIPTS: Final = (
    ("ja", re.compile(r"[\u3040-\u30ff]")),
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("zh", re.compile(r"[\u4e00-\u9fff]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
    ("hi", re.compile(r"[\u0900-\u097f]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
)
# Of a text; the rest of it is in the same language, or in several.
_CHARACTERS_MAX: Final = 2_000
# Signs of a script in a text that is not of it: a name, a quotation.
_SIGNS_MIN: Final = 8
_WORD: Final = re.compile(r"[^\W\d_]+")
_QUESTION_WORD: Final = re.compile(r"(?:[a-z0-9_]|[^\x00-\x7f\s])+")
# Letters in lower case, everything else a blank.
_ASCII_LETTERS: Final = "".join(chr(code).lower() if chr(code).isalpha() else " " for code in range(128))


def guess_language(text: str) -> str | None:
    """The language of a text, by its beginning; None if unknown."""
    head = text[:_CHARACTERS_MAX]
    if not head.isascii():
        for code, script in _SCRIPTS:
            if len(script.findall(head)) >= _SIGNS_MIN:
                return code
    found = evidence_of(_words_of(head))
    return None if found is None else _CODES[found]


def _words_of(head: str) -> set[str]:
    """Its different words in lower case."""
    if head.isascii():
        # The same five times as fast: most texts, and every chunk is asked for.
        return set(head.translate(_ASCII_LETTERS).split())
    return set(_WORD.findall(head.lower()))


def content_words(question: str) -> list[str]:
    """The distinct words of a question in lower case, without function words; all of them if none is left.

    Blanks and ASCII signs separate words: accents, symbols and characters of any script belong to them.
    """
    words = list(dict.fromkeys(_QUESTION_WORD.findall(question.lower())))
    languages = {int(Language.ENGLISH), int(evidence_of(set(words)) or Language.ENGLISH)}
    return [word for word in words if not is_function_word(word.encode(), languages)] or words
