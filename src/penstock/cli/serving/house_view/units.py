"""Numbers as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["byte_text", "counted", "rate_text", "seconds_text", "time_text"]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def byte_text(count: float) -> str:
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit is returned")


def counted(count: float, one: str, many: str = "") -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,.0f} {one if count == 1 else many or one + 's'}"


def rate_text(per_second: float, unit: str) -> str:
    """`1,204 rows/s`; below ten with a decimal, so that a slow stream does not look like none."""
    if per_second <= 0:
        return f"0 {unit}/s"
    if per_second < 0.05:
        return f"< 0.1 {unit}/s"
    return f"{per_second:,.0f} {unit}/s" if per_second >= 10 else f"{per_second:.1f} {unit}/s"


def seconds_text(seconds: float) -> str:
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


def time_text(time_ms: float) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
