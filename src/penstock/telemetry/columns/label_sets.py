"""Equal label sets found in bulk: a number for each distinct set, exactly, without a loop over rows.

The entries of a row lie one behind the other in Arrow's buffers, so a row's keys are one piece of bytes, and so are its
values. Two rows are equal when those bytes are, and the lengths of the texts in them: four columns of one piece a row,
each hashed once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.telemetry.columns.attributes import AttributeColumns
from penstock.telemetry.columns.building import Ints, lists, pc

__all__ = ["distinct", "distinct_sets", "map_entries"]

_ENTRIES: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
# Rows are fewer than 2^31, so two columns that were counted anew always fit.
_NUMBER_MAX: Final = 2**62


def map_entries(maps: Any) -> AttributeColumns:
    """The entries of a column of maps."""
    entries, offsets = lists(maps.cast(_ENTRIES))
    keys, values = pc.struct_field(entries, "key"), pc.struct_field(entries, "value")
    return AttributeColumns(offsets, keys, values, np.zeros(len(keys), np.int8))


def distinct_sets(*chunks: AttributeColumns) -> tuple[Ints, Ints]:
    """For each row of all chunks the number of its set, and for each set the first row that has it."""
    rows = sum(len(chunk.offsets) - 1 for chunk in chunks)
    if not any(len(chunk.keys) for chunk in chunks):
        return np.zeros(rows, np.int64), np.arange(min(1, rows))
    pieces = [[*_pieces_of(one.keys, one.offsets), *_pieces_of(one.values, one.offsets)] for one in chunks]
    return distinct(*(_codes(list(column)) for column in zip(*pieces, strict=True)))


def _codes(pieces: list[Any]) -> Ints:
    encoded = pc.dictionary_encode(pa.chunked_array(pieces))
    return np.concatenate([np.asarray(chunk.indices) for chunk in encoded.chunks]).astype(np.int64)


def _pieces_of(texts: Any, offsets: Ints) -> tuple[Any, Any]:
    """For each row its texts put together, and their lengths."""
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


def _pieces(bounds: Ints, data: Any) -> Any:
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(bounds) - 1,
        [None, pa.py_buffer(np.ascontiguousarray(bounds).data), data or pa.py_buffer(b"")],
    )


def distinct(*columns: Ints) -> tuple[Ints, Ints]:
    """For each row of a few numbers, none below zero, the number of its kind; and for each kind its first row."""
    numbers, span = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        values = column
        size = int(values.max(initial=0)) + 1
        if size == 1:
            continue
        if span * size > _NUMBER_MAX:
            numbers = _counted(numbers)
            span = int(numbers.max(initial=0)) + 1
        if span * size > _NUMBER_MAX:
            values = _counted(values)
            size = int(values.max(initial=0)) + 1
        numbers = numbers * size + values
        span *= size
    if span == 1:
        return numbers, np.arange(min(1, len(numbers)))
    numbers = _counted(numbers)
    # Numbers rise with the first row of each, so those rows are where a new greatest one comes.
    greatest = np.maximum.accumulate(numbers) if len(numbers) else numbers
    return numbers, np.flatnonzero(np.diff(greatest, prepend=-1) > 0)


def _counted(values: Ints) -> Ints:
    """Each value as the number of values that came before it first."""
    return np.asarray(pc.dictionary_encode(pa.array(values)).indices, dtype=np.int64)
