"""Series that are decimal but for the last bits: what exporters compute from whole numbers by other ways than one division.

A kernel's 555882261 microseconds become `n / 1000 / 1000` or `n * 1e-6`, and miss 555.882261 by a unit in the last place
now and then. Such a series is its whole numbers, and how many units each value lies above its quotient.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.timeseries.arrays import Array, Floats, Indices, ranges
from penstock.timeseries.format.decimals import EXPONENT_MAX, POWERS

__all__ = ["near_decimals_of"]

# How far a value may lie from its quotient, in units of its last place.
_UNITS_MAX: Final = 4
# Larger numbers say as much as the doubles themselves.
_NUMBER_MAX: Final = float(1 << 43)


def near_decimals_of(values: Floats, offsets: Indices, exponents: Array, numbers: Array) -> tuple[Array, Array]:
    """Give exponents and whole numbers to series that have none (-1) and are nearly decimal, in place.

    Returns which series these are, and the units of all their values, one after the other.
    """
    counts = np.diff(offsets)
    waiting = np.flatnonzero(exponents < 0)
    near = np.zeros(len(counts), np.bool_)
    units = np.zeros(len(values) if len(waiting) else 0, np.int64)
    for exponent in range(1, EXPONENT_MAX + 1):
        ends = values[offsets[waiting]], values[offsets[waiting + 1] - 1]
        likely = waiting[np.logical_and(*(_units(part, exponent)[2] for part in ends))]
        if len(likely):
            rows = ranges(offsets[likely], counts[likely])
            whole, above, fit = _units(values[rows], exponent)
            good = np.logical_and.reduceat(fit, np.cumsum(counts[likely]) - counts[likely])
            mine = np.repeat(good, counts[likely])
            exponents[likely[good]], near[likely[good]] = exponent, True
            numbers[rows[mine]], units[rows[mine]] = whole[mine], above[mine]
            waiting = waiting[~near[waiting]]
        if not len(waiting):
            break
    return near, units[np.repeat(near, counts)] if near.any() else units[:0]


def _units(values: Floats, exponent: int) -> tuple[Array, Array, Array]:
    """The nearest whole numbers, how far values lie above their quotients, and whether that is near."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(values * POWERS[exponent])
        small = np.abs(scaled) <= _NUMBER_MAX
        scaled = np.where(small, scaled, 0.0)
        above = values.view(np.int64) - (scaled / POWERS[exponent]).view(np.int64)
    return scaled.astype(np.int64), above, small & (np.abs(above) <= _UNITS_MAX)
