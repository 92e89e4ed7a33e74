"""Equal label sets found in bulk: a number for each distinct set, exactly, without a loop over rows.

The entries of a row lie one behind the other in Arrow's buffers, so a row's keys are one piece of bytes, and so are its
values. Two rows are equal when those bytes are, and the lengths of the texts in them: four columns of one piece a row,
each hashed once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.telemetry.columns.attributes import AttributeColumns
from penstock.telemetry.columns.building import Ints, pc

__all__ = ["distinct", "distinct_sets"]


def distinct_sets(labels: AttributeColumns) -> tuple[Ints, Ints]:
    """For each row the number of its set, and for each set the first row that has it. Entries are sorted by key."""
    if len(labels.offsets) == 1:
        return _NONE, _NONE
    return distinct(*(code for texts in (labels.keys, labels.values) for code in _codes(texts, labels.offsets)))


def distinct(*columns: Ints) -> tuple[Ints, Ints]:
    """The same for rows of a few numbers each, none below zero."""
    numbers, span = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        values = column
        size = int(values.max(initial=0)) + 1
        if span * size > _NUMBER_MAX:
            numbers = _counted(numbers)
            span = int(numbers.max(initial=0)) + 1
        if span * size > _NUMBER_MAX:
            values = _counted(values)
            size = int(values.max(initial=0)) + 1
        numbers = numbers * size + values
        span *= size
    numbers = _counted(numbers)
    # Numbers rise with the first row of each, so those rows are where a new greatest one comes.
    greatest = np.maximum.accumulate(numbers) if len(numbers) else numbers
    return numbers, np.flatnonzero(np.diff(greatest, prepend=-1) > 0)


def _counted(values: Ints) -> Ints:
    """Each value as the number of values that came before it first."""
    return np.asarray(pc.dictionary_encode(pa.array(values)).indices, dtype=np.int64)


def _codes(texts: Any, offsets: Ints) -> tuple[Ints, Ints]:
    """For each row a number of its texts put together, and one of their lengths."""
    if texts.null_count:
        texts = texts.fill_null("")
    bounds = _bounds(texts)
    sizes = np.diff(bounds).astype(np.int32)
    return (
        _pieces(bounds[offsets].astype(np.int64), texts.buffers()[2]),
        _pieces(offsets * sizes.itemsize, pa.py_buffer(sizes.data)),
    )


def _bounds(texts: Any) -> Ints:
    """Where each text begins among the bytes, and where the last one ends."""
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    buffer = texts.buffers()[1]
    if buffer is None or not len(texts):
        return np.zeros(len(texts) + 1, np.int64)
    found = np.frombuffer(buffer, kind)[texts.offset : texts.offset + len(texts) + 1]
    return np.asarray(found, np.int64)


def _pieces(bounds: Ints, data: Any) -> Ints:
    pieces: Any = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(bounds) - 1,
        [None, pa.py_buffer(np.ascontiguousarray(bounds).data), data or pa.py_buffer(b"")],
    )
    return np.asarray(pc.dictionary_encode(pieces).indices, dtype=np.int64)


# Rows are fewer than 2^31, so two columns that were counted anew always fit.
_NUMBER_MAX = 2**62
_NONE = np.zeros(0, np.int64)
