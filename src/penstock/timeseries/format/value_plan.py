"""How the numbers of a series are packed: differences less a slope, or distances from the middle, and how large they are.

Numbers of the same size stand in a column together, so that pcodec never has to tell a quiet series from a loud one. Bits
that are zero in all numbers of a series, as those of sizes in pages of memory, are not packed at all.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.timeseries.arrays import Array, Indices

__all__ = [
    "EXPONENT_MASK",
    "MIDDLE",
    "NEAR",
    "SIZE_SHIFT",
    "ZEROS_MAX",
    "ZEROS_SHIFT",
    "column_keys",
    "plan_series",
]

# A plan says how a series is packed: exponent + 1 in the low four bits (0: doubles as they are), then one bit for
# distances from the middle instead of differences, five for the size of its numbers (0: all are zero), five for the
# lowest bits that are zero in all of them, and one for values that lie beside their quotients.
_EXPONENT_BITS: Final = 4
EXPONENT_MASK: Final = (1 << _EXPONENT_BITS) - 1
MIDDLE: Final = 1 << _EXPONENT_BITS
SIZE_SHIFT: Final = _EXPONENT_BITS + 1
ZEROS_SHIFT: Final = SIZE_SHIFT + 5
ZEROS_MAX: Final = 31
NEAR: Final = 1 << 15
_KEY_MASK: Final = (1 << ZEROS_SHIFT) - 1 - EXPONENT_MASK
# A column holds numbers whose mean sizes differ by less than a factor of four.
_BITS_PER_SIZE: Final = 2
# Only a slope that is this much larger than the differences from it is worth its bytes.
_SLOPE_FACTOR: Final = 2.0
# Distances from the middle must be this much smaller than differences.
_MIDDLE_FACTOR: Final = 0.9


def plan_series(exponents: Array, numbers: Array, offsets: Indices) -> tuple[Array, Array, Array, Array]:
    """For each series its plan, base and slope, and for every sample what is left of it."""
    counts, firsts, lasts = np.diff(offsets), offsets[:-1], offsets[1:] - 1
    if not len(counts):
        return exponents, exponents, exponents, numbers
    origins = numbers[firsts]
    numbers = numbers - np.repeat(origins, counts)
    shifts = _zero_bits(np.bitwise_or.reduceat(numbers, firsts))
    if shifts.any():
        numbers = numbers >> np.repeat(shifts, counts)
    steps = np.diff(numbers, prepend=0)
    steps[firsts] = 0
    gaps = np.maximum(counts - 1, 1)
    slopes = np.rint((numbers[lasts] - numbers[firsts]) / gaps).astype(np.int64)
    along = steps - np.repeat(slopes, counts)
    along[firsts] = 0
    plain, sloped = (_sums(np.abs(part), firsts) / gaps for part in (steps, along))
    bent = np.abs(slopes) > _SLOPE_FACTOR * sloped
    slopes = np.where(bent, slopes, 0)
    middles = np.rint(_sums(numbers, firsts) / counts).astype(np.int64)
    around = numbers - np.repeat(middles, counts)
    spread = _sums(np.abs(around), firsts) / counts
    size = np.where(bent, sloped, plain)
    middle = spread < _MIDDLE_FACTOR * size
    residuals = np.where(np.repeat(middle, counts), around, np.where(np.repeat(bent, counts), along, steps))
    size = np.where(middle, spread, size)
    # A series whose numbers are not all zero has a size of 1 at least.
    bits = np.ceil(np.log2(1 + size)).astype(np.int64)
    sizes = np.where(size > 0, 1 + bits // _BITS_PER_SIZE, 0)
    plans = np.where(
        exponents < 0, 0, exponents + 1 + MIDDLE * middle + (sizes << SIZE_SHIFT) + (shifts << ZEROS_SHIFT)
    )
    return plans, origins + (np.where(middle, middles, 0) << shifts), np.where(middle, 0, slopes), residuals


def _sums(numbers: Array, firsts: Indices) -> Array:
    # As floats: an hour of numbers near 2^53 is more than 64 bits hold.
    return np.add.reduceat(numbers, firsts, dtype=np.float64)


def _zero_bits(bits: Array) -> Array:
    """How many of the lowest bits are zero in all numbers of a series; none of a series that is constant."""
    lowest = bits & -bits
    zeros = np.log2(np.maximum(lowest, 1).astype(np.float64)).astype(np.int64)
    return np.minimum(zeros, ZEROS_MAX)


def column_keys(plans: Array) -> Array:
    """What decides on the column of a series: middle and size of its plan, with all exponents but 0 alike."""
    keys: Array = (plans & _KEY_MASK) + np.minimum(plans & EXPONENT_MASK, 2)
    return keys
