"""Column statistics of a data file: bounds that are proved, typed as JSON types them.

A bound that is None is unknown. A string bound may be cut: still a bound, but no longer a value that occurs.
Floats that JSON cannot carry (NaN, infinities) become unknown bounds. Format page: docs/format/catalog.md.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final, TypeAlias

import msgspec

from penstock.errors import InvalidInput

__all__ = ["STRING_CHARACTERS_MAX", "ColumnStats", "Scalar", "column_stats", "stats_json", "string_above"]

Scalar: TypeAlias = int | float | str | bool

# A longer string is cut: bounds of URLs and stack traces would otherwise be most of the catalog.
STRING_CHARACTERS_MAX: Final = 64
_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


class ColumnStats(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of one column of one data file.

    `has_nan` matters to floats: None is unknown. `type` is "timestamp" for nanoseconds since the Unix epoch.
    """

    min: int | float | str | bool | None = None
    max: int | float | str | bool | None = None
    has_nulls: bool = True
    has_nan: bool | None = None
    all_null: bool = False
    min_cut: bool = False
    max_cut: bool = False
    type: str = ""


def column_stats(
    minimum: Scalar | None,
    maximum: Scalar | None,
    *,
    has_nulls: bool = True,
    has_nan: bool | None = None,
    all_null: bool = False,
    type: str = "",
) -> ColumnStats:
    """Statistics from the least and the greatest value, made fit for the catalog: strings cut, odd floats unknown."""
    low, high = _finite(minimum), _finite(maximum)
    if _is_above(low, high):
        raise InvalidInput(f"statistics from {low!r:.60} to {high!r:.60}", "the minimum is above the maximum")
    cut_low, cut_high = _is_long(low), _is_long(high)
    if isinstance(low, str) and cut_low:
        low = low[:STRING_CHARACTERS_MAX]
    if isinstance(high, str) and cut_high:
        high = string_above(high[:STRING_CHARACTERS_MAX])
    return ColumnStats(
        min=low,
        max=high,
        has_nulls=has_nulls,
        has_nan=has_nan,
        all_null=all_null,
        min_cut=cut_low,
        max_cut=cut_high,
        type=type,
    )


def string_above(prefix: str) -> str | None:
    """The shortest string above every string that begins with `prefix`; None when there is none."""
    for end in range(len(prefix), 0, -1):
        following = ord(prefix[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return prefix[: end - 1] + chr(following)
    return None


def stats_json(stats: ColumnStats) -> dict[str, Any]:
    """As the catalog writes it: the three members that every reader knows, then those that say something."""
    json: dict[str, Any] = {"min": stats.min, "max": stats.max, "has_nulls": stats.has_nulls}
    if stats.has_nan is not None:
        json["has_nan"] = stats.has_nan
    for name in ("all_null", "min_cut", "max_cut", "type"):
        if value := getattr(stats, name):
            json[name] = value
    return json


def _finite(value: Scalar | None) -> Scalar | None:
    return None if isinstance(value, float) and not isfinite(value) else value


def _is_above(low: Scalar | None, high: Scalar | None) -> bool:
    if isinstance(low, str) and isinstance(high, str):
        return low > high
    return isinstance(low, int | float) and isinstance(high, int | float) and low > high


def _is_long(value: Scalar | None) -> bool:
    return isinstance(value, str) and len(value) > STRING_CHARACTERS_MAX
