"""Where a path is: inline, in a segment, or among the removed. Pure, over the segments that are in memory.

Whether a path is listed can be told for certain without reading most segments, because each entry names its
least and greatest path. What has to be read and is not here is asked for with `SegmentsNeeded`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from penstock.catalog.format.block import FileBlock, Row
from penstock.catalog.format.head import CatalogHead, HeadState, InlineFile
from penstock.catalog.format.segment import SegmentEntry, deleted_mask
from penstock.errors import InvalidInput

__all__ = [
    "Blocks",
    "Listed",
    "SegmentsNeeded",
    "ShardClosed",
    "block_of",
    "check_label",
    "check_open",
    "find_listed",
    "find_removed",
]

Blocks: TypeAlias = Mapping[str, FileBlock]
_LABEL_CHARACTERS_MAX: Final = 256


class SegmentsNeeded(Exception):
    """A change cannot be decided before these segments are in memory."""

    def __init__(self, entries: Iterable[SegmentEntry]) -> None:
        self.entries = tuple(entries)
        super().__init__(f"{len(self.entries)} segments must be read first")


class ShardClosed(Exception):
    """The shard is being split, or has been: this head takes no change."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A visible file: inline, or a row of a segment."""

    row: Row
    inline: InlineFile | None = None
    entry: SegmentEntry | None = None
    at: int = -1


def check_label(kind: str, label: object) -> str:
    """A name that somebody gave: of a source, of a pin, of the owner of a lease. Every head has to carry it."""
    if not isinstance(label, str) or not 0 < len(label) <= _LABEL_CHARACTERS_MAX or not label.isprintable():
        raise InvalidInput(f"{kind} {label!r:.80}", f"it must be 1 to {_LABEL_CHARACTERS_MAX} printable characters")
    return label


def check_open(head: CatalogHead) -> None:
    if head.state is not HeadState.OPEN:
        raise ShardClosed(head.state)


def block_of(entry: SegmentEntry, blocks: Blocks) -> FileBlock:
    found = blocks.get(entry.key)
    if found is None:
        raise SegmentsNeeded([entry])
    return found


def find_listed(head: CatalogHead, paths: Iterable[str], blocks: Blocks) -> dict[str, Listed]:
    """The visible files among `paths`."""
    found: dict[str, Listed] = {}
    missing = []
    for path in paths:
        inline = head.chunks.get(path)
        if inline is not None:
            found[path] = Listed(Row(inline.file, inline.added_seq), inline=inline)
        else:
            missing.append(path)
    for entry, path, at in _rows_of(head.stored, missing, blocks):
        mask = deleted_mask(entry)
        if mask is None or not mask[at]:
            found[path] = Listed(blocks[entry.key].rows(np.array([at]))[0], entry=entry, at=at)
    return found


def find_removed(head: CatalogHead, paths: Iterable[str], blocks: Blocks) -> dict[str, Row]:
    """The files among `paths` that were visible once, as far back as tombstones go."""
    found: dict[str, Row] = {}
    missing = []
    for path in paths:
        tombstone = head.buried.get(path)
        if tombstone is not None:
            found[path] = Row(tombstone.file, tombstone.added_seq)
        else:
            missing.append(path)
    gone = [*head.graves, *(dropped.entry for dropped in head.dropped if dropped.has_files)]
    for entry, path, at in _rows_of(gone, missing, blocks):
        found[path] = blocks[entry.key].rows(np.array([at]))[0]
    return found


def _rows_of(
    entries: Iterable[SegmentEntry], paths: list[str], blocks: Blocks
) -> Iterable[tuple[SegmentEntry, str, int]]:
    if not paths:
        return []
    wanted = [(entry, path) for entry in entries for path in paths if entry.may_hold(path)]
    unread = {entry.key: entry for entry, _ in wanted if entry.key not in blocks}
    if unread:
        raise SegmentsNeeded(unread.values())
    rows = ((entry, path, blocks[entry.key].find(path)) for entry, path in wanted)
    return [(entry, path, at) for entry, path, at in rows if at is not None]
