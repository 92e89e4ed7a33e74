"""Sums that lose nothing: a tree of exact additions whose errors are carried along.

As accurate as the compensated summation of Prometheus, and made of whole-matrix operations.
"""

from __future__ import annotations

import numpy as np

from penstock.timeseries.promql.columns.frame import Cells, Presence

__all__ = ["compensated_mean", "compensated_sum", "variance"]

# A power of two, so that it changes no digit.
_SCALE = 2.0**-64


def compensated_sum(terms: Cells) -> Cells:
    """The sum along axis 1; cells that do not count must be zero."""
    total, error = _with_error(terms)
    found = total + error
    if np.isfinite(found).all():
        return found
    # Huge terms overflow on the way; scaled, only infinite ones are infinite, whatever their order.
    total, error = _with_error(terms * _SCALE)
    return np.where(np.isfinite(found), found, (total + error) / _SCALE)


def compensated_mean(terms: Cells, counts: Cells) -> Cells:
    """The mean along axis 1 of the cells that count, also where their sum would overflow."""
    total, error = _with_error(terms)
    mean = total / counts + error / counts
    overflown = ~np.isfinite(mean)
    if overflown.any():
        # Scaled before they are added: only infinite terms make it infinite then, and only both of them NaN.
        mean = np.where(overflown, compensated_sum(terms / np.expand_dims(counts, 1)), mean)
    return mean


def variance(terms: Cells, shown: Presence, counts: Cells) -> Cells:
    """The population variance along axis 1."""
    mean = compensated_mean(terms, counts)
    distance = np.where(shown, terms - np.expand_dims(mean, 1), 0.0)
    return compensated_sum(distance * distance) / counts


def _with_error(terms: Cells) -> tuple[Cells, Cells]:
    total = terms
    error = np.zeros_like(total)
    while total.shape[1] > 1:
        if total.shape[1] % 2:
            total, error = _padded(total), _padded(error)
        left, right = total[:, 0::2], total[:, 1::2]
        together = left + right
        virtual = together - left
        lost = (left - (together - virtual)) + (right - virtual)
        lost = np.where(np.isfinite(together), lost, 0.0)
        error = error[:, 0::2] + error[:, 1::2] + lost
        total = together
    return total[:, 0], error[:, 0]


def _padded(terms: Cells) -> Cells:
    shape = (terms.shape[0], 1, *terms.shape[2:])
    return np.concatenate([terms, np.zeros(shape)], axis=1)
