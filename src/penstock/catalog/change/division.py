"""Dividing a shard among its children: pure functions from a closed head to the heads that take its place.

Every row goes to the child that owns its table and keeps its history: when it came, and for removed files
when they went. Sequences go on from the parent's, so a position taken before the split still names a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from penstock.catalog.change.lookup import Blocks, SegmentsNeeded
from penstock.catalog.format.block import FileBlock, Row, row_json
from penstock.catalog.format.head import (
    CatalogHead,
    Dropped,
    HeadState,
    InlineFile,
    LeaseRecord,
    Tombstone,
    inline_file,
    time_index_of,
    tombstone,
)
from penstock.catalog.format.segment import SegmentEntry, deleted_mask, encode_segment, entry_of
from penstock.catalog.format.shard_map import owner_of

__all__ = ["Child", "closed", "divided", "moved"]


@dataclass(frozen=True, slots=True)
class Child:
    """The first head of a child, and the objects it names."""

    head: CatalogHead
    objects: tuple[tuple[SegmentEntry, bytes, FileBlock], ...]


def closed(head: CatalogHead) -> CatalogHead:
    """The head, taking no more changes. Closing it again changes nothing."""
    return replace(head, state=HeadState.CLOSED, is_draft=True) if head.state is HeadState.OPEN else head


def moved(head: CatalogHead, now_ms: int) -> CatalogHead:
    """The head once its children have it all: empty, but for the objects that vacuum is to delete."""
    if head.state is HeadState.MOVED:
        return head
    entries = (*head.stored, *head.graves, *(one.entry for one in head.dropped))
    return replace(
        head,
        state=HeadState.MOVED,
        chunks={},
        time_index={},
        segments=(),
        archive=(),
        graves=(),
        tombstones=(),
        leases={},
        pins={},
        sources={},
        dropped=tuple(
            Dropped(entry=entry, removed_seq=head.next_seq, at_ms=now_ms, has_files=False) for entry in entries
        ),
        is_draft=True,
    )


def divided(
    head: CatalogHead, children: Sequence[str], blocks: Blocks, folders: dict[str, str], nonce: str, rows_max: int
) -> dict[str, Child]:
    """What each child begins with. Needs every segment of the parent."""
    needed = [*head.stored, *head.graves, *(one.entry for one in head.dropped if one.has_files)]
    unread = [entry for entry in needed if entry.key not in blocks]
    if unread:
        raise SegmentsNeeded(unread)
    parts = {child: _Part(child) for child in children}

    def owner(row: Row) -> _Part:
        return parts[owner_of(row.file.tenant, row.file.table, children)]

    for inline in head.chunks.values():
        owner(inline.row).inline.append(inline)
    for one in head.tombstones:
        owner(one.row).tombstones.append(one)
    for entry in head.stored:
        for row in _live(entry, blocks):
            owner(row).stored.setdefault(entry.day, []).append(row)
    for entry in head.graves:
        for row in _live(entry, blocks):
            owner(row).graves.append(row)
    for dropped in head.dropped:
        if dropped.has_files:
            for row in _live(dropped.entry, blocks):
                owner(row).graves.append(row._replace(removed_seq=dropped.removed_seq, removed_ms=dropped.at_ms))
    return {child: parts[child].built(head, folders[child], f"{nonce}.{child}", rows_max) for child in children}


class _Part:
    """What one child gets."""

    def __init__(self, shard: str) -> None:
        self._shard = shard
        self.inline: list[InlineFile] = []
        self.tombstones: list[Tombstone] = []
        self.stored: dict[str, list[Row]] = {}
        self.graves: list[Row] = []

    def built(self, head: CatalogHead, folder: str, nonce: str, rows_max: int) -> Child:
        chunks = {one.file.path: self._renamed_inline(one) for one in self.inline}
        segments, objects = [], []
        for day in sorted(self.stored):
            made = list(self._segments(self.stored[day], folder, f"{nonce}.{day}", rows_max, day))
            segments += [entry for entry, _, _ in made]
            objects += made
        graves = list(self._segments(self.graves, folder, f"{nonce}.graves", rows_max, ""))
        objects += graves
        after = CatalogHead(
            version=head.version,
            uuid=head.uuid,
            seq=head.seq,
            shard=self._shard,
            chunks=chunks,
            time_index=time_index_of(chunks),
            segments=tuple(entry for entry in segments if not entry.day),
            archive=tuple(entry for entry in segments if entry.day),
            graves=tuple(entry for entry, _, _ in graves),
            tombstones=tuple(self._renamed_tombstone(one) for one in self.tombstones),
            leases=self._leases(head.leases.items()),
            pins=head.pins,
            purged_seq=head.purged_seq,
            # What the parent has, each child has its part of.
            sources=head.sources,
            extra=head.extra,
            own_extra=head.own_extra,
            is_draft=True,
        )
        return Child(after, tuple(objects))

    def _leases(self, leases: Iterable[tuple[str, LeaseRecord]]) -> dict[str, LeaseRecord]:
        """A lease is of one table, so all of its files are here or none."""
        mine = {one.file.path for one in self.inline} | {row.file.path for rows in self.stored.values() for row in rows}
        return {name: lease for name, lease in leases if mine.intersection(lease.paths)}

    def _segments(
        self, rows: list[Row], folder: str, nonce: str, rows_max: int, day: str
    ) -> Iterable[tuple[SegmentEntry, bytes, FileBlock]]:
        named = [self._renamed(row) for row in rows]
        named.sort(key=lambda row: (row.file.min_timestamp, row.file.path))
        for number, start in enumerate(range(0, len(named), rows_max)):
            block = FileBlock.of(named[start : start + rows_max])
            body = encode_segment(block, f"{nonce}.{number}")
            yield entry_of(block, body, folder, day=day), body, block

    def _renamed(self, row: Row) -> Row:
        return row._replace(file=msgspec.structs.replace(row.file, shard_id=self._shard))

    def _renamed_inline(self, one: InlineFile) -> InlineFile:
        row = self._renamed(one.row)
        return inline_file(row.file, one.added_seq, row_json(row))

    def _renamed_tombstone(self, one: Tombstone) -> Tombstone:
        row = self._renamed(one.row)
        return tombstone(row.file, one.added_seq, one.removed_seq, one.at_ms, row_json(row))


def _live(entry: SegmentEntry, blocks: Blocks) -> list[Row]:
    block, mask = blocks[entry.key], deleted_mask(entry)
    return block.rows(np.arange(len(block)) if mask is None else np.flatnonzero(~mask))
