"""Cutting a segment into parts of bounded size. Pure: the same segment and size always give the same parts.

A part is a list of slices, each of one slot and schema. Rows are taken to be of equal size within a table, so a part
may be larger than asked for where they are not; a single row is never cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["TableSlice", "split_segment", "split_table"]


@dataclass(frozen=True, slots=True)
class TableSlice:
    """Some rows of one slot; `stream` counts the tables of a segment."""

    slot: str
    stream: int
    table: pa.Table


def split_segment(slots: Mapping[str, Sequence[pa.Table]], bytes_max: int) -> list[list[TableSlice]]:
    """Parts of about `bytes_max` at most, in order; one at least."""
    parts: list[list[TableSlice]] = [[]]
    room, stream = bytes_max, 0
    for slot, tables in slots.items():
        for table in tables:
            for piece in split_table(table, bytes_max):
                size = _bytes(table, piece.num_rows)
                if parts[-1] and size > room:
                    parts.append([])
                    room = bytes_max
                parts[-1].append(TableSlice(slot, stream, piece))
                room -= size
            stream += 1
    return parts


def split_table(table: pa.Table, bytes_max: int) -> list[pa.Table]:
    """Slices of about `bytes_max` at most; of a table without rows, the table."""
    rows = max(1, bytes_max * table.num_rows // max(1, table.nbytes))
    return [table.slice(start, rows) for start in range(0, max(1, table.num_rows), rows)]


def _bytes(table: pa.Table, rows: int) -> int:
    return int(table.nbytes * rows // max(1, table.num_rows))
