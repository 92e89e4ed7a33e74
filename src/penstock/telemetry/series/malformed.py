"""Rows of metrics whose parts do not fit together, which Arrow's types allow and no series can be made of.

Decoders of OTLP and remote write refuse such points. A client that sends Arrow may send any lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.telemetry.columns.building import lists, pc

__all__ = ["malformed_rows"]

_Mask = npt.NDArray[np.bool_]


def malformed_rows(batch: pa.RecordBatch) -> _Mask:
    """For each row, whether it is a histogram or a summary that cannot be read as one."""
    kinds = batch.column("type")
    found = np.zeros(batch.num_rows, np.bool_)
    if (rows := _of_kind(kinds, "histogram")).any():
        bounds, counts = batch.column("bounds"), batch.column("counts")
        edges, buckets = _lengths(bounds), _lengths(counts)
        fits = (buckets == edges + 1) | ((buckets == 0) & (edges == 0))
        found |= rows & (~fits | _has_nulls(bounds) | _has_nulls(counts))
    if (rows := _of_kind(kinds, "exponential_histogram")).any():
        lacking = np.asarray(batch.column("scale").is_null()) | np.asarray(batch.column("count").is_null())
        found |= rows & (
            lacking | _has_nulls(batch.column("positive_counts")) | _has_nulls(batch.column("negative_counts"))
        )
    if (rows := _of_kind(kinds, "summary")).any():
        found |= rows & _has_nulls(batch.column("quantiles"))
    return found


def _of_kind(kinds: Any, kind: str) -> _Mask:
    return np.asarray(pc.fill_null(pc.equal(kinds, kind), False))


def _lengths(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0), dtype=np.int64)


def _has_nulls(column: Any) -> _Mask:
    """Whether a list holds a null, or a struct with one."""
    values, offsets = lists(column)
    parts = (
        [values, *(pc.struct_field(values, field.name) for field in values.type)] if _is_struct(values) else [values]
    )
    nulls = np.zeros(len(values), np.bool_)
    for part in parts:
        nulls |= np.asarray(part.is_null())
    if not nulls.any():
        return np.zeros(len(column), np.bool_)
    before = np.concatenate([[0], np.cumsum(nulls)])
    return np.asarray(before[offsets[1:]] > before[offsets[:-1]])


def _is_struct(values: Any) -> bool:
    return bool(pa.types.is_struct(values.type))
