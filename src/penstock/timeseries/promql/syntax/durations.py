"""Durations and numbers as PromQL writes them: `1h30m`, `500ms`, `0x1f`, `1e3`, `1_000`, `Inf`."""

from __future__ import annotations

import math
import re

__all__ = ["DURATION", "NUMBER", "duration_seconds", "number_value"]

_UNITS_MS = {"y": 31_536_000_000, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
# Units in falling order, each at most once.
DURATION = re.compile(
    "(?=[0-9])" + "".join(rf"(?:([0-9]+){unit})?" for unit in ("y", "w", "d", "h", "m(?!s)", "s", "ms"))
)
NUMBER = re.compile(
    r"0[xX][0-9a-fA-F_]+|(?:[0-9](?:_?[0-9])*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
)
_OCTAL = re.compile(r"0[0-7_]+")
# What Go's nanosecond durations hold.
_DURATION_SECONDS_MAX = 2**63 / 1e9
_DIGITS_MAX = 20
_INTEGER_MAX = 2**63 - 1


def duration_seconds(text: str) -> float | None:
    """Seconds of a whole duration; None if it is none, or too long."""
    match = DURATION.fullmatch(text)
    if match is None:
        return None
    counts = ((count or "").lstrip("0") or "0" for count in match.groups())
    # Of a number with more digits than any duration the first ones tell enough.
    total_ms = sum(int(count[:_DIGITS_MAX]) * unit for count, unit in zip(counts, _UNITS_MS.values(), strict=True))
    return total_ms / 1000 if total_ms / 1000 < _DURATION_SECONDS_MAX else None


def number_value(text: str) -> float:
    """The value of a number token; infinite, or a `ValueError`, where it has none."""
    lowered = text.lower()
    if lowered in ("inf", "nan"):
        return math.inf if lowered == "inf" else math.nan
    if lowered.startswith("0x"):
        whole = int(text, 16)
        if whole > _INTEGER_MAX:
            raise ValueError(f'error parsing number: strconv.ParseFloat: parsing "{text}": invalid syntax')
        return float(whole)
    # An octal number beyond 64 bits is read as a decimal one.
    if _OCTAL.fullmatch(text) and (whole := int(text.replace("_", ""), 8)) <= _INTEGER_MAX:
        return float(whole)
    return float(text)
