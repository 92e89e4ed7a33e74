"""Rows of a signal, put together from columns; and what of a request was taken and what was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.telemetry.columns.building import Ints, constant, pc, taken
from penstock.telemetry.columns.schemas import NANOSECONDS, TENANT, TIME

__all__ = [
    "DecodedRows",
    "RowSource",
    "accepted",
    "assembled",
    "empty",
    "one_batch",
    "text_of_rows",
    "text_or_null",
    "together",
]


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The rows of one request. `rejected` counts those that were refused one by one, `reasons` says why.

    A request that is malformed as a whole never gets this far: it raises `InvalidInput`.
    """

    batch: pa.RecordBatch
    rejected: int = 0
    reasons: Sequence[str] = ()

    @property
    def message(self) -> str:
        """The reasons in one line: what OTLP calls the error message of a partial success."""
        return "; ".join(self.reasons)


@dataclass(frozen=True, slots=True)
class RowSource:
    """Whose rows these are, and when they came: rows without a time of their own have this one."""

    tenant: str = ""
    received_ns: int = 0


def assembled(schema: pa.Schema, columns: Mapping[str, Any], rows: int, source: RowSource) -> pa.RecordBatch:
    """A batch of the schema; columns that are not given are null."""
    given = {TENANT: constant(source.tenant, pa.string(), rows), **columns}
    if TIME in given and given[TIME].null_count:
        given[TIME] = pc.fill_null(given[TIME], pa.scalar(source.received_ns, pa.int64()).cast(NANOSECONDS))
    arrays = [
        _fitting(given[field.name], field.type) if field.name in given else constant(None, field.type, rows)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fitting(array: Any, kind: pa.DataType) -> Any:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if array.type == kind else array.cast(kind)


def accepted(batch: pa.RecordBatch, faults: Sequence[tuple[npt.NDArray[np.bool_], str]]) -> DecodedRows:
    """Without the rows that have a fault; each is counted once, under the first fault that it has."""
    bad = np.zeros(batch.num_rows, np.bool_)
    reasons = []
    for mask, text in faults:
        new = mask & ~bad
        if count := int(np.count_nonzero(new)):
            reasons.append(f"{count} {text}")
        bad |= mask
    if not reasons:
        return DecodedRows(batch)
    return DecodedRows(batch.filter(pa.array(~bad)), int(np.count_nonzero(bad)), tuple(reasons))


def together(schema: pa.Schema, parts: Sequence[DecodedRows]) -> DecodedRows:
    """Several parts of one request as one."""
    filled = [part.batch for part in parts if part.batch.num_rows]
    batch = filled[0] if len(filled) == 1 else one_batch(pa.Table.from_batches(filled, schema))
    reasons = tuple(dict.fromkeys(reason for part in parts for reason in part.reasons))
    return DecodedRows(batch, sum(part.rejected for part in parts), reasons)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """All rows in one batch; `InvalidInput` where texts of a column are over 2 GiB together."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InvalidInput("the rows do not fit one batch", "a column has over 2 GiB", "send less at once")
    return batches[0] if batches else empty(table.schema)


def text_of_rows(array: Any, rows: Ints) -> Any:
    """Of rows that belong to the texts with these numbers; OTLP's empty text is none."""
    texts = text_or_null(array)
    return constant(None, pa.string(), len(rows)) if texts.null_count == len(texts) else taken(texts, rows)


def text_or_null(array: Any) -> Any:
    """OTLP's empty text is none."""
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)
