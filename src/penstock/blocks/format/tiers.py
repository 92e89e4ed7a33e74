"""When fragments of a bucket are folded into one. Pure.

Sizes fall into tiers, each four times the one below. A new fragment is folded with the youngest ones of its
own tier or below once there are three of them, and the result is looked at again. So a byte is written about
once per tier, a bucket has a few fragments per tier, and a large fragment is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["FRAGMENT_BYTES_MAX", "foldable"]

# The largest value a fold makes: beyond it, reading a part of a bucket would cost more than its fragments do.
FRAGMENT_BYTES_MAX: Final = 256 << 10
_SMALLEST_TIER_BYTES: Final = 1 << 10
_TIER_FACTOR_BITS: Final = 2
_FRAGMENTS_PER_TIER: Final = 4


def foldable(sizes: Sequence[int], arriving: int) -> int:
    """How many of the youngest fragments (`sizes` is oldest first) to fold with one of `arriving` bytes."""
    folded, total = 0, arriving
    while True:
        alike = _alike(sizes[: len(sizes) - folded], _tier(total))
        grown = total + sum(sizes[len(sizes) - folded - alike : len(sizes) - folded])
        if alike < _FRAGMENTS_PER_TIER - 1 or grown > FRAGMENT_BYTES_MAX:
            return folded
        folded, total = folded + alike, grown


def _alike(sizes: Sequence[int], tier: int) -> int:
    """How many fragments at the young end are of this tier or below."""
    count = 0
    for size in reversed(sizes):
        if _tier(size) > tier:
            break
        count += 1
    return count


def _tier(size: int) -> int:
    return max(0, (size // _SMALLEST_TIER_BYTES).bit_length() - 1) // _TIER_FACTOR_BITS
