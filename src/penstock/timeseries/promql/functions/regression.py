"""Trends: deriv, predict_linear and double exponential smoothing."""

from __future__ import annotations

import numpy as np

from penstock.errors import InvalidInput
from penstock.timeseries.promql.columns.frame import Cells, VectorFrame
from penstock.timeseries.promql.columns.ragged import blocks
from penstock.timeseries.promql.columns.summing import compensated_sum
from penstock.timeseries.promql.columns.windows import Windows
from penstock.timeseries.promql.source import Times

__all__ = ["deriv", "double_exponential_smoothing", "predict_linear"]

_PAIR = 2


def deriv(windows: Windows) -> VectorFrame:
    """The slope of the line through each window, per second."""
    slope, _ = _lines(windows, None)
    return windows.frame(slope, windows.counts >= _PAIR)


def predict_linear(windows: Windows, seconds: Cells, times_ms: Times) -> VectorFrame:
    """Where the line through each window will be, so many seconds after the step."""
    slope, intercept = _lines(windows, times_ms)
    return windows.frame(slope * seconds[None, :] + intercept, windows.counts >= _PAIR)


def _lines(windows: Windows, origin_ms: Times | None) -> tuple[Cells, Cells]:
    """Slope and intercept of every window by least squares; the origin is its first sample if none is given."""
    low, counts = windows.low.ravel(), windows.counts.ravel()
    slope, intercept = np.zeros(len(low)), np.zeros(len(low))
    origins = None if origin_ms is None else np.broadcast_to(origin_ms[None, :], windows.low.shape).ravel()
    for runs, positions, shown in blocks(low, np.where(counts >= _PAIR, counts, 0)):
        times = windows.columns.timestamps[positions]
        origin = times[:, 0] if origins is None else origins[runs]
        x = np.where(shown, (times - origin[:, None]) / 1000, 0.0)
        y = np.where(shown, windows.columns.values[positions], 0.0)
        first = y[:, 0]
        constant = ((y == first[:, None]) | ~shown).all(axis=1)
        slope[runs], intercept[runs] = _fit(x, y, counts[runs].astype(np.float64))
        level = np.where(np.isinf(first), np.nan, first)
        slope[runs] = np.where(constant, np.where(np.isinf(first), np.nan, 0.0), slope[runs])
        intercept[runs] = np.where(constant, level, intercept[runs])
    return slope.reshape(windows.low.shape), intercept.reshape(windows.low.shape)


def _fit(x: Cells, y: Cells, n: Cells) -> tuple[Cells, Cells]:
    sum_x, sum_y = compensated_sum(x), compensated_sum(y)
    covariance = compensated_sum(x * y) - sum_x * sum_y / n
    spread = compensated_sum(x * x) - sum_x * sum_x / n
    slope = covariance / spread
    return slope, sum_y / n - slope * sum_x / n


def double_exponential_smoothing(windows: Windows, smoothing: Cells, trend: Cells) -> VectorFrame:
    """The smoothed last value of each window. A recurrence: sample by sample, but for all windows at once."""
    present = windows.counts >= _PAIR
    for name, sign, factor in (("smoothing", "sf", smoothing), ("trend", "tf", trend)):
        # A factor of NaN is none of these: it makes every value NaN.
        wrong = (factor <= 0) | (factor >= 1)
        if windows.counts.any() and wrong.any():
            raise InvalidInput(
                f"invalid {name} factor. Expected: 0 < {sign} < 1, got: {factor[wrong][0]:f}",
                "factors weigh new values against old ones",
            )
    low, counts = windows.low.ravel(), windows.counts.ravel()
    shape = windows.low.shape
    sf, tf = (np.broadcast_to(factor[None, :], shape).ravel() for factor in (smoothing, trend))
    out = np.zeros(len(low))
    for runs, positions, shown in blocks(low, np.where(counts >= _PAIR, counts, 0)):
        out[runs] = _smoothed(windows.columns.values[positions], shown, sf[runs], tf[runs])
    return windows.frame(out.reshape(shape), present)


def _smoothed(samples: Cells, shown: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], sf: Cells, tf: Cells) -> Cells:
    before = np.zeros(len(samples))
    level = samples[:, 0]
    slope = samples[:, 1] - samples[:, 0]
    for index in range(1, samples.shape[1]):
        if index > 1:
            slope = np.where(shown[:, index], tf * (level - before) + (1 - tf) * slope, slope)
        smoothed = sf * samples[:, index] + (1 - sf) * (level + slope)
        before = np.where(shown[:, index], level, before)
        level = np.where(shown[:, index], smoothed, level)
    return level
