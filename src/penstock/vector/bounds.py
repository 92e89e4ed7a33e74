"""Numbers that callers give: whole ones within bounds, or `InvalidInput` that names what was given."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from penstock.errors import InvalidInput

__all__ = ["whole_number"]


def whole_number(what: str, value: SupportsIndex, low: int, high: int, why: str) -> int:
    """A number of any integer type as Python's own; 2.0 is a measurement, and True a truth value."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None:
        raise InvalidInput(f"{what} = {value!r:.60}", f"it is not a whole number: {why}")
    if not low <= number <= high:
        raise InvalidInput(f"{what} = {number}", why)
    return number
