"""Series of many periods, and of writes that are not flushed, as one list: those that have the same labels are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.timeseries.arrays import Column, Indices, bytes_column, codes_of, taken
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.read.postings import check_bound
from penstock.timeseries.series_table import SeriesTable

__all__ = ["JoinedSeries", "SeriesPart", "TableSeries", "join_series"]


class SeriesPart(Protocol):
    """Some series of one place."""

    @property
    def is_distinct(self) -> bool:
        """Whether no two of them are the same."""
        ...

    def __len__(self) -> int: ...

    def payloads(self) -> list[Column]:
        """What identifies each series, as large binaries, in one or several pieces."""
        ...

    def labels(self, places: Indices) -> list[Labels]:
        """The labels of some of the series, given by rising place."""
        ...


@dataclass(frozen=True, slots=True)
class TableSeries:
    """Some rows of a table of series."""

    table: SeriesTable
    rows: Indices
    is_distinct: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def payloads(self) -> list[Column]:
        return [taken(self.table.payloads, self.rows).cast(pa.large_binary())]

    def labels(self, places: Indices) -> list[Labels]:
        return [self.table.labels(row) for row in self.rows[places].tolist()]


@dataclass(frozen=True, slots=True)
class JoinedSeries:
    """Series, each once, and for each part the numbers of its series among them."""

    labels: list[Labels]
    numbers: list[Indices]


def join_series(parts: Sequence[SeriesPart], series_max: int) -> JoinedSeries:
    """The series of all parts in the order in which they are first seen."""
    labels: list[Labels] = []
    numbers: list[Indices] = []
    seen: Column = bytes_column((), pa.binary()).cast(pa.large_binary())
    for part in parts:
        if len(parts) == 1 and part.is_distinct:
            codes = np.arange(len(part))
        else:
            encoded = pa.concat_arrays([seen, *part.payloads()]).dictionary_encode()
            codes, seen = codes_of(encoded)[len(seen) :], encoded.dictionary
        fresh = np.flatnonzero(codes >= len(labels))
        # Codes are given out as series are first seen: rising ones have rising places.
        places = fresh[np.unique(codes[fresh], return_index=True)[1]]
        check_bound("series", len(labels) + len(places), series_max)
        labels += part.labels(places)
        numbers.append(codes)
    return JoinedSeries(labels, numbers)
