"""Words brought to their stems by the Snowball algorithms, so that `compressing` finds `compressed`.

PyStemmer runs them in C. Its release is pinned: other stems would lie under other hashes.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from penstock.vector.format.languages import Language

__all__ = ["stem"]


class _Stemmers(threading.local):
    """One stemmer a language and thread: PyStemmer's are not to be shared."""

    @cached_property
    def of(self) -> dict[Language, Any]:
        return {}


_STEMMERS = _Stemmers()


def stem(words: list[bytes], language: Language) -> list[bytes]:
    """The stem of each word, all in UTF-8."""
    stemmer = _STEMMERS.of.get(language)
    if stemmer is None:
        import Stemmer

        # Words come once each, so there is nothing for a cache of its own to find.
        stemmer = _STEMMERS.of[language] = Stemmer.Stemmer(language.name.lower(), 0)
    stems: list[bytes] = stemmer.stemWords(words)
    return stems
