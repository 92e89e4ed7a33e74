"""Rows of a table that can be kept, and those that would spoil it for everybody else. Pure.

Whole streams with columns that no table can have are put aside before (`tables`). Here it is single rows: they have
been acknowledged, so they are put aside with the reason, and the rows around them land.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.telemetry import rows_with_repeated_keys

__all__ = ["split_unfit"]

_TIME: Final = "time"
_NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_INT64_MAX: Final = 2**63 - 1


def split_unfit(table: pa.Table) -> tuple[pa.Table, list[tuple[str, pa.Table]]]:
    """The rows that can be kept, and the others by their reason."""
    unfit: list[tuple[str, pa.Table]] = []
    for name in table.schema.names:
        reason = f"column {name!r} has a map with a duplicate key"
        table = _without(table, rows_with_repeated_keys(table.column(name)), reason, unfit)
    if _TIME in table.schema.names:
        table = _without(table, _beyond(table.column(_TIME)), "it has a time beyond the years 1677 to 2262", unfit)
    return table, unfit


def _without(table: pa.Table, mask: npt.NDArray[np.bool_], reason: str, unfit: list[tuple[str, pa.Table]]) -> pa.Table:
    if not mask.any():
        return table
    unfit.append((reason, table.filter(pa.array(mask))))
    return table.filter(pa.array(~mask))


def _beyond(column: Any) -> npt.NDArray[np.bool_]:
    """Which times do not fit into nanoseconds."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit == "ns":
        return np.zeros(len(column), np.bool_)
    edge = _INT64_MAX // _NANOSECONDS[kind.unit]
    numbers = np.asarray(column.cast(pa.int64()).fill_null(0))
    return np.asarray((numbers > edge) | (numbers < -edge), np.bool_)
