"""Functions of single values: rounding, powers, trigonometry, clamping, and parts of dates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame

__all__ = ["DATES", "ELEMENTWISE", "clamp", "larger", "round_to", "smaller"]

ELEMENTWISE: dict[str, Callable[[Cells], Cells]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "deg": lambda values: values * 180 / np.pi,
    "exp": np.exp,
    "floor": np.floor,
    "ln": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "rad": lambda values: values * np.pi / 180,
    # Zeros keep their sign.
    "sgn": lambda values: np.where(values == 0, values, np.sign(values)),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


def smaller(left: Cells, right: Cells) -> Cells:
    """As Go's Min: NaN wins over every number but negative infinity."""
    return np.where(np.isneginf(left) | np.isneginf(right), -np.inf, np.minimum(left, right))


def larger(left: Cells, right: Cells) -> Cells:
    """As Go's Max: NaN wins over every number but infinity."""
    return np.where(np.isposinf(left) | np.isposinf(right), np.inf, np.maximum(left, right))


def clamp(frame: VectorFrame, low: Cells, high: Cells) -> VectorFrame:
    """Between two bounds, each with a value for every step; nothing where they are crossed."""
    values = larger(low[None, :], smaller(high[None, :], frame.values))
    return frame.with_values(values, present=frame.present & ~(high < low)[None, :], unnamed=True)


def round_to(frame: VectorFrame, nearest: Cells) -> VectorFrame:
    """To the nearest multiple; ties go up."""
    inverse = (1.0 / nearest)[None, :]
    return frame.with_values(np.floor(frame.values * inverse + 0.5) / inverse, unnamed=True)


# Where a value is no 64-bit number of seconds, Prometheus shows this moment on amd64: the conversion's result there.
_NO_TIME = {
    "day_of_month": 4,
    "day_of_week": 0,
    "day_of_year": 339,
    "days_in_month": 31,
    "hour": 15,
    "minute": 30,
    "month": 12,
    "year": 292_277_026_596,
}
_Days = np.ndarray[tuple[int, ...], np.dtype[np.datetime64]]
_SECONDS_MAX = 2.0**63


def _seconds(values: Cells) -> _Days:
    return np.where(_is_time(values), np.trunc(values), 0.0).astype(np.int64).astype("datetime64[s]")


def _is_time(values: Cells) -> Presence:
    found: Presence = (values > -_SECONDS_MAX) & (values < _SECONDS_MAX)
    return found


def _since(times: _Days, unit: str) -> Cells:
    """How many days or months a time lies behind the beginning of its year or month."""
    coarse, fine = unit.split()
    start = times.astype(f"datetime64[{coarse}]")
    found: Cells = (times.astype(f"datetime64[{fine}]") - start.astype(f"datetime64[{fine}]")).astype(np.float64)
    return found


def _days_in_month(times: _Days) -> Cells:
    month = times.astype("datetime64[M]")
    found: Cells = ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(np.float64)
    return found


def _weekday(times: _Days) -> Cells:
    # The first of January 1970 was a Thursday.
    return ((times.astype("datetime64[D]").astype(np.int64) + 4) % 7).astype(np.float64)


_PARTS: dict[str, Callable[[_Days], Cells]] = {
    "day_of_month": lambda times: _since(times, "M D") + 1,
    "day_of_week": _weekday,
    "day_of_year": lambda times: _since(times, "Y D") + 1,
    "days_in_month": _days_in_month,
    "hour": lambda times: _since(times, "D h"),
    "minute": lambda times: _since(times, "h m"),
    "month": lambda times: _since(times, "Y M") + 1,
    "year": lambda times: times.astype("datetime64[Y]").astype(np.float64) + 1970,
}


def _date_part(name: str) -> Callable[[Cells], Cells]:
    return lambda values: np.where(_is_time(values), _PARTS[name](_seconds(values)), _NO_TIME[name])


DATES: dict[str, Callable[[Cells], Cells]] = {name: _date_part(name) for name in _PARTS}
