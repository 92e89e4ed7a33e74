"""The order of samples: by series, then by time, and of equal ones the last. Radix sort where it is not there already."""

from __future__ import annotations

import numpy as np

from penstock.timeseries.arrays import Array, Bools, Indices

__all__ = ["is_risen", "sorted_samples", "stable_order"]


def sorted_samples(series: Array, times: Array) -> Indices | None:
    """Positions of samples in order, without those that a later one replaces; None if they stand so already."""
    if is_risen(series, times):
        return None
    # Samples usually arrive by rising time: then it is enough to put the series in order.
    order = stable_order(series)
    ordered, when = series[order], times[order]
    if np.any((ordered[1:] == ordered[:-1]) & (when[1:] < when[:-1])):
        by_time = np.argsort(times, kind="stable")
        order = by_time[stable_order(series[by_time])]
        ordered, when = series[order], times[order]
    last = _last_of_each(ordered, when)
    return order if last.all() else order[last]


def is_risen(series: Array, times: Array) -> bool:
    """Whether samples stand by series and rising time, none twice."""
    same = series[1:] == series[:-1]
    return bool(np.all(np.where(same, times[1:] > times[:-1], series[1:] > series[:-1])))


def stable_order(numbers: Array) -> Indices:
    """Positions in the order of small numbers; equal ones stay in theirs. NumPy sorts 16-bit numbers by radix."""
    highest = int(numbers.max()) if len(numbers) else 0
    order: Indices = np.argsort(numbers.astype(np.uint16), kind="stable")
    if highest >= 1 << 16:
        order = order[np.argsort((numbers[order] >> 16).astype(np.uint16), kind="stable")]
    return order


def _last_of_each(series: Array, times: Array) -> Bools:
    last = np.ones(len(series), np.bool_)
    last[:-1] = (series[1:] != series[:-1]) | (times[1:] != times[:-1])
    return last
