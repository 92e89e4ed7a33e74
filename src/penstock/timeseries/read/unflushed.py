"""Writes that are not flushed yet, as a query sees them: series that match, and their samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from penstock.timeseries.arrays import Bools, codes_of, compute, taken
from penstock.timeseries.operations import SampleChange
from penstock.timeseries.read.matching import LabelTest
from penstock.timeseries.samples import SampleBatch
from penstock.timeseries.series_table import SeriesTable

__all__ = ["matching_rows", "unflushed_batches"]


def unflushed_batches(changes: Iterable[SampleChange], tenant: str, first_ms: int | None) -> list[SampleBatch]:
    """The samples of a tenant from a time on, in the order in which they were written."""
    batches = [write.batch for change in changes for write in change.samples if write.tenant == tenant]
    return batches if first_ms is None else [batch.take(batch.timestamps_ms >= first_ms) for batch in batches]


def matching_rows(table: SeriesTable, tests: Sequence[LabelTest]) -> Bools:
    """Which series of a table satisfy all matchers."""
    wanted = np.ones(len(table), np.bool_)
    for test in tests:
        having = np.flatnonzero(compute.equal(table.names, test.matcher.name).to_numpy(zero_copy_only=False))
        found = np.full(len(table), test.absent)
        encoded = taken(table.values, having).dictionary_encode()
        answers = np.array([test(value) for value in encoded.dictionary.to_pylist()], np.bool_)
        if len(having):
            found[table.series_of(having)] = answers[codes_of(encoded)]
        wanted &= found
    return wanted
