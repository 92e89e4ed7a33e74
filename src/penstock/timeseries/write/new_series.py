"""Series that an hour has not seen before: their ids, and the rows of dictionary, labels and index that they bring. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyroaring

from penstock.timeseries.arrays import Ids, Indices, compute
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.index_block import IndexBlock
from penstock.timeseries.format.keys import label_keys
from penstock.timeseries.format.series_block import FingerprintBlock, LabelBlock
from penstock.timeseries.series_table import SeriesTable

__all__ = ["NewSeries", "index_of", "locality"]


@dataclass(frozen=True, slots=True)
class NewSeries:
    """Series in the order of their new ids."""

    ids: Ids
    table: SeriesTable

    @property
    def fingerprints(self) -> Fingerprints:
        return self.table.fingerprints

    def dictionary(self) -> FingerprintBlock:
        return FingerprintBlock(self.ids, self.fingerprints)

    def labels(self) -> LabelBlock:
        return LabelBlock(self.ids, self.table.payloads)


def locality(table: SeriesTable) -> Indices:
    """The order in which new series get their ids: those of one metric side by side, so that a query reads few blocks."""
    order: Indices = compute.sort_indices(table.payloads).to_numpy().astype(np.int64)
    return order


def index_of(hour: int, series: NewSeries) -> IndexBlock:
    """One row for each label, with all the series that have it."""
    table = series.table
    names, values = table.names.dictionary_encode(), table.values.dictionary_encode()
    codes = np.asarray(names.indices).astype(np.int64) * len(values.dictionary) + np.asarray(values.indices)
    order = np.argsort(codes, kind="stable")
    owners = np.repeat(series.ids, table.label_counts)[order]
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    bounds = [*starts.tolist(), len(order)]
    at = order[starts]
    texts = table.names.take(at).to_pylist(), table.values.take(at).to_pylist()
    bitmaps = [pyroaring.BitMap(owners[first:end]).serialize() for first, end in pairwise(bounds)]
    return IndexBlock.of(label_keys(hour, *texts), *texts, bitmaps)
