"""The array types of this room, by what they hold, and Arrow's kernels without their partial type stubs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow.compute
from numpy.typing import NDArray

from penstock.errors import InvalidInput

__all__ = [
    "Array",
    "Bools",
    "Column",
    "Cut",
    "Floats",
    "Ids",
    "Indices",
    "Times",
    "Words",
    "buffer_of",
    "bytes_column",
    "codes_of",
    "compute",
    "ranges",
    "taken",
]

Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
# Numbers of series: within one bucket, or within one table of series.
Ids: TypeAlias = NDArray[np.uint32]
# Positions in another array.
Indices: TypeAlias = NDArray[np.int64]
# Milliseconds since 1970.
Times: TypeAlias = NDArray[np.int64]
# Hashes, and the bounds of buckets.
Words: TypeAlias = NDArray[np.uint64]
# Which rows of something: a mask, positions, or a slice, which copies nothing.
Cut: TypeAlias = NDArray[Any] | slice
# A column of any type. The stubs of Arrow describe element types more narrowly than its kernels take them.
Column: TypeAlias = Any
compute: Any = pyarrow.compute


def buffer_of(data: Any) -> pyarrow.Buffer:
    """The memory of an array, or of bytes, as Arrow takes it: nothing is copied."""
    return pyarrow.py_buffer(data)


def bytes_column(values: Sequence[bytes], kind: Any) -> Column:
    """A column of texts or bytes. Arrow's own way from a list imports pandas first, where that is installed."""
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    if int(ends[-1]) >= 1 << 31:
        raise InvalidInput(f"a column of {int(ends[-1])} bytes", "the limit is 2 GiB", "write fewer series at once")
    buffers = [None, buffer_of(ends.astype(np.int32)), buffer_of(b"".join(values))]
    return pyarrow.Array.from_buffers(kind, len(values), buffers)


def taken(column: Column, places: Array) -> Column:
    """Some rows of a column. Arrow's own way from positions in NumPy or a list imports pandas first, too."""
    positions = np.ascontiguousarray(places, np.int64)
    rows = pyarrow.Array.from_buffers(pyarrow.int64(), len(positions), [None, buffer_of(positions)])
    return column.take(rows)


def codes_of(encoded: Column) -> Indices:
    """The codes of a dictionary-encoded column without nulls; `np.asarray` would import pandas."""
    codes = encoded.indices
    return np.frombuffer(codes.buffers()[1], np.int32, len(codes), 4 * codes.offset).astype(np.int64)


def ranges(starts: Indices, counts: Indices) -> Indices:
    """The positions of ranges, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    positions: Indices = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return positions
