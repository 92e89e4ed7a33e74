"""What a provider answers, without what must not be kept: keys, tokens, passwords in addresses, and the texts sent to it.

Reports are stored, listed and shown on a dashboard; providers quote what they refuse. What is left still says what is
wrong. Better one word too many is hidden than one too few.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

__all__ = ["redacted"]

SECRET: Final = "[secret]"  # noqa: S105 what stands where one was
QUOTED: Final = "[text]"
# Of an answer, looked at; a report keeps less.
_CHARACTERS_MAX: Final = 2000
# A quotation is known by this many characters in a row, looked for at every other such place: whatever has twice as many
# is found wherever it begins.
_SHINGLE: Final = 12
_SECRETS: Final = (
    # Passwords in addresses.
    (re.compile(r"://[^/\s@\"']+@"), f"://{SECRET}@"),
    # Named values, in JSON, in headers and in queries.
    (
        re.compile(
            r"(?i)([\"']?\b(?:[\w-]*(?:api|access|secret|private|auth|session|sas)[\w-]*(?:key|token|secret|signature)"
            r"|key|apikey|token|password|passwd|pwd|secret|sig|signature|credential|authorization|x-amz-[\w-]+)[\"']?"
            r"\s*[:=]\s*[\"']?)(?:(?:bearer|basic|apikey)\s+)?[^\s\"',;&}\]]+"
        ),
        rf"\1{SECRET}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {SECRET}"),
    # Keys by their shape: a short prefix and a long random part, and signed tokens.
    (re.compile(r"\b(?:sk|pk|rk|pa|gsk|hf|ghp|gho|glpat|xox[abpr]|AIza|AKIA|ASIA)[-_]?[\w*-]{8,}"), SECRET),
    (re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]+){0,2}"), SECRET),
    (re.compile(r"\b(?=\w*\d)[\w+/=-]{32,}"), SECRET),
)


def redacted(answer: str, *, secrets: Iterable[str | None] = (), texts: Sequence[str] = ()) -> str:
    """`answer` without `secrets`, without what looks like one, and without longer quotations of `texts`."""
    shown = _readable(answer[:_CHARACTERS_MAX])
    for secret in secrets:
        if secret:
            shown = shown.replace(secret, SECRET)
    for pattern, replacement in _SECRETS:
        shown = pattern.sub(replacement, shown)
    return _without_quotations(shown, texts)


def _readable(answer: str) -> str:
    """With its escapes undone, so that a quotation looks like what is quoted."""
    with suppress(ValueError, RecursionError):
        answer = json.dumps(json.loads(answer), ensure_ascii=False)
    return " ".join(answer.replace('\\"', '"').replace("\\n", " ").replace("\\t", " ").replace("\\r", " ").split())


def _without_quotations(shown: str, texts: Sequence[str]) -> str:
    sent = "\0".join(" ".join(text.split()) for text in texts)
    short = [text for text in (" ".join(text.split()) for text in texts) if _is_short(text)]
    for text in short:
        shown = shown.replace(text, QUOTED)
    hidden = bytearray(len(shown))
    for start in range(0, len(shown) - _SHINGLE + 1, _SHINGLE // 2):
        if shown[start : start + _SHINGLE] in sent:
            before, behind = _extended(shown, start, sent)
            hidden[before:behind] = b"\1" * (behind - before)
    pieces = re.finditer(rb"\x01+|\x00+", hidden)
    return "".join(QUOTED if piece.group().startswith(b"\1") else shown[slice(*piece.span())] for piece in pieces)


def _is_short(text: str) -> bool:
    """A text that shingles may miss. A single word is left: the answer may have it for itself."""
    return _SHINGLE // 2 <= len(text) < 2 * _SHINGLE and " " in text


def _extended(shown: str, start: int, sent: str) -> tuple[int, int]:
    """The quotation around a place: from it as far as it goes on, and back to where it began."""
    behind = start + _SHINGLE
    while behind < len(shown) and shown[behind - _SHINGLE + 1 : behind + 1] in sent:
        behind += 1
    before = start
    while before > 0 and shown[before - 1 : before - 1 + _SHINGLE] in sent:
        before -= 1
    return before, behind
