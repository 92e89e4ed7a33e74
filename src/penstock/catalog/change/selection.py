"""Which files a query has to read: by time, then by level, tenant, table and shard, then by statistics.

Two steps, so that the caller can fetch in between: `segments_for` names the segments a query cannot do
without, and `select` then picks rows, in NumPy and Arrow. A query of the past sees files by the sequences at
which they came and went: tombstones bring back what was removed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.catalog.change.lookup import Blocks, block_of
from penstock.catalog.change.predicate import Predicate, surviving
from penstock.catalog.format.block import FileBlock, Mask, Row, Rows
from penstock.catalog.format.data_file import INT64_MAX, INT64_MIN, DataFile
from penstock.catalog.format.head import CatalogHead
from penstock.catalog.format.segment import SegmentEntry, deleted_mask
from penstock.errors import InvalidInput, NotFound

__all__ = ["EVERYTHING", "FileQuery", "PlanPiece", "as_table", "check_history", "segments_for", "select"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuery:
    """What is asked: files with a time in `[start, end)`, and whatever else is not None."""

    start: int = INT64_MIN
    end: int = INT64_MAX + 1
    predicates: tuple[Predicate, ...] = ()
    tenant: str | None = None
    table: str | None = None
    shard: str | None = None
    level: int | None = None
    # The state at this sequence; None for the current one.
    seq: int | None = None

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise InvalidInput(f"time range [{self.start}, {self.end})", "it ends before it starts")


EVERYTHING = FileQuery()


class PlanPiece(NamedTuple):
    """Rows of one block that are part of the answer."""

    block: FileBlock
    rows: Rows


class _Source(NamedTuple):
    """A segment to look into, and when its rows stopped to be visible, if all did at once."""

    entry: SegmentEntry
    removed_seq: int | None = None
    is_grave: bool = False


def check_history(head: CatalogHead, seq: int) -> None:
    if not head.purged_seq <= seq <= head.seq:
        why = f"shard {head.shard or 'root'!r} keeps sequences {head.purged_seq} to {head.seq}"
        raise NotFound(f"the catalog at sequence {seq} cannot be read", why, "read a newer state, or pin it earlier")


def segments_for(head: CatalogHead, query: FileQuery) -> list[SegmentEntry]:
    """The segments that may hold an answer."""
    return [source.entry for source in _sources(head, query)]


def select(
    head: CatalogHead, query: FileQuery, blocks: Blocks, *, missing: Mapping[str, object] = {}
) -> list[PlanPiece]:
    """The rows that answer. Segments named in `missing` are left out; any other that is not there is asked for."""
    seq = query.seq
    inline = head.inline_block
    rows = inline.between(query.start, query.end)
    if seq is not None and len(rows):
        rows = rows[inline.added_seq[rows] <= seq]
    pieces = [_narrowed(inline, rows, query)]
    if seq is not None and head.tombstones:
        graves = head.tombstone_block
        rows = graves.between(query.start, query.end)
        pieces.append(_narrowed(graves, rows[_visible(graves, rows, seq)], query))
    pieces += [
        _from_segment(source, block_of(source.entry, blocks), query)
        for source in _sources(head, query)
        if source.entry.key not in missing
    ]
    return [piece for piece in pieces if len(piece.rows)]


def _sources(head: CatalogHead, query: FileQuery) -> Iterator[_Source]:
    start, end = query.start, query.end
    for entry in head.stored:
        if entry.min_ts < end and entry.max_ts >= start and _may_answer(entry, query):
            yield _Source(entry)
    if query.seq is None:
        return
    for entry in head.graves:
        if entry.overlaps(start, end) and entry.removed_seq_max > query.seq:
            yield _Source(entry, is_grave=True)
    for dropped in head.dropped:
        if dropped.has_files and dropped.removed_seq > query.seq and dropped.entry.overlaps(start, end):
            yield _Source(dropped.entry, dropped.removed_seq)


def _may_answer(entry: SegmentEntry, query: FileQuery) -> bool:
    if query.level is not None and query.level not in entry.levels:
        return False
    known = [one for one in query.predicates if one.column in entry.stats]
    if not known:
        return True
    stats = {one.column: entry.stats[one.column] for one in known}
    summary = DataFile(path="s", min_timestamp=0, max_timestamp=0, row_count=0, size_bytes=0, column_stats=stats)
    return len(surviving(FileBlock.of([Row(summary)]), np.zeros(1, np.int64), known)) > 0


def _from_segment(source: _Source, block: FileBlock, query: FileQuery) -> PlanPiece:
    rows = block.between(query.start, query.end)
    mask = deleted_mask(source.entry)
    if mask is not None:
        rows = rows[~mask[rows]]
    if query.seq is not None:
        rows = rows[_visible(block, rows, query.seq) if source.is_grave else block.added_seq[rows] <= query.seq]
    return _narrowed(block, rows, query)


def _visible(graves: FileBlock, rows: Rows, seq: int) -> Mask:
    found: Mask = (graves.added_seq[rows] <= seq) & (graves.removed_seq[rows] > seq)
    return found


def _narrowed(block: FileBlock, rows: Rows, query: FileQuery) -> PlanPiece:
    if query.level is not None and len(rows):
        rows = rows[block.level[rows] == query.level]
    for column, value in (("tenant", query.tenant), ("table", query.table), ("shard_id", query.shard)):
        if value is not None and len(rows):
            rows = block.where(column, value, rows)
    if query.predicates and len(rows):
        rows = surviving(block, rows, query.predicates)
    return PlanPiece(block, rows)


def as_table(pieces: list[PlanPiece]) -> pa.Table:
    """The answer as one Arrow table."""
    tables = [piece.block.table.take(piece.rows) for piece in pieces]
    return pa.concat_tables(tables, promote_options="default") if tables else FileBlock.of([]).table
