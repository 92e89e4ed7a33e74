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


def duration_seconds(text: str) -> float | None:
    """Seconds of a whole duration; None if it is none, or too long."""
    match = DURATION.fullmatch(text)
    if match is None:
        return None
    total_ms = sum(
        int(count) * unit for count, unit in zip(match.groups(), _UNITS_MS.values(), strict=True) if count is not None
    )
    return total_ms / 1000 if total_ms / 1000 < _DURATION_SECONDS_MAX else None


def number_value(text: str) -> float:
    """The value of a number token."""
    lowered = text.lower()
    if lowered in ("inf", "nan"):
        return math.inf if lowered == "inf" else math.nan
    if lowered.startswith("0x"):
        return float(int(text, 16))
    if _OCTAL.fullmatch(text):
        return float(int(text.replace("_", ""), 8))
    return float(text)
