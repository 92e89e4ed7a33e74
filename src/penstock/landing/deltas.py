"""Points of delta temporality, added up to counters: the totals of all series so far, and what a round makes of them.

Totals begin at zero with the first point that is seen, and are kept in the job's state, so a round that is done again
adds nothing twice. Within a round points are added in the order of their times; a point that comes rounds later than
its neighbours is added when it comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.landing.port import LandingSamples

__all__ = ["DeltaTotals"]

# The state is one object a round: some megabytes of it at most.
SERIES_MAX: Final = 50_000


class DeltaTotals:
    """By a hash of tenant and labels."""

    def __init__(self, totals: Mapping[str, float] | None = None, series_max: int = SERIES_MAX) -> None:
        self._totals = dict(totals or {})
        self._series_max = series_max

    @property
    def state(self) -> dict[str, float]:
        return dict(self._totals)

    def added_up(self, samples: LandingSamples) -> tuple[LandingSamples, int]:
        """The samples with totals in the place of differences, and how many were dropped because there are too many series."""
        if not samples.is_delta.any():
            return samples, 0
        values, kept = samples.value.copy(), np.ones(len(samples.value), np.bool_)
        deltas = np.flatnonzero(samples.is_delta)
        order = deltas[np.lexsort((samples.time_ms[deltas], samples.series[deltas]))]
        series = samples.series[order]
        for group in np.split(order, np.flatnonzero(np.diff(series)) + 1):
            key = _key(samples, int(samples.series[group[0]]))
            if key not in self._totals and len(self._totals) >= self._series_max:
                kept[group] = False
                continue
            # A stale marker ends a series and adds nothing.
            differences = np.where(np.isnan(values[group]), 0.0, values[group])
            running = self._totals.get(key, 0.0) + np.cumsum(differences)
            values[group] = np.where(np.isnan(values[group]), values[group], running)
            self._totals[key] = float(running[-1])
        found = replace(
            samples,
            series=samples.series[kept],
            time_ms=samples.time_ms[kept],
            value=values[kept],
            is_delta=samples.is_delta[kept],
        )
        return found, int(len(kept) - np.count_nonzero(kept))


def _key(samples: LandingSamples, series: int) -> str:
    told = repr((samples.tenant, sorted(samples.labels[series].as_py())))
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
