"""Series that an hour has not seen before: their ids, and the rows of dictionary, labels and index that they bring. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.timeseries.arrays import Ids, Indices, codes_of, compute, taken
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.index_block import IndexBlock
from penstock.timeseries.format.keys import label_keys
from penstock.timeseries.format.posting_bitmaps import bitmaps_of
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


def index_of(period: int, series: NewSeries) -> IndexBlock:
    """One row for each label, with all the series that have it."""
    table = series.table
    names, values = table.names.dictionary_encode(), table.values.dictionary_encode()
    codes = codes_of(names) * len(values.dictionary) + codes_of(values)
    order = np.argsort(codes, kind="stable")
    owners = np.repeat(series.ids, table.label_counts)[order]
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    at = order[starts]
    name_column, value_column = taken(table.names, at), taken(table.values, at)
    keys = label_keys(period, names.dictionary.to_pylist(), codes_of(names)[at], value_column.cast(pa.binary()))
    return IndexBlock(keys, name_column, value_column, bitmaps_of(owners, starts))
