"""Quantiles of rows of values, interpolated between neighbours."""

from __future__ import annotations

import numpy as np

from penstock.timeseries.promql.columns.frame import Cells, Presence

__all__ = ["sorted_quantile"]


def sorted_quantile(values: Cells, shown: Presence, q: Cells) -> Cells:
    """The q-quantile along axis 1 of the cells that count. NaN is the smallest value; q outside 0 to 1 is infinite.

    `q` has the shape of the result.
    """
    counts = shown.sum(axis=1)
    nans = (np.isnan(values) & shown).sum(axis=1)
    # Behind everything: cells that do not count. In front of everything: NaN, which is put back below.
    ordered = np.sort(np.where(shown, np.where(np.isnan(values), -np.inf, values), np.inf), axis=1)
    inside = (q >= 0) & (q <= 1)
    rank = np.where(inside, q, 0.0) * (counts - 1)
    lower = np.maximum(0, np.floor(rank)).astype(np.int64)
    upper = np.minimum(np.maximum(counts - 1, 0), lower + 1)
    weight = rank - np.floor(rank)
    low, high = _at(ordered, lower, nans), _at(ordered, upper, nans)
    with np.errstate(invalid="ignore"):
        found = low * (1 - weight) + high * weight
    found = np.where(q < 0, -np.inf, np.where(q > 1, np.inf, found))
    return np.where(np.isnan(q) | (counts == 0), np.nan, found)


def _at(ordered: Cells, index: np.ndarray[tuple[int, ...], np.dtype[np.int64]], nans: Cells) -> Cells:
    taken = np.take_along_axis(ordered, np.expand_dims(index, 1), axis=1)[:, 0]
    return np.where(index < nans, np.nan, taken)
