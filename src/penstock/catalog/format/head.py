"""A head: the whole state of one shard, immutable, as every change and every plan sees it.

Files lie inline in `chunks`, the newest ones, or in segments and archived days that the head names. A removed
file leaves a tombstone until `vacuum` has deleted it. `seq` counts writes; `purged_seq` is how far history has
been vacuumed. `state` is open, closed (being split: no change is taken) or moved (its children have it all).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from penstock.catalog.format.block import FileBlock, Row, foreign_members
from penstock.catalog.format.data_file import DataFile, decode_file, encode_file, hours_of
from penstock.catalog.format.segment import SegmentEntry

__all__ = [
    "COMMITS_MAX",
    "CatalogHead",
    "Dropped",
    "HeadState",
    "InlineFile",
    "LeaseRecord",
    "Pin",
    "Tombstone",
    "inline_file",
    "parse_inline",
    "time_index_of",
    "tombstone",
    "with_inline",
]

# Writers whose last commit is remembered: a writer forgotten is one that 128 others have followed.
COMMITS_MAX: Final = 128


class HeadState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    MOVED = "moved"


class InlineFile(NamedTuple):
    """A file in the head, with the bytes of its entry, which are copied and never made again."""

    file: DataFile
    added_seq: int
    raw: bytes
    # `"path":{...}`, as it stands between the braces of `chunks`.
    member: bytes

    @property
    def row(self) -> Row:
        return Row(self.file, self.added_seq, foreign_members(self.raw))


class Tombstone(NamedTuple):
    """A file that is no longer visible, until the grace has passed. `wire` is its entry in the head."""

    file: DataFile
    added_seq: int
    removed_seq: int
    at_ms: int
    raw: bytes
    wire: bytes

    @property
    def row(self) -> Row:
        return Row(self.file, self.added_seq, foreign_members(self.raw), self.removed_seq, self.at_ms)


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A segment object that the head no longer reads. With `has_files`, its live rows are to be deleted too."""

    entry: SegmentEntry
    removed_seq: int
    at_ms: int
    has_files: bool
    # Members that a later release wrote, here and below; kept, and never read here.
    extra: dict[str, Any] = {}


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Files that one compaction works on."""

    owner: str
    paths: tuple[str, ...]
    expires_ms: int
    extra: dict[str, Any] = {}


class Pin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reader that needs every file visible at `seq`, until the pin expires."""

    seq: int
    expires_ms: int
    extra: dict[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class CatalogHead:
    """One state of one shard."""

    version: int
    uuid: str = ""
    seq: int = 0
    fence: int = 0
    shard: str = ""
    state: HeadState = HeadState.OPEN
    chunks: Mapping[str, InlineFile] = field(default_factory=dict)
    # Hour to paths, derived from `chunks` and kept in step with it.
    time_index: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    segments: tuple[SegmentEntry, ...] = ()
    archive: tuple[SegmentEntry, ...] = ()
    leases: Mapping[str, LeaseRecord] = field(default_factory=dict)
    pins: Mapping[str, Pin] = field(default_factory=dict)
    tombstones: tuple[Tombstone, ...] = ()
    # Tombstones that were spilled: segments whose rows are gone files.
    graves: tuple[SegmentEntry, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    purged_seq: int = 0
    # The number of each writer's last commit, the oldest first.
    commits: Mapping[str, int] = field(default_factory=dict)
    # How far each source of files is registered in this shard.
    sources: Mapping[str, int] = field(default_factory=dict)
    # Checksums of the legacy pair that this catalog was made from.
    migrated: Mapping[str, Any] = field(default_factory=dict)
    # Members of the object that are not known here, and of `penstock` in it: kept, each in its place.
    own_extra: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    extra: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    # There is no object yet: the legacy pair may be read in its place.
    is_absent: bool = False
    # Changed since it was read, by a change that shares its write with others: `seq` is not yet raised.
    is_draft: bool = False

    @property
    def next_seq(self) -> int:
        """The sequence that the write of this draft will have."""
        return self.seq + 1

    @property
    def stored(self) -> tuple[SegmentEntry, ...]:
        """Every segment with visible rows."""
        return self.segments + self.archive

    @property
    def live_files(self) -> int:
        return len(self.chunks) + sum(entry.live_rows for entry in self.stored)

    @cached_property
    def inline_block(self) -> FileBlock:
        """The inline files for planning, which does not look at members that are not ours."""
        return FileBlock.of([Row(inline.file, inline.added_seq) for inline in self.chunks.values()])

    @cached_property
    def whole_inline_block(self) -> FileBlock:
        """The inline files with all of their members, for moving them."""
        return FileBlock.of([inline.row for inline in self.chunks.values()])

    @cached_property
    def tombstone_block(self) -> FileBlock:
        return FileBlock.of([tombstone.row for tombstone in self.tombstones])

    @cached_property
    def buried(self) -> Mapping[str, Tombstone]:
        return {tombstone.file.path: tombstone for tombstone in self.tombstones}


def inline_file(file: DataFile, added_seq: int, raw: bytes | None = None) -> InlineFile:
    """From a file, with the bytes of its entry if they are known."""
    raw = encode_file(file) if raw is None else raw
    return InlineFile(file, added_seq, raw, b"%b:%b" % (msgspec.json.encode(file.path), raw))


def parse_inline(raw: bytes, added_seq: int) -> InlineFile:
    return inline_file(decode_file(raw), added_seq, raw)


def tombstone(
    file: DataFile,
    added_seq: int,
    removed_seq: int,
    at_ms: int,
    raw: bytes,
    extra: Mapping[str, msgspec.Raw] = MappingProxyType({}),
) -> Tombstone:
    path = msgspec.json.encode(file.path)
    wire = b'{"path":%b,"removed_seq":%d,"at":%d,"added_seq":%d,"file":%b' % (path, removed_seq, at_ms, added_seq, raw)
    wire += b"".join([b",%b:%b" % (msgspec.json.encode(name), bytes(value)) for name, value in extra.items()]) + b"}"
    return Tombstone(file, added_seq, removed_seq, at_ms, raw, wire)


def time_index_of(files: Mapping[str, InlineFile]) -> dict[int, tuple[str, ...]]:
    """Hour to paths: every file under every hour it touches, once."""
    index: dict[int, list[str]] = {}
    for path, inline in files.items():
        for hour in hours_of(inline.file):
            index.setdefault(hour, []).append(path)
    return {hour: tuple(paths) for hour, paths in index.items()}


def with_inline(head: CatalogHead, added: Iterable[InlineFile], removed: Iterable[str] = ()) -> CatalogHead:
    """The head with files put in and taken out, its time index kept in step. Costs what changes, and two copies."""
    chunks, index = dict(head.chunks), dict(head.time_index)
    gone: dict[int, set[str]] = {}
    for path in removed:
        for hour in hours_of(chunks.pop(path).file):
            gone.setdefault(hour, set()).add(path)
    for hour, paths in gone.items():
        left = tuple(path for path in index[hour] if path not in paths)
        if left:
            index[hour] = left
        else:
            del index[hour]
    for inline in added:
        chunks[inline.file.path] = inline
        for hour in hours_of(inline.file):
            index[hour] = (*index.get(hour, ()), inline.file.path)
    return replace(head, chunks=chunks, time_index=index, is_draft=True)
