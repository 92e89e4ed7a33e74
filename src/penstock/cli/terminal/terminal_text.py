"""What strangers wrote, as a terminal may show it: without the characters that would command it."""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["terminal_text"]

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# They turn the direction of all that follows on the line, the words of others included.
_TURNS: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def terminal_text(text: str) -> str:
    """The text with its blanks kept, and one sign for every control, surrogate and turn of direction in it."""
    return "".join(_REPLACEMENT if _is_command(character) else character for character in text)


def _is_command(character: str) -> bool:
    return character in _TURNS or (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t")
