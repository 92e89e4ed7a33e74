"""Changes to which files are visible: register, delete, the swap of a compaction, retention.

Each is a pure function from a head to the next one, applied inside one conditional write. A change that was
made before gives back the very head it was given, so that nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from penstock.catalog.change.lookup import Blocks, Listed, SegmentsNeeded, check_open, find_listed, find_removed
from penstock.catalog.format.block import Row, row_json
from penstock.catalog.format.data_file import DataFile, is_same_file
from penstock.catalog.format.head import CatalogHead, Dropped, Tombstone, inline_file, tombstone, with_inline
from penstock.catalog.format.segment import SegmentEntry, deleted_mask, with_deleted
from penstock.errors import Conflict, InvalidInput

__all__ = ["check_seq", "complete_compaction", "delete_files", "expire_files", "register_files"]


def check_seq(head: CatalogHead, expected_seq: int | None) -> None:
    """Refuse unless nothing was written since `expected_seq`, also not by a change that shares this very write."""
    if expected_seq is None or (head.seq == expected_seq and not head.is_draft):
        return
    why = f"it is at sequence {head.seq}, and {expected_seq} was expected"
    raise Conflict("the catalog has changed", why, "plan again, then decide")


def register_files(head: CatalogHead, files: Sequence[DataFile], blocks: Blocks) -> CatalogHead:
    """Make files visible. One that is listed already, or was, is left as it is; other content is refused."""
    check_open(head)
    wanted = _distinct(files)
    fresh = _unknown(head, wanted, blocks)
    if not fresh:
        return head
    return with_inline(head, [inline_file(file, head.next_seq) for file in fresh])


def delete_files(head: CatalogHead, paths: Iterable[str], blocks: Blocks, now_ms: int) -> CatalogHead:
    """Make files invisible; their tombstones keep them readable for the grace. What is not listed is passed over."""
    check_open(head)
    found = find_listed(head, dict.fromkeys(paths), blocks)
    return _removed(head, found.values(), now_ms) if found else head


def complete_compaction(
    head: CatalogHead,
    sources: Sequence[str],
    targets: Sequence[DataFile],
    lease_id: str,
    blocks: Blocks,
    now_ms: int,
) -> CatalogHead:
    """Put the targets in the place of the sources, all at once, if the lease is held and all sources are there."""
    check_open(head)
    wanted = _distinct(targets)
    if not sources:
        raise InvalidInput(
            "a compaction names no source", "a compaction replaces files with others", "register new files instead"
        )
    if set(sources) & wanted.keys():
        raise InvalidInput("a file is both source and target of a compaction", "a path is never used twice")
    fresh = _unknown(head, wanted, blocks)
    found = find_listed(head, dict.fromkeys(sources), blocks)
    if wanted and not fresh and not found:
        # It landed before, and this call repeats it.
        return head
    _check_lease(head, lease_id, sources)
    if len(found) < len(set(sources)):
        gone = next(path for path in sources if path not in found)
        raise Conflict("the compaction was not committed", f"source {gone!r} is no longer listed", "plan again")
    if len(fresh) < len(wanted):
        known = next(path for path in wanted if wanted[path] not in fresh)
        raise Conflict("the compaction was not committed", f"target {known!r} was registered before", "plan again")
    after = _removed(head, found.values(), now_ms)
    after = with_inline(after, [inline_file(file, head.next_seq) for file in wanted.values()])
    return replace(after, leases={name: one for name, one in head.leases.items() if name != lease_id})


def _check_lease(head: CatalogHead, lease_id: str, sources: Sequence[str]) -> None:
    lease = head.leases.get(lease_id)
    if lease is None or not set(sources) <= set(lease.paths):
        why = f"lease {lease_id} is not held" if lease is None else "the lease is of other files"
        raise Conflict("the compaction was not committed", why, "plan again; the sources are untouched")


def expire_files(head: CatalogHead, cutoff_ns: int, blocks: Blocks, now_ms: int) -> CatalogHead:
    """Remove files whose last row is before the cutoff. Whole segments and days go unread, days only whole."""
    check_open(head)
    old = [entry for entry in head.stored if entry.max_ts < cutoff_ns]
    old_keys = {entry.key for entry in old}
    mixed = [entry for entry in head.segments if entry.key not in old_keys and entry.min_ts < cutoff_ns]
    unread = [entry for entry in mixed if entry.key not in blocks]
    if unread:
        raise SegmentsNeeded(unread)
    found = [
        Listed(Row(inline.file, inline.added_seq), inline=inline)
        for inline in head.chunks.values()
        if inline.file.max_timestamp < cutoff_ns
    ]
    for entry in mixed:
        found += _listed_before(entry, cutoff_ns, blocks)
    if not old and not found:
        return head
    after = _removed(head, found, now_ms) if found else head
    return _dropped(after, old, now_ms)


def _listed_before(entry: SegmentEntry, cutoff_ns: int, blocks: Blocks) -> list[Listed]:
    block = blocks[entry.key]
    chosen, mask = block.max_timestamp < cutoff_ns, deleted_mask(entry)
    rows = np.flatnonzero(chosen if mask is None else chosen & ~mask)
    return [Listed(row, entry=entry, at=int(at)) for at, row in zip(rows, block.rows(rows), strict=True)]


def _dropped(head: CatalogHead, entries: Collection[SegmentEntry], now_ms: int) -> CatalogHead:
    keys = {entry.key for entry in entries}
    gone = tuple(Dropped(entry=entry, removed_seq=head.next_seq, at_ms=now_ms, has_files=True) for entry in entries)
    return replace(
        head,
        segments=tuple(entry for entry in head.segments if entry.key not in keys),
        archive=tuple(entry for entry in head.archive if entry.key not in keys),
        dropped=head.dropped + gone,
        is_draft=True,
    )


def _distinct(files: Sequence[DataFile]) -> dict[str, DataFile]:
    wanted: dict[str, DataFile] = {}
    for file in files:
        if not is_same_file(wanted.setdefault(file.path, file), file):
            raise InvalidInput(f"file {file.path!r} was given twice", "with different contents")
    return wanted


def _unknown(head: CatalogHead, wanted: dict[str, DataFile], blocks: Blocks) -> list[DataFile]:
    """Those that were never listed. One that is, or was, with other content is refused."""
    known = {path: listed.row.file for path, listed in find_listed(head, wanted, blocks).items()}
    missing = [path for path in wanted if path not in known]
    known |= {path: row.file for path, row in find_removed(head, missing, blocks).items()}
    for path, file in known.items():
        if not is_same_file(file, wanted[path]):
            why = "the catalog lists, or listed, another file under that path"
            raise Conflict(f"file {path!r} was not registered", why, "give every data file its own name")
    return [file for path, file in wanted.items() if path not in known]


def _removed(head: CatalogHead, found: Iterable[Listed], now_ms: int) -> CatalogHead:
    """The head without these files, a tombstone for each."""
    listed = list(found)
    rows: dict[str, list[int]] = {}
    for one in listed:
        if one.entry is not None:
            rows.setdefault(one.entry.key, []).append(one.at)
    inline = [one.inline.file.path for one in listed if one.inline is not None]
    after = with_inline(head, [], inline)
    graves = tuple(_tombstone(one, head.next_seq, now_ms) for one in listed)
    return replace(
        after,
        segments=tuple(_without(entry, rows) for entry in head.segments),
        archive=tuple(_without(entry, rows) for entry in head.archive),
        tombstones=head.tombstones + graves,
    )


def _tombstone(one: Listed, removed_seq: int, now_ms: int) -> Tombstone:
    raw = one.inline.raw if one.inline is not None else row_json(one.row)
    return tombstone(one.row.file, one.row.added_seq, removed_seq, now_ms, raw)


def _without(entry: SegmentEntry, rows: dict[str, list[int]]) -> SegmentEntry:
    gone = rows.get(entry.key)
    if gone is None:
        return entry
    mask = deleted_mask(entry)
    after = np.zeros(entry.rows, bool) if mask is None else mask.copy()
    after[gone] = True
    return with_deleted(entry, after)
