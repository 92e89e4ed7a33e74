"""Functions that make one value of a window: sums, means, extremes, quantiles, ends."""

from __future__ import annotations

import numpy as np

from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame
from penstock.timeseries.promql.columns.quantiles import sorted_quantile
from penstock.timeseries.promql.columns.ragged import blocks
from penstock.timeseries.promql.columns.summing import compensated_mean, compensated_sum, variance
from penstock.timeseries.promql.columns.windows import Windows

__all__ = ["OVER_TIME", "TIMESTAMPS", "edge", "quantile_over_time"]


def edge(windows: Windows, *, last: bool) -> VectorFrame:
    """The first or the last sample, which is still a value of its series: it keeps the name."""
    present = windows.counts >= 1
    positions = np.where(present, windows.high - 1 if last else windows.low, 0)
    values = windows.columns.values
    taken = values[positions] if len(values) else np.zeros(positions.shape)
    return windows.frame(taken, present, keeps_name=True)


def quantile_over_time(windows: Windows, q: Cells) -> VectorFrame:
    """`q` has a value for each step."""
    wanted = np.broadcast_to(q[None, :], windows.low.shape).ravel()
    low, counts = windows.low.ravel(), windows.counts.ravel()
    out = np.zeros(len(low))
    for runs, positions, shown in blocks(low, counts):
        out[runs] = sorted_quantile(windows.columns.values[positions], shown, wanted[runs])
    return windows.frame(out.reshape(windows.low.shape), windows.counts >= 1)


def _max(samples: Cells, shown: Presence, _: Cells) -> Cells:
    # NaN gives way to every other value.
    found: Cells = np.fmax.reduce(np.where(shown, samples, np.nan), axis=1)
    return found


def _min(samples: Cells, shown: Presence, _: Cells) -> Cells:
    found: Cells = np.fmin.reduce(np.where(shown, samples, np.nan), axis=1)
    return found


def _mad(samples: Cells, shown: Presence, _: Cells) -> Cells:
    half = np.full(len(samples), 0.5)
    median = sorted_quantile(samples, shown, half)
    distance = sorted_quantile(np.abs(samples - median[:, None]), shown, half)
    has_nan = (np.isnan(samples) & shown).any(axis=1)
    return np.where(has_nan, np.nan, distance)


OVER_TIME = {
    "avg_over_time": lambda samples, shown, counts: compensated_mean(samples, counts),
    "count_over_time": lambda samples, shown, counts: counts,
    "mad_over_time": _mad,
    "max_over_time": _max,
    "min_over_time": _min,
    "present_over_time": lambda samples, shown, counts: np.ones(len(counts)),
    "stddev_over_time": lambda samples, shown, counts: np.sqrt(variance(samples, shown, counts)),
    "stdvar_over_time": variance,
    "sum_over_time": lambda samples, shown, counts: compensated_sum(samples),
}


def _extreme_time(windows: Windows, *, largest: bool) -> VectorFrame:
    """When the extreme was: the last of equal ones, and a NaN only where there is nothing else."""
    low, counts = windows.low.ravel(), windows.counts.ravel()
    out = np.zeros(len(low))
    for runs, positions, shown in blocks(low, counts):
        samples = windows.columns.values[positions]
        valid = shown & ~np.isnan(samples)
        ranked = np.where(valid, samples if largest else -samples, -np.inf)
        # Minus infinity may be a sample, too: only what is there is looked for.
        extreme = valid & (ranked == ranked.max(axis=1, keepdims=True))
        best = ranked.shape[1] - 1 - np.argmax(extreme[:, ::-1], axis=1)
        best = np.where(~valid.any(axis=1), counts[runs] - 1, best)
        out[runs] = windows.columns.timestamps[positions[np.arange(len(runs)), best]] / 1000
    return windows.frame(out.reshape(windows.low.shape), windows.counts >= 1)


def _edge_time(windows: Windows, *, last: bool) -> VectorFrame:
    present = windows.counts >= 1
    positions = np.where(present, windows.high - 1 if last else windows.low, 0)
    times = windows.columns.timestamps
    taken = times[positions] / 1000 if len(times) else np.zeros(positions.shape)
    return windows.frame(taken, present)


TIMESTAMPS = {
    "ts_of_first_over_time": lambda windows: _edge_time(windows, last=False),
    "ts_of_last_over_time": lambda windows: _edge_time(windows, last=True),
    "ts_of_max_over_time": lambda windows: _extreme_time(windows, largest=True),
    "ts_of_min_over_time": lambda windows: _extreme_time(windows, largest=False),
}
