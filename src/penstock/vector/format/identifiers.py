"""Words that are written with signs or capitals inside: `camelCase`, `snake_case`, `3.11.2`, `C++`, `.NET`, `--force`.

A run of letters and digits is a word already. These are further ones: the parts of a word with capitals inside, and
the whole of what signs hold together, so that `10.0.3.1` is not found by `10.3.0.1`, nor `C#` by every `C`. Part of the
stored form (docs/format/vector.md).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["CANDIDATES", "compounds", "parts"]

_HYPHENS: Final = "\u2010\u2011-"
_APOSTROPHES: Final = "'\u2019\u02bc"
# What may hold a word with signs or capitals inside, as a pattern of Arrow's.
CANDIDATES: Final = (
    r"[a-z][A-Z]|[A-Z]{2}[a-z]{3}|\pL(?:\+\+|#)|[-.]\pL|"
    rf"[\pL\pN\pM][_.{_APOSTROPHES}{_HYPHENS}]+[\pL\pN]"
)
_CAPITALS: Final = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]{3}")
_RUN: Final = re.compile(r"[A-Za-z0-9]+")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Signs between two letters or digits. Dots stay: without them, 1.11 is 11.1.
# Every repetition is possessive and begins where a run does: nothing is tried twice, however long a run is.
_CHAIN: Final = re.compile(rf"(?<![^\W_])[^\W_]++(?:[_.{_APOSTROPHES}{_HYPHENS}]++[^\W_]++)++")
_LEFT_OUT: Final = dict.fromkeys(map(ord, f"_{_APOSTROPHES}{_HYPHENS}"))
_POSSESSIVES: Final = tuple(f"{sign}s" for sign in _APOSTROPHES)
_SUFFIXED: Final = re.compile(r"(?<![^\W_])[^\W\d_][^\W_]*+(?:\+\+|#(?!\w))")
_PREFIXED: Final = re.compile(r"(?<![\w.-])(--?|\.)([^\W\d_][\w-]*+)")
# More capitals than this are a key or a digest.
_PARTS_MAX: Final = 8
# One letter says nothing of its own.
_PART_LETTERS_MIN: Final = 2


def parts(token: str) -> list[str]:
    """The words in words with capitals inside: `parseHTTPHeader` has parse, http and header."""
    if not _CAPITALS.search(token):
        return []
    found = []
    for run in _RUN.findall(token):
        pieces = _PART.findall(run) if _CAPITALS.search(run) else []
        if len(pieces) <= _PARTS_MAX:
            found += [piece.lower() for piece in pieces if len(piece) >= _PART_LETTERS_MIN]
    return found


def compounds(token: str) -> list[str]:
    """What signs hold together, as one word: `e-mail` is `email`, `v3.11.2` is `3.11.2`, and `--dry-run` also `--dryrun`."""
    lowered = token.lower()
    found = []
    for chain in _CHAIN.findall(lowered):
        bare = chain[1:] if chain[0] == "v" and chain[1].isdigit() else chain
        bare = bare[:-2] if bare.endswith(_POSSESSIVES) else bare
        # Without its `'s`, a chain may be a plain word.
        if not bare.isalnum():
            found.append(bare.translate(_LEFT_OUT))
    if "+" in lowered or "#" in lowered:
        found += _SUFFIXED.findall(lowered)
    return found + [sign + name.translate(_LEFT_OUT) for sign, name in _PREFIXED.findall(lowered)]
