"""Sizes and times as people write them in a configuration: `32MB`, `25ms`, `72h`, or a plain number."""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import InvalidInput

__all__ = ["parse_seconds", "parse_size"]

# Powers of 1,024, as tools for disks and memory count them; `MB` and `MiB` are one.
_SIZES: Final = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: int | float | str) -> int:
    """Bytes."""
    number, unit = _split(value, "size", "32MB")
    unit = unit.upper().removesuffix("IB").removesuffix("B") or "B"
    if unit not in _SIZES:
        raise InvalidInput(f"{value!r} is not a size", f"its unit is none of {', '.join(_SIZES)[2:]}", "write 32MB")
    return int(number * _SIZES[unit])


def parse_seconds(value: int | float | str) -> float:
    """Seconds; a plain number is taken as such."""
    number, unit = _split(value, "duration", "25ms")
    if unit not in _SECONDS:
        raise InvalidInput(
            f"{value!r} is not a duration", f"its unit is none of {', '.join(_SECONDS)[2:]}", "write 25ms"
        )
    return number * _SECONDS[unit]


def _split(value: int | float | str, what: str, example: str) -> tuple[float, str]:
    if isinstance(value, bool):
        raise InvalidInput(f"{value!r} is not a {what}", "it is a boolean", f"write {example}")
    if isinstance(value, int | float):
        value = repr(value)
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise InvalidInput(f"{value!r} is not a {what}", "it must be a number and a unit", f"write {example}")
    return float(match[1]), match[2]
