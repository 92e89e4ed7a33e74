"""Times and steps as people write them: `now`, `-1h`, `now-30m`, seconds since 1970, or a date and time."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

import click

__all__ = ["duration_ms", "instant_ms"]

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?")


def duration_ms(text: str) -> int:
    """`30s`, `1h30m`, or seconds."""
    if _NUMBER.fullmatch(text) and float(text) > 0:
        return max(1, _whole(text, float(text) * 1000))
    if not _DURATION.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not a duration: write seconds, or 30s, 5m, 1h30m")
    found = _parts_ms(text)
    if not found:
        raise click.BadParameter(f"{text!r} is not a duration: it must be longer than 0")
    return max(1, _whole(text, found))


def _parts_ms(text: str) -> float:
    return sum(float(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text))


def _whole(text: str, milliseconds: float) -> int:
    if math.isinf(milliseconds):
        raise click.BadParameter(f"{text[:40]!r} is too long to be a time")
    return round(milliseconds)


def instant_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970. What begins with `-` or `now` is relative."""
    if text == "now":
        return now_ms
    relative = text.removeprefix("now")
    if relative[:1] in ("-", "+") and _DURATION.fullmatch(relative[1:]):
        return now_ms + (1 if relative[0] == "+" else -1) * _whole(text, _parts_ms(relative[1:]))
    if _NUMBER.fullmatch(text):
        return _whole(text, float(text) * 1000)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time: write now, -1h, seconds since 1970, or 2026-01-31T12:00:00Z"
        ) from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
