"""Equal label sets found in bulk: a number for each distinct set, exactly, without a loop over rows."""

from __future__ import annotations

import numpy as np

from penstock.telemetry.columns.attributes import AttributeColumns
from penstock.telemetry.columns.building import Ints, pc

__all__ = ["distinct", "distinct_sets"]


def distinct_sets(labels: AttributeColumns) -> tuple[Ints, Ints]:
    """For each row the number of its set, and for each set the first row that has it. Entries are sorted by key."""
    keys = np.asarray(pc.dictionary_encode(labels.keys).indices, dtype=np.int64) if len(labels.keys) else _NONE
    values = np.asarray(pc.dictionary_encode(labels.values).indices, dtype=np.int64) if len(labels.values) else _NONE
    pairs = keys * (int(values.max(initial=0)) + 1) + values
    lengths = np.diff(labels.offsets)
    numbers = np.zeros(len(lengths), np.int64)
    firsts: list[Ints] = []
    known = 0
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        entries = pairs[labels.offsets[:-1][rows][:, None] + np.arange(length)]
        found, first = _unique_rows(np.ascontiguousarray(entries))
        numbers[rows] = found + known
        firsts.append(rows[first])
        known += len(first)
    return numbers, np.concatenate(firsts) if firsts else _NONE


def distinct(*columns: Ints) -> tuple[Ints, Ints]:
    """The same for rows of a few numbers each."""
    return _unique_rows(np.ascontiguousarray(np.stack(columns, axis=1)))


def _unique_rows(entries: Ints) -> tuple[Ints, Ints]:
    """Columns are put together into one number for as long as it fits, and then counted anew: no row is compared."""
    rows, width = entries.shape
    numbers, first = np.zeros(rows, np.int64), np.zeros(min(rows, 1), np.int64)
    span = 1
    for column in range(width):
        values = entries[:, column]
        size = int(values.max(initial=0)) + 1
        if span * size > _NUMBER_MAX:
            _, numbers = np.unique(numbers, return_inverse=True)
            span = int(numbers.max(initial=0)) + 1
        if span * size > _NUMBER_MAX:
            _, values = np.unique(values, return_inverse=True)
            size = int(values.max(initial=0)) + 1
        numbers = numbers * size + values
        span *= size
    if width:
        _, first, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    return np.asarray(numbers, np.int64).reshape(rows), np.asarray(first, np.int64)


# Rows are fewer than 2^31, so two columns that were counted anew always fit.
_NUMBER_MAX = 2**62
_NONE = np.zeros(0, np.int64)
