"""Moving rows without changing which files are visible: spilling, merging, archiving days, spilling tombstones.

A relocation is drawn up against one head, its segments are uploaded, and then it is applied to whatever head
is current: a row that was removed meanwhile is marked as removed in its new place, so nothing comes back, and
a file that was registered meanwhile stays inline. If a segment it consumes is gone, another relocation was
first, and this one is void. It always consumes segments whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.catalog.change.lookup import Blocks, SegmentsNeeded, check_open
from penstock.catalog.format.block import FileBlock, Mask, Rows
from penstock.catalog.format.data_file import DAY_NS
from penstock.catalog.format.head import CatalogHead, Dropped, with_inline
from penstock.catalog.format.segment import SegmentEntry, deleted_mask, encode_segment, entry_of, with_deleted

__all__ = [
    "Made",
    "Relocation",
    "RelocationVoid",
    "apply_burial",
    "apply_relocation",
    "day_name",
    "draw_archive",
    "draw_burial",
    "draw_spill",
]

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INLINE: Final = 0


class RelocationVoid(Exception):
    """What was to be moved has been moved by another."""


@dataclass(frozen=True, slots=True)
class Made:
    """A new segment, its bytes, and where each row came from: a source by number, and the row in it."""

    entry: SegmentEntry
    body: bytes
    block: FileBlock
    source: npt.NDArray[np.int64]
    row: Rows


@dataclass(frozen=True, slots=True)
class Relocation:
    """Rows of the inline files (source 0) and of whole segments (1, 2 ...), and the segments they become."""

    inline: tuple[tuple[str, int], ...]
    consumed: tuple[str, ...]
    made: tuple[Made, ...]


def day_name(time_ns: int) -> str:
    """The day of a time, as archives are named; days beyond the calendar by their number."""
    day = time_ns // DAY_NS
    try:
        return (_UNIX_EPOCH + timedelta(days=day)).strftime("%Y-%m-%d")
    except OverflowError:
        return f"day{day}"


def draw_spill(head: CatalogHead, blocks: Blocks, folder: str, nonce: str, rows_max: int) -> Relocation | None:
    """Inline files into a segment, together with the newest segments that are no larger, so that few remain."""
    consumed, total = [], len(head.chunks)
    for entry in reversed(head.segments):
        if entry.live_rows > total or total + entry.live_rows > rows_max:
            break
        consumed.append(entry)
        total += entry.live_rows
    consumed += [entry for entry in head.segments if entry not in consumed and 2 * entry.deleted_rows > entry.rows][:1]
    if not head.chunks and not consumed:
        return None
    pool = _Pool(head, consumed, blocks)
    groups = [("", part) for part in _parts(np.arange(len(pool)), rows_max)]
    return pool.relocation(groups, folder, nonce)


def draw_archive(
    head: CatalogHead, blocks: Blocks, folder: str, nonce: str, *, before_ns: int, rows_max: int
) -> Relocation | None:
    """Files whose last day ended before `before_ns`, each into an object of that day; late ones join their day."""
    limit = before_ns // DAY_NS * DAY_NS
    late = {day_name(one.file.max_timestamp) for one in head.chunks.values() if one.file.max_timestamp < limit}
    mixed = [entry for entry in head.segments if entry.min_ts < limit]
    unread = [entry for entry in mixed if entry.key not in blocks]
    if unread:
        raise SegmentsNeeded(unread)
    consumed = []
    for entry in mixed:
        ends = blocks[entry.key].max_timestamp[_live(entry)]
        closed = np.unique(ends[ends < limit] // DAY_NS)
        if len(closed) or not len(ends):
            consumed.append(entry)
            late.update(day_name(int(day) * DAY_NS) for day in closed)
    if not late and not consumed:
        return None
    pool = _Pool(head, [*consumed, *(entry for entry in head.archive if entry.day in late)], blocks)
    days = pool.max_timestamp // DAY_NS
    groups: list[tuple[str, Rows]] = []
    for day in np.unique(days[pool.max_timestamp < limit]):
        rows = np.flatnonzero(days == day)
        groups += [(day_name(int(day) * DAY_NS), part) for part in _parts(rows, rows_max)]
    # What is not closed stays where it was: inline files inline, the rest of a consumed segment in a new one.
    rest = np.flatnonzero((pool.max_timestamp >= limit) & (pool.source != _INLINE))
    groups += [("", part) for part in _parts(rest, rows_max)]
    return pool.relocation(groups, folder, nonce)


def draw_burial(head: CatalogHead, folder: str, nonce: str) -> Relocation | None:
    """Tombstones into a segment, so that a busy compactor does not fill the head with them."""
    if not head.tombstones:
        return None
    block = head.tombstone_block
    body = encode_segment(block, nonce)
    rows = np.arange(len(block))
    made = Made(entry_of(block, body, folder), body, block, np.zeros(len(rows), np.int64), rows)
    inline = tuple(zip(block.paths(rows), block.removed_seq.tolist(), strict=True))
    return Relocation(inline, (), (made,))


def apply_relocation(head: CatalogHead, relocation: Relocation, now_ms: int) -> CatalogHead:
    check_open(head)
    current = {entry.key: entry for entry in head.stored}
    if not all(key in current for key in relocation.consumed):
        raise RelocationVoid("a segment that was to be moved is gone")
    gone: list[Mask] = [_gone_inline(head, relocation)]
    for key in relocation.consumed:
        mask = deleted_mask(current[key])
        gone.append(np.zeros(current[key].rows, bool) if mask is None else mask)
    made = [_settled(one, gone) for one in relocation.made]
    moved = _moved_inline(head, relocation)
    used = set(relocation.consumed)
    dropped = tuple(
        Dropped(entry=current[key], removed_seq=head.next_seq, at_ms=now_ms, has_files=False)
        for key in relocation.consumed
    )
    segments = [entry for entry in head.segments if entry.key not in used]
    archive = [entry for entry in head.archive if entry.key not in used]
    return replace(
        with_inline(head, [], moved),
        segments=(*segments, *(entry for entry in made if not entry.day and entry.live_rows)),
        archive=tuple(sorted([*archive, *(one for one in made if one.day and one.live_rows)], key=lambda one: one.day)),
        dropped=head.dropped + dropped,
    )


def apply_burial(head: CatalogHead, relocation: Relocation) -> CatalogHead:
    check_open(head)
    moved = set(relocation.inline)
    present = {(one.file.path, one.removed_seq) for one in head.tombstones}
    [made] = relocation.made
    gone = np.array([one not in present for one in relocation.inline], bool)
    if gone.all():
        raise RelocationVoid("the tombstones are gone")
    kept = tuple(one for one in head.tombstones if (one.file.path, one.removed_seq) not in moved)
    return replace(head, tombstones=kept, graves=(*head.graves, _settled(made, [gone])), is_draft=True)


def _settled(made: Made, gone: Sequence[Mask]) -> SegmentEntry:
    mask = np.zeros(made.entry.rows, bool)
    for number, one in enumerate(gone):
        mine = made.source == number
        mask[mine] = one[made.row[mine]]
    return with_deleted(made.entry, mask)


def _gone_inline(head: CatalogHead, relocation: Relocation) -> Mask:
    return np.array([not _is_here(head, *one) for one in relocation.inline], bool)


def _moved_inline(head: CatalogHead, relocation: Relocation) -> list[str]:
    """Paths of the inline files that went into a segment."""
    rows = {int(row) for made in relocation.made for row in made.row[made.source == _INLINE]}
    return [
        path for at, (path, added_seq) in enumerate(relocation.inline) if at in rows and _is_here(head, path, added_seq)
    ]


def _is_here(head: CatalogHead, path: str, added_seq: int) -> bool:
    inline = head.chunks.get(path)
    return inline is not None and inline.added_seq == added_seq


def _live(entry: SegmentEntry) -> Mask:
    mask = deleted_mask(entry)
    return np.ones(entry.rows, bool) if mask is None else ~mask


def _parts(rows: Rows, rows_max: int) -> list[Rows]:
    return [rows[start : start + rows_max] for start in range(0, len(rows), rows_max)]


class _Pool:
    """The live rows of the inline files and of some segments, laid end to end and sorted by time."""

    def __init__(self, head: CatalogHead, entries: Sequence[SegmentEntry], blocks: Blocks) -> None:
        unread = [entry for entry in entries if entry.key not in blocks]
        if unread:
            raise SegmentsNeeded(unread)
        inline = head.whole_inline_block
        self._consumed = tuple(entry.key for entry in entries)
        everything = np.arange(len(inline))
        self._inline = tuple(zip(inline.paths(everything), inline.added_seq.tolist(), strict=True))
        chosen = [everything, *(np.flatnonzero(_live(entry)) for entry in entries)]
        joined, order = FileBlock.joined([inline, *(blocks[entry.key] for entry in entries)], chosen)
        self._block = joined
        self.source = np.repeat(np.arange(len(chosen)), [len(rows) for rows in chosen])[order]
        self._row = np.concatenate(chosen)[order]

    def __len__(self) -> int:
        return len(self._block)

    @property
    def max_timestamp(self) -> npt.NDArray[np.int64]:
        return self._block.max_timestamp

    def relocation(self, groups: Sequence[tuple[str, Rows]], folder: str, nonce: str) -> Relocation:
        made = []
        for number, (day, rows) in enumerate(groups):
            block = FileBlock(self._block.table.take(rows))
            body = encode_segment(block, f"{nonce}.{number}")
            entry = entry_of(block, body, folder, day=day)
            made.append(Made(entry, body, block, self.source[rows], self._row[rows]))
        return Relocation(self._inline, self._consumed, tuple(made))
