"""Reading what waits: rows of segments and of the open buffer, pruned by the ranges that metadata keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.segment.open_segment import TICK_NS, OpenSegment
from penstock.quiver.setting_values import checked_list

__all__ = ["ScanTime", "choose_slot", "gather", "is_wanted", "open_tables"]

# Event time counts nanoseconds, ingestion time milliseconds, both since 1970.
ScanTime: TypeAlias = Literal["event", "ingestion"]
_TIME_MIN, _TIME_MAX = -(1 << 63), (1 << 63) - 1
# Schemas times columns of one table. Arrow needs a second and 350 MB for so many, and a minute for four times as many.
_SCHEMA_COLUMNS_MAX: Final = 250_000


def is_wanted(source: SegmentMeta | OpenSegment, start: int | None, end: int | None, time: ScanTime) -> bool:
    """Whether a segment can have rows in `[start, end)`. One without a range can."""
    if time not in ("event", "ingestion"):
        raise InvalidInput(f"a scan by {time!r} time is not possible", "there are event and ingestion time")
    for bound in (start, end):
        if bound is not None and not isinstance(bound, int):
            raise InvalidInput(f"a scan cannot begin or end at {bound!r}", "a bound is a whole number or None")
    span = source.event_time_ns if time == "event" else source.ingestion_ms
    return span is None or ((end is None or span[0] < end) and (start is None or span[1] >= start))


def open_tables(segment: OpenSegment) -> dict[str, list[pa.Table]]:
    slots: dict[str, list[pa.Table]] = {}
    for slot, mark in segment.streams:
        slots.setdefault(slot, []).append(segment.table(slot, mark))
    return slots


def choose_slot(found: Iterable[str], slot: str | None) -> str | None:
    """The slot that is asked for, or the only one; None where nothing was found."""
    slots = set(found)
    if slot is not None or not slots:
        return slot
    if len(slots) > 1:
        raise InvalidInput("a scan reads one slot", f"there are {', '.join(sorted(slots))}", "name one of them")
    return slots.pop()


def gather(
    tables: Sequence[pa.Table],
    columns: Sequence[str] | None,
    *,
    event_time: tuple[str, int | None, int | None] | None = None,
) -> pa.Table:
    """One table, whatever the schemas: a column that some do not have is null there.

    `event_time` is the column to filter rows by, and the range in nanoseconds.
    """
    kept = [_filtered(table, *event_time) if event_time else table for table in tables]
    if columns is not None:
        columns = checked_list("columns", columns, str, "names of columns")
        known = {name for table in kept for name in table.column_names}
        if kept and (unknown := [name for name in columns if name not in known]):
            raise InvalidInput(f"there is no column {', '.join(unknown)}", f"there are {', '.join(sorted(known))}")
        if twice := [name for name in columns if any(table.column_names.count(name) > 1 for table in kept)]:
            raise InvalidInput(
                f"there are several columns {', '.join(twice)}", "their names are equal", "read all columns"
            )
        kept = [table.select([name for name in columns if name in table.column_names]) for table in kept]
    if not kept:
        return pa.table({})
    _check_width(kept)
    try:
        gathered = _concatenated(kept)
    except pa.ArrowException as error:
        raise InvalidInput(
            "the schemas do not fit into one table", str(error), "read them one by one, or choose other columns"
        ) from error
    return gathered if columns is None else gathered.select(list(columns))


def _check_width(tables: Sequence[pa.Table]) -> None:
    """Every schema gets every column: beyond some hundreds of schemas that takes minutes, and gigabytes of nulls."""
    schemas = len({table.schema for table in tables})
    columns = len({name for table in tables for name in table.column_names})
    if schemas * columns > _SCHEMA_COLUMNS_MAX:
        raise InvalidInput(
            f"{schemas} schemas with {columns} columns together are too many for one table",
            "each row would have all of these columns",
            "choose columns, or read the tables one by one",
        )


def _concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Equal schemas are taken as they are: to unify them, Arrow wants columns with different names."""
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return pa.concat_tables(tables)
    return pa.concat_tables(tables, promote_options="permissive")


def _filtered(table: pa.Table, column: str, start: int | None, end: int | None) -> pa.Table:
    if column not in table.column_names or not pa.types.is_timestamp(table.schema.field(column).type):
        return table
    factor = TICK_NS[table.schema.field(column).type.unit]
    for bound, compare in ((start, pc.greater_equal), (end, pc.less)):
        if bound is not None:
            # The bound in the column's unit, rounded up: a cast of the column could overflow.
            ticks = pa.scalar(max(_TIME_MIN, min(-(-bound // factor), _TIME_MAX)), pa.int64())
            table = table.filter(compare(table.column(column).cast(pa.int64()), ticks))
    return table
