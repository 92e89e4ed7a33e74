"""Quantiles and fractions of cumulative buckets, for many steps at once (buckets × steps, bounds rising)."""

from __future__ import annotations

import numpy as np

from penstock.timeseries.promql.columns.frame import Cells, Presence

__all__ = ["bucket_fraction", "bucket_quantile"]

# Differences that are nothing but rounding.
_TOLERANCE = 1e-12
_BUCKETS_MIN = 2


def bucket_quantile(q: Cells, bounds: Cells, counts: Cells) -> tuple[Cells, Presence]:
    """Quantiles, interpolated within their bucket, and at which steps counts that fell had to be lifted."""
    outside = np.where(np.isnan(q), np.nan, np.where(q < 0, -np.inf, np.inf))
    inside = (q >= 0) & (q <= 1)
    if not np.isposinf(bounds[-1]) or len(bounds) < _BUCKETS_MIN or not inside.any():
        return np.where(inside, np.nan, outside), np.zeros(len(q), np.bool_)
    counts, lifted = _monotonic(counts)
    total = counts[-1]
    rank = np.where(inside, q, 0.0) * total
    bucket = (~(counts[:-1] >= rank[None, :])).sum(axis=0)
    steps = np.arange(counts.shape[1])
    before = np.maximum(bucket - 1, 0)
    start = np.where(bucket > 0, bounds[before], 0.0)
    below = np.where(bucket > 0, counts[before, steps], 0.0)
    width = np.where(np.isposinf(bounds[bucket]), 0.0, bounds[bucket]) - start
    within = counts[bucket, steps] - below
    found = start + width * ((rank - below) / within)
    found = np.where((bucket == 0) & (bounds[0] <= 0), bounds[0], found)
    found = np.where(bucket == len(bounds) - 1, bounds[-2], found)
    found = np.where(total == 0, np.nan, found)
    return np.where(inside, found, outside), lifted & inside


def _monotonic(counts: Cells) -> tuple[Cells, Presence]:
    """Counts that never fall, and at which steps one did by more than rounding."""
    out = counts.copy()
    lifted = np.zeros(counts.shape[1], np.bool_)
    highest = out[0]
    for row in range(1, len(out)):
        current = out[row]
        equal = _almost_equal(highest, current)
        fallen = (current < highest) & ~equal
        lifted |= fallen
        out[row] = np.where(equal | fallen, highest, current)
        highest = out[row]
    return out, lifted


def _almost_equal(left: Cells, right: Cells) -> Presence:
    size = np.abs(left) + np.abs(right)
    close = np.abs(left - right) / np.where(size == 0, 1.0, size) < _TOLERANCE
    found: Presence = (left == right) | (close & (left != 0) & (right != 0))
    return found


def bucket_fraction(lower: Cells, upper: Cells, bounds: Cells, counts: Cells) -> Cells:
    """The share of observations between two values."""
    total = counts[-1]
    if not np.isposinf(bounds[-1]):
        return np.full(len(lower), np.nan)
    share = (_rank(upper, bounds, counts) - _rank(lower, bounds, counts)) / total
    share = np.where(lower >= upper, 0.0, share)
    return np.where((total == 0) | np.isnan(lower) | np.isnan(upper), np.nan, share)


def _rank(value: Cells, bounds: Cells, counts: Cells) -> Cells:
    """How many observations lie below a value. Buckets without a finite width are not interpolated."""
    lows = np.concatenate([[0.0 if bounds[0] > 0 else -np.inf], bounds[:-1]])
    bucket = np.minimum((bounds[:, None] <= value[None, :]).sum(axis=0), len(bounds) - 1)
    steps = np.arange(counts.shape[1])
    low, high = lows[bucket], bounds[bucket]
    below = np.where(bucket > 0, counts[np.maximum(bucket - 1, 0), steps], 0.0)
    own = counts[bucket, steps]
    part = np.where(np.isinf(high), 0.0, (value - low) / (high - low))
    rank = np.where(np.isneginf(low), own, below + (own - below) * part)
    # At or below the first bucket's lower edge nothing was counted; at or above the last bound everything.
    rank = np.where(value <= low, below, rank)
    rank = np.where(np.isposinf(value), counts[-1], rank)
    found: Cells = np.minimum(rank, counts[-1])
    return found
