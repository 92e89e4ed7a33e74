"""Quantiles and fractions of cumulative buckets, for many steps at once (buckets × steps, bounds rising)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.timeseries.promql.columns.frame import Cells, Presence

__all__ = ["bucket_fraction", "bucket_quantile"]

Index = npt.NDArray[np.int64]

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
    bucket = _first_at_least(counts[:-1], rank)
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


def _first_at_least(counts: Cells, rank: Cells) -> Index:
    """The first bucket that reaches a rank, by halving: a count that is NaN compares as Prometheus compares it."""
    low = np.zeros(counts.shape[1], np.int64)
    high = np.full(counts.shape[1], len(counts))
    steps = np.arange(counts.shape[1])
    while (low < high).any():
        middle = (low + high) // 2
        reached = counts[np.minimum(middle, len(counts) - 1), steps] >= rank
        searching = low < high
        low = np.where(searching & ~reached, middle + 1, low)
        high = np.where(searching & reached, middle, high)
    return low


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
    """How many observations lie below a value, at most all. A bucket that begins at -Inf is not interpolated."""
    total = counts[-1]
    found: Cells = total
    settled = np.zeros(len(value), np.bool_)
    below = np.zeros(len(value))
    low = 0.0 if bounds[0] > 0 else -np.inf
    for high, own in zip(bounds.tolist(), counts, strict=True):
        at_edge = ~settled & (low >= value)
        inside = ~settled & (low < value) & (high > value)
        within = own if np.isneginf(low) else below + (own - below) * (value - low) / (high - low)
        found = np.where(at_edge, below, np.where(inside, within, found))
        settled |= at_edge | inside
        low, below = high, own
    bounded: Cells = np.where(found > total, total, found)
    return bounded
