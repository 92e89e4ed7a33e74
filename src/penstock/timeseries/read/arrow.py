"""Columns of series as an Arrow table, as results of range queries have it; `SampleBatch.from_table` takes it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.timeseries.arrays import bytes_column
from penstock.timeseries.promql import SeriesColumns

__all__ = ["arrow_table"]


def arrow_table(columns: SeriesColumns) -> pa.Table:
    """A row for each series: its labels, and lists of times and values."""
    names = [name.encode() for labels in columns.labels for name, _ in labels]
    values = [value.encode() for labels in columns.labels for _, value in labels]
    ends = np.cumsum([0, *map(len, columns.labels)], dtype=np.int32)
    arrays: Any = pa
    labels = arrays.MapArray.from_arrays(ends, bytes_column(names, pa.string()), bytes_column(values, pa.string()))
    lists = [
        arrays.LargeListArray.from_arrays(columns.offsets, pa.array(part))
        for part in (columns.timestamps, columns.values)
    ]
    return pa.Table.from_arrays([labels, *lists], names=["labels", "timestamps_ms", "values"])
