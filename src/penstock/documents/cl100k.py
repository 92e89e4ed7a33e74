"""Exact cl100k counts, one encoding a region: every chunk's count is read off sums, not counted again.

cl100k cuts a text into words by a pattern that never looks behind, and merges bytes within a word only. A *seam* is a
place where such a cut is certain from the few characters around it, whatever lies further away: between two seams a
text has the same tokens alone as inside its document. So the count of a chunk is a difference of two sums, plus the
few characters between its ends and the nearest seams, which are encoded again. Special tokens spelled out in a
document are ordinary text here: a document cannot forge control tokens.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.documents.tokens import Ruler
from penstock.errors import Unsupported

__all__ = ["ExactTokens"]

# Ranks 0 to 100,255 are the vocabulary; what follows are special tokens.
_RANKS: Final = 100_256

# How far from a chunk's end a seam is looked for; beyond it the whole chunk is encoded again.
_SEAM_SEARCH_BYTES: Final = 256

# White space as the pattern means it: Unicode's White_Space, which is not Python's \s.
_BLANK: Final = " \\t\\x0b\\x0c\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
# Characters that no Unicode version calls letter or number; a list of what is known, not of all there are.
_MARK: Final = "\\x00-/:-@\\[-`{-\\x7f\\u2010-\\u2027\\u2030-\\u205e\\u3001-\\u3004\\u3008-\\u3020\\uff01-\\uff0f"
_WORD: Final = "[^\\W_]"  # letters and numbers: underscore is punctuation to cl100k

_SEAM: Final = re.compile(
    f"(?<={_WORD})(?=[{_MARK}{_BLANK}])"  # a word has ended
    f"|(?<=[^{_BLANK}\\r\\n])(?=[{_BLANK}])"  # white space begins, and takes no character before it
    f"|(?<=[\\r\\n])(?=[{_BLANK}]*[^{_BLANK}\\r\\n])"  # the last line break of a run of white space
)
_LAST_SEAM: Final = re.compile(f"(?s:.*)(?:{_SEAM.pattern})")
_CLOSER_LOOK: Final = 2


class ExactTokens:
    """Counts as OpenAI's cl100k_base does, with the vocabulary that `splintr` carries. Picklable: it holds nothing."""

    name = "cl100k"

    def count(self, text: str) -> int:
        return len(_vocabulary().encode_flat(text)) // 4

    def ruler(self, data: bytes, text: str) -> Ruler:
        return _ExactRuler(data, text)

    def __repr__(self) -> str:
        return "ExactTokens()"


class _ExactRuler:
    units_per_token = 1

    def __init__(self, data: bytes, text: str) -> None:
        self._data = data
        self._encode = _vocabulary().encode_flat
        ids = np.frombuffer(self._encode(text), dtype="<u4")
        # Entry i is where token i begins; the last is the region's end. Wide numbers, because a search for a Python
        # number would copy a narrower array each time.
        starts: npt.NDArray[np.int64] = np.zeros(len(ids) + 1, dtype=np.int64)
        np.cumsum(_lengths().take(ids), out=starts[1:])
        self._starts = starts
        self._last = len(ids)
        # One number is read faster from a view than from an array.
        self._view = memoryview(starts.data)

    def mark(self, place: int) -> int:
        return int(self._starts.searchsorted(place))

    def place(self, mark: int) -> int:
        # This runs several times a chunk: the usual case comes first.
        return int(self._view[mark if 0 <= mark <= self._last else 0 if mark < 0 else self._last])

    def count(self, start: int, end: int) -> int:
        data = self._data
        first = start if is_seam(data, start) else _next_seam(data, start, end)
        last = end if is_seam(data, end) else _previous_seam(data, start, end)
        if first > last:
            return self._alone(start, end)
        # Both are seams, hence starts of tokens: their difference counts whole tokens.
        tokens = self.mark(last) - self.mark(first)
        if start < first:
            tokens += self._alone(start, first)
        if last < end:
            tokens += self._alone(last, end)
        return tokens

    def _alone(self, start: int, end: int) -> int:
        return len(self._encode(self._data[start:end].decode("utf-8"))) // 4


def is_seam(data: bytes, place: int) -> bool:
    """Whether cl100k is certain to cut at `place`, seen from its neighbours alone."""
    if place in (0, len(data)):
        return True
    verdict = _SEAM_BYTES[data[place - 1] << 8 | data[place]]
    if verdict != _CLOSER_LOOK:
        return bool(verdict)
    before = data[max(0, place - 4) : place].decode("utf-8", "ignore")[-1:]
    around = before + data[place : place + _SEAM_SEARCH_BYTES].decode("utf-8", "ignore")
    return bool(before) and _SEAM.match(around, 1) is not None


def _next_seam(data: bytes, start: int, end: int) -> int:
    """The first seam after `start`, or a place past `end` when none is near."""
    text = data[start : min(end, start + _SEAM_SEARCH_BYTES)].decode("utf-8", "ignore")
    found = _SEAM.search(text, 1) if len(text) > 1 else None
    return start + len(text[: found.start()].encode("utf-8")) if found else end + 1


def _previous_seam(data: bytes, start: int, end: int) -> int:
    """The last seam before `end`, or a place before `start` when none is near."""
    low = max(start, end - _SEAM_SEARCH_BYTES)
    text = data[low:end].decode("utf-8", "ignore")
    found = _LAST_SEAM.match(text, 1) if len(text) > 1 else None
    return end - len(text[found.end() :].encode("utf-8")) if found else start - 1


def _seam_bytes() -> bytes:
    """The verdict on every pair of bytes: 0 no, 1 yes, 2 when more must be seen."""
    verdicts = bytearray([_CLOSER_LOOK]) * 65536
    for before in range(128):
        for after in range(128):
            pair = chr(before) + chr(after)
            # Blanks after a line break: whether another break follows is not seen in two bytes.
            unclear = pair[0] in "\r\n" and pair[1] in " \t\x0b\x0c"
            verdicts[before << 8 | after] = _CLOSER_LOOK if unclear else _SEAM.match(pair, 1) is not None
    return bytes(verdicts)


_SEAM_BYTES: Final = _seam_bytes()


@cache
def _vocabulary() -> Any:
    """cl100k without its special tokens: the shipped encoder that returns bytes would match them in the text."""
    splintr = _splintr()
    lines = [b"%s %d" % (base64.b64encode(token), rank) for rank, token in enumerate(_token_bytes())]
    return splintr.Tokenizer.from_bytes(b"\n".join(lines), splintr.CL100K_BASE_PATTERN, None)


@cache
def _lengths() -> npt.NDArray[np.uint8]:
    return np.array([len(token) for token in _token_bytes()], dtype=np.uint8)


@cache
def _token_bytes() -> tuple[bytes, ...]:
    shipped = _splintr().Tokenizer.from_pretrained("cl100k_base")
    return tuple(shipped.decode_token_bytes(rank) for rank in range(_RANKS))


def _splintr() -> Any:
    try:
        import splintr
    except ImportError as error:
        raise Unsupported(
            "exact token counts are not available", "splintr-rs is not installed", "install penstock[documents]"
        ) from error
    return splintr
