"""How many tokens a text has: exactly, where a tokenizer is installed, or by an estimate that knows scripts.

A `TokenCounter` counts whole texts and measures regions: a `Ruler` answers, for one region of a document, where so
many tokens end and how many a part of it has, without counting anything twice. Both counters are pure: equal
bytes give equal numbers on every machine. The exact one lives in `penstock.documents.cl100k`; the estimate here needs
nothing but NumPy and errs upwards for English, because the price of a low estimate is a refused request.
"""

from __future__ import annotations

from functools import cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput

__all__ = ["EstimatedTokens", "Ruler", "TokenCounter", "token_counter"]

# An estimate is a sum of whole numbers of this fraction of a token, so that sums are the same in any order.
UNITS_PER_TOKEN: Final = 64

# Tokens a character, fitted to cl100k on program messages in 109 languages, manuals and source code. An ASCII
# letter costs less at the start of a word, whose first token is paid for by the space before it.
_ASCII_TOKENS: Final = {
    "letter": 0.23,
    "initial": 0.10,
    "capital": 0.55,
    "digit": 0.50,
    "space": 0.40,
    "indent": 0.08,
    "newline": 0.90,
    "mark": 0.50,
}
# First bytes of a UTF-8 sequence, inclusive; scripts that the vocabulary hardly knows cost a token a byte.
_SCRIPT_TOKENS: Final = (
    (b"\xc2\x80", b"\xc3\xbf", 1.7),  # Latin-1: accents break words into short tokens
    (b"\xc4\x80", b"\xc5\xbf", 2.4),  # Latin Extended-A
    (b"\xc6\x80", b"\xcd\xbf", 1.75),
    (b"\xce\x80", b"\xcf\xbf", 1.0),  # Greek
    (b"\xd0\x80", b"\xd3\xbf", 0.54),  # Cyrillic
    (b"\xd4\x80", b"\xd5\xbf", 2.25),  # Armenian
    (b"\xd6\x80", b"\xd7\xbf", 1.35),  # Hebrew
    (b"\xd8\x80", b"\xdb\xbf", 0.92),  # Arabic
    (b"\xdc\x80", b"\xdf\xbf", 2.0),
    (b"\xe0\x80", b"\xe0\xa3", 2.5),
    (b"\xe0\xa4", b"\xe0\xa5", 1.16),  # Devanagari
    (b"\xe0\xa6", b"\xe0\xa7", 1.4),  # Bengali
    (b"\xe0\xa8", b"\xe0\xab", 1.94),  # Gurmukhi, Gujarati
    (b"\xe0\xac", b"\xe0\xad", 2.9),  # Odia
    (b"\xe0\xae", b"\xe0\xaf", 1.5),  # Tamil
    (b"\xe0\xb0", b"\xe0\xb3", 1.97),  # Telugu, Kannada
    (b"\xe0\xb4", b"\xe0\xb5", 1.8),  # Malayalam
    (b"\xe0\xb6", b"\xe0\xb7", 2.13),  # Sinhala
    (b"\xe0\xb8", b"\xe0\xb9", 0.97),  # Thai
    (b"\xe0\xba", b"\xe0\xbf", 2.1),  # Lao, Tibetan
    (b"\xe1\x80", b"\xe1\x83", 2.08),  # Myanmar, Georgian
    (b"\xe1\x84", b"\xe1\x9d", 2.5),
    (b"\xe1\x9e", b"\xe1\x9f", 1.8),  # Khmer
    (b"\xe1\xa0", b"\xe1\xb7", 2.5),
    (b"\xe1\xb8", b"\xe1\xbf", 0.9),  # Latin Extended Additional: Vietnamese
    (b"\xe2\x80", b"\xe2\xbf", 1.0),  # punctuation and symbols
    (b"\xe3\x80", b"\xe3\x83", 1.15),  # kana and their punctuation
    (b"\xe3\x84", b"\xe9\xbf", 1.35),  # Han
    (b"\xea\x80", b"\xed\xbf", 1.2),  # Hangul
    (b"\xee\x80", b"\xef\xbf", 1.0),  # full-width forms
    (b"\xf0\x80", b"\xf4\xbf", 2.5),  # emoji, historic scripts
)


class Ruler(Protocol):
    """The tokens of one region. A mark is how much of it lies before a place, in the ruler's own units."""

    @property
    def units_per_token(self) -> int: ...

    def mark(self, place: int) -> int:
        """The mark at a byte offset; inside a token, the next one."""
        ...

    def place(self, mark: int) -> int:
        """The byte offset of a mark, or the region's nearer end."""
        ...

    def count(self, start: int, end: int) -> int:
        """How many tokens the text of `[start, end)` has when it stands alone."""
        ...


class TokenCounter(Protocol):
    """A way to count tokens, named, so that chunks made with another one are known to differ."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int:
        """How many tokens `text` has."""
        ...

    def ruler(self, data: bytes, text: str) -> Ruler:
        """A ruler for a region; `data` is `text` in UTF-8."""
        ...


def token_counter(name: str) -> TokenCounter:
    """The counter of that name: `cl100k` counts exactly, `estimate` by script."""
    if name == "estimate":
        return EstimatedTokens()
    if name == "cl100k":
        from penstock.documents.cl100k import ExactTokens

        return ExactTokens()
    raise InvalidInput(f"no token counter {name!r}", "there are cl100k and estimate", "choose one of the two")


class EstimatedTokens:
    """Counts by script: a fifth over for English, close for most; bytes / 4 misses a third or more of Chinese."""

    name = "estimate"

    def count(self, text: str) -> int:
        data = text.encode("utf-8")
        return _tokens(int(_units(data).sum(dtype=np.int64)))

    def ruler(self, data: bytes, text: str) -> Ruler:
        return _EstimateRuler(data)

    def __repr__(self) -> str:
        return "EstimatedTokens()"


class _EstimateRuler:
    units_per_token = UNITS_PER_TOKEN

    def __init__(self, data: bytes) -> None:
        self._data = data
        # One entry a place between bytes; a character's units lie on its second byte, so places inside one never win.
        self._sums = np.zeros(len(data) + 1, dtype=np.int64)
        np.cumsum(_units(data), out=self._sums[1:])

    def mark(self, place: int) -> int:
        return int(self._sums[place])

    def place(self, mark: int) -> int:
        return max(0, int(self._sums.searchsorted(mark, side="right")) - 1)

    def count(self, start: int, end: int) -> int:
        if start == end:
            return 0
        # Alone, the first byte has nothing before it; in the region it may have.
        first = int(_unit_table()[ord("\n") << 8 | self._data[start]])
        return _tokens(int(self._sums[end] - self._sums[start + 1]) + first)


def _tokens(units: int) -> int:
    return -(-units // UNITS_PER_TOKEN)


def _units(data: bytes) -> npt.NDArray[np.uint8]:
    """The units of each byte, looked up by the byte and the one before it."""
    pairs = np.frombuffer(b"\n" + data, dtype=np.uint8).astype(np.uint16)
    pairs[1:] |= pairs[:-1] << np.uint16(8)
    return _unit_table()[pairs[1:]]


@cache
def _unit_table() -> npt.NDArray[np.uint8]:
    """By the byte and the one before it. Made at the first use: whoever only searches counts no tokens."""
    table = np.zeros((256, 256), dtype=np.uint8)
    for previous in range(256):
        for current in range(128):
            table[previous, current] = round(_ascii_tokens(previous, current) * UNITS_PER_TOKEN)
    for first, last, tokens in _SCRIPT_TOKENS:
        for lead in range(first[0], last[0] + 1):
            low = first[1] if lead == first[0] else 0x80
            high = last[1] if lead == last[0] else 0xBF
            table[lead, low : high + 1] = round(tokens * UNITS_PER_TOKEN)
    return table.reshape(-1)


def _ascii_tokens(previous: int, current: int) -> float:
    letter, before = chr(current), chr(previous) if previous < 128 else "x"
    if letter in " \t":
        return _ASCII_TOKENS["indent" if before in " \t" else "space"]
    if letter in "\r\n":
        return _ASCII_TOKENS["newline" if before not in "\r\n" else "indent"]
    if letter.isupper():
        return _ASCII_TOKENS["capital"]
    if letter.islower():
        return _ASCII_TOKENS["letter" if before.isalpha() else "initial"]
    return _ASCII_TOKENS["digit" if letter.isdigit() else "mark"]
