"""Sizes and times as people write them in a configuration: `32MB`, `25ms`, `72h`, or a plain number."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.errors import InvalidInput
from penstock.quiver.setting_values import shown

__all__ = ["parse_seconds", "parse_size"]

# Powers of 1,024, as tools for disks and memory count them; `MB` and `MiB` are one.
_SIZES: Final = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DIGITS_MAX: Final = 40
_QUANTITY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: Any, name: str = "the size") -> int:
    """Bytes. `name` is the setting, for an error."""
    number, unit = _split(value, name, "32MB")
    unit = unit.upper().removesuffix("IB").removesuffix("B") or "B"
    if unit not in _SIZES:
        raise InvalidInput(
            f"{name} is {shown(value)}, which is not a size",
            f"its unit is none of {', '.join(_SIZES)[2:]}",
            "write 32MB",
        )
    return int(number * _SIZES[unit])


def parse_seconds(value: Any, name: str = "the duration") -> float:
    """Seconds; a plain number is taken as such. `name` is the setting, for an error."""
    number, unit = _split(value, name, "25ms")
    if unit not in _SECONDS:
        raise InvalidInput(
            f"{name} is {shown(value)}, which is not a duration",
            f"its unit is none of {', '.join(_SECONDS)[2:]}",
            "write 25ms",
        )
    return number * _SECONDS[unit]


def _split(value: Any, name: str, example: str) -> tuple[float, str]:
    is_plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_plain or isinstance(value, str)):
        kinds = {bool: "a boolean", type(None): "empty"}
        why = f"it is {kinds.get(type(value), f'a {type(value).__name__}')}"
        raise InvalidInput(f"{name} is {shown(value)}", f"{why}, not a number and a unit", f"write {example}")
    match = _QUANTITY.fullmatch(shown(value) if is_plain else value)
    if match is None:
        raise InvalidInput(f"{name} is {shown(value)}", "it must be a number and a unit", f"write {example}")
    if len(match[1]) > _DIGITS_MAX:
        raise InvalidInput(f"{name} is {shown(value)}", "no disk and no clock counts that far", f"write {example}")
    return float(match[1]), match[2]
