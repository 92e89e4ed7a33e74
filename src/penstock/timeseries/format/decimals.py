"""Series of decimal numbers as whole ones: 3.25 is 325 with an exponent of 2.

A series is decimal if dividing its whole numbers by the power of ten gives all of its values back, bit for bit. That
holds for what exporters print with up to 15 digits; sums of durations and ratios are usually not decimal.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.timeseries.arrays import Array, Bools, Floats, Indices, ranges

__all__ = ["EXPONENT_MAX", "POWERS", "decimals_of"]

# Powers of ten that a double holds exactly reach to 22; with more than 12 places hardly any series is decimal.
EXPONENT_MAX: Final = 12
# Exact on every machine, which `np.power` need not be: they decide what stored numbers mean.
POWERS: Final[Floats] = np.array([float(10**exponent) for exponent in range(EXPONENT_MAX + 1)])
# Whole numbers that a double holds exactly.
_WHOLE_MAX: Final = float(1 << 53)


def decimals_of(values: Floats, offsets: Indices) -> tuple[Array, Array]:
    """The exponent of each series, -1 if it is not decimal, and the whole number of every value (0 where it is not).

    Values are finite, and none is a negative zero: neither has a whole number.
    """
    counts = np.diff(offsets)
    exponents = np.full(len(counts), -1, np.int64)
    numbers = np.zeros(len(values), np.int64)
    waiting = np.arange(len(counts))
    for exponent in range(EXPONENT_MAX + 1):
        # A look at two values of each series spares most of the others.
        likely = waiting[_fit(values[offsets[waiting]], exponent) & _fit(values[offsets[waiting + 1] - 1], exponent)]
        if len(likely):
            whole = len(likely) == len(counts)
            rows = slice(None) if whole else ranges(offsets[likely], counts[likely])
            scaled = _scaled(values[rows], exponent)
            starts = offsets[:-1] if whole else np.cumsum(counts[likely]) - counts[likely]
            fit = np.logical_and.reduceat(_is_exact(scaled, values[rows], exponent), starts)
            found = likely[fit]
            exponents[found] = exponent
            mine = np.repeat(fit, counts[likely])
            places = np.flatnonzero(mine) if whole else rows[mine]  # type: ignore[index] # positions, then
            numbers[places] = scaled[mine].astype(np.int64)
            waiting = waiting[exponents[waiting] < 0]
        if not len(waiting):
            break
    return exponents, numbers


def _fit(values: Floats, exponent: int) -> Bools:
    return _is_exact(_scaled(values, exponent), values, exponent)


def _scaled(values: Floats, exponent: int) -> Floats:
    with np.errstate(over="ignore"):
        scaled: Floats = np.rint(values * POWERS[exponent])
    return scaled


def _is_exact(scaled: Floats, values: Floats, exponent: int) -> Bools:
    exact: Bools = (scaled / POWERS[exponent] == values) & (np.abs(scaled) <= _WHOLE_MAX)
    return exact
