"""The samples of a flush put together: one table of series, and columns that point into it. Pure, and without loops
over samples: tables that batches share are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.timeseries.arrays import Array, Cut, Floats, Ids, Indices, Times
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.keys import BUCKET_MS, hours_of
from penstock.timeseries.samples import SampleBatch
from penstock.timeseries.series_table import SeriesTable

__all__ = ["GatheredSamples", "HourSamples", "gather"]

# Hours that are looked for one by one, whether they have samples or not.
_HOURS_TRIED = 1000


@dataclass(frozen=True, slots=True)
class HourSamples:
    """Samples of one hour, with times since it began."""

    hour: int
    series: Ids
    times: Array
    values: Floats


@dataclass(frozen=True, slots=True)
class GatheredSamples:
    """Samples in the order in which they were written; `series` points into `fingerprints`."""

    fingerprints: Fingerprints
    series: Ids
    times: Times
    values: Floats
    # Where the labels of each fingerprint are: which table, and which row of it.
    tables: tuple[SeriesTable, ...]
    table_of: Indices
    row_of: Indices

    def hours(self) -> Iterator[HourSamples]:
        """Samples by hour, oldest first."""
        if not len(self.times):
            return
        first, last = int(self.times.min()) // BUCKET_MS, int(self.times.max()) // BUCKET_MS
        if first == last:
            yield self._of_hour(first, None)
            return
        if np.all(self.times[1:] >= self.times[:-1]):
            # As samples usually arrive: then hours are slices.
            candidates = (
                range(first, last + 1) if last - first < _HOURS_TRIED else np.unique(hours_of(self.times)).tolist()
            )
            for hour in candidates:
                low, high = np.searchsorted(self.times, (hour * BUCKET_MS, (hour + 1) * BUCKET_MS)).tolist()
                if low < high:
                    yield self._of_hour(hour, slice(low, high))
            return
        hours = hours_of(self.times)
        for hour in np.unique(hours).tolist():
            yield self._of_hour(hour, hours == hour)

    def _of_hour(self, hour: int, chosen: Cut | None) -> HourSamples:
        start = hour * BUCKET_MS
        if chosen is None:
            return HourSamples(hour, self.series, (self.times - start).astype(np.int32), self.values)
        times = (self.times[chosen] - start).astype(np.int32)
        return HourSamples(hour, self.series[chosen], times, self.values[chosen])

    def table(self, numbers: Indices) -> SeriesTable:
        """The labels of some series, in the order of their numbers."""
        parts: list[tuple[Indices, SeriesTable]] = []
        owners = self.table_of[numbers]
        for place in np.unique(owners).tolist():
            mine = owners == place
            parts.append((np.flatnonzero(mine), self.tables[place].take(self.row_of[numbers[mine]])))
        if len(parts) == 1:
            return parts[0][1]
        whole = SeriesTable.concatenate([table for _, table in parts])
        return whole.take(np.argsort(np.concatenate([rows for rows, _ in parts]))) if parts else whole


def gather(batches: Sequence[SampleBatch]) -> GatheredSamples:
    """All samples of some batches, later ones behind earlier ones."""
    tables = {id(batch.table): batch.table for batch in batches}
    starts = dict(zip(tables, np.cumsum([0, *map(len, tables.values())]).tolist(), strict=False))
    every = Fingerprints.concatenate([table.fingerprints for table in tables.values()])
    firsts, places = every.unique()
    numbers = places.astype(np.uint32)
    series = [numbers[starts[id(batch.table)] :][batch.series] for batch in batches]
    sizes = np.array([len(table) for table in tables.values()], np.int64)
    ends = np.cumsum(sizes)
    table_of = np.searchsorted(ends, firsts, side="right")
    return GatheredSamples(
        every.take(firsts),
        np.concatenate([np.empty(0, np.uint32), *series]),
        np.concatenate([np.empty(0, np.int64), *(batch.timestamps_ms for batch in batches)]),
        np.concatenate([np.empty(0, np.float64), *(batch.values for batch in batches)]),
        tuple(tables.values()),
        table_of,
        firsts - (ends - sizes)[table_of] if len(sizes) else firsts,
    )
