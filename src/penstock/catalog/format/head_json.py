"""Heads as JSON: version 2 as other programs know it, version 3 with segments; and the register's format.

Version 2 has `version`, `chunks` and `time_index`, and all else of ours in one member `penstock`, which other
readers pass over. Both versions end with a CRC-32C of all bytes before it; a version-2 file that another
program wrote has none. Members that are not known are kept when the head is written again. An unknown version
is `Unsupported`, everything else that does not hold is `Corrupt`. Format page: docs/format/catalog.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar, get_origin

import msgspec

from penstock.catalog.format.data_file import decode_file
from penstock.catalog.format.head import (
    COMMITS_MAX,
    CatalogHead,
    Dropped,
    HeadState,
    LeaseRecord,
    Pin,
    Tombstone,
    parse_inline,
    time_index_of,
    tombstone,
)
from penstock.catalog.format.members import check_names, check_seal, parsed, sealed, unparsed
from penstock.catalog.format.segment import SegmentEntry
from penstock.errors import Corrupt, InvalidInput, PenstockError, Unsupported
from penstock.objects import Token
from penstock.undecodable import UNDECODABLE

__all__ = ["HEAD_BYTES_MAX", "HeadFormat", "decode_head", "encode_head", "stored_time_index"]

# A body beyond this is refused before it is parsed: it would be a version-2 catalog of some 300,000 files.
HEAD_BYTES_MAX: Final = 128 * 1024 * 1024
_WHAT: Final = "catalog head"
_RAWS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES_MAX: Final = 16384
_FENCE_MAX: Final = 2**64 - 1

S = TypeVar("S", bound=msgspec.Struct)


def encode_head(head: CatalogHead) -> bytes:
    """The whole object. Entries of files are copied as bytes; only what is small is made anew."""
    if head.version == 2:
        if head.segments or head.archive:
            why = "it has segments, and version 2 keeps every file inline"
            raise Unsupported(f"{_WHAT} cannot be written as version 2", why, "run penstock catalog downgrade --to 2")
        ours = b",".join((*_own_members(head), *_raw_members(head.own_extra)))
        members = [b'"version":2', *_file_members(head), *_raw_members(head.extra), b'"penstock":{%b}' % ours]
    else:
        members = [
            b'"version":3',
            *_file_members(head),
            *_own_members(head),
            *_raw_members({**head.own_extra, **head.extra}),
        ]
    return sealed(b"{" + b",".join(members))


def _file_members(head: CatalogHead) -> Iterable[bytes]:
    yield b'"chunks":{%b}' % b",".join([inline.member for inline in head.chunks.values()])
    yield b'"time_index":%b' % msgspec.json.encode({hour: head.time_index[hour] for hour in sorted(head.time_index)})


def _own_members(head: CatalogHead) -> Iterable[bytes]:
    plain: dict[str, Any] = {
        "uuid": head.uuid,
        "seq": head.seq,
        "fence": head.fence,
        "shard": head.shard,
        "state": head.state,
        "purged_seq": head.purged_seq,
        "added": {path: inline.added_seq for path, inline in head.chunks.items() if inline.added_seq > 0},
        "leases": _plain(head.leases),
        "pins": _plain(head.pins),
        "commits": head.commits,
    }
    if head.sources:
        plain["sources"] = head.sources
    if head.migrated:
        plain["migrated"] = head.migrated
    yield msgspec.json.encode(plain)[1:-1]
    yield b'"tombstones":[%b]' % b",".join([one.wire for one in head.tombstones])
    for name in ("segments", "archive", "graves"):
        yield b'"%b":[%b]' % (name.encode(), b",".join([_entry_raw(entry) for entry in getattr(head, name)]))
    yield b'"dropped":[%b]' % b",".join([_dropped_raw(one) for one in head.dropped])


def _plain(structs: Mapping[str, LeaseRecord] | Mapping[str, Pin]) -> dict[str, Any]:
    """Few have members of a later release; the others are encoded as they are."""
    return {name: unparsed(one) if one.extra else one for name, one in structs.items()}


def _raw_members(members: Mapping[str, msgspec.Raw]) -> Iterable[bytes]:
    return (b"%b:%b" % (msgspec.json.encode(name), bytes(raw)) for name, raw in members.items())


@lru_cache(_ENTRIES_MAX)
def _entry_raw(entry: SegmentEntry) -> bytes:
    return msgspec.json.encode(unparsed(entry))


def _dropped_raw(one: Dropped) -> bytes:
    members = {**one.extra, "removed_seq": one.removed_seq, "at": one.at_ms, "has_files": one.has_files}
    return b'%b,"entry":%b}' % (msgspec.json.encode(members)[:-1], _entry_raw(one.entry))


# Reading ------------------------------------------------------------------------------------------------


def decode_head(body: bytes, *, bytes_max: int = HEAD_BYTES_MAX) -> CatalogHead:
    """Check all that can be checked; every fault of a hostile body is an error of ours."""
    if len(body) > bytes_max:
        why = f"it has {len(body):,} bytes, over the bound of {bytes_max:,}"
        raise Corrupt(f"{_WHAT} is too large", why, "raise head_bytes_max if it is valid, then move to format 3")
    try:
        return _decoded(body)
    except (Corrupt, Unsupported):
        raise
    except (*UNDECODABLE, ValueError, TypeError, KeyError, PenstockError) as error:
        raise Corrupt(f"{_WHAT} is damaged", f"{type(error).__name__}: {error}") from error


def _decoded(body: bytes) -> CatalogHead:
    members = _RAWS.decode(body)
    version = msgspec.json.decode(members.pop("version", b"null"))
    if version not in (2, 3) or isinstance(version, bool):
        raise Unsupported(f"{_WHAT} of version {version!r}", "this release reads versions 2 and 3, and writes them")
    told = members.pop("crc32c", None)
    # Without our own members it is another program's, which knows no checksum.
    if told is not None or version == 3 or "penstock" in members:
        check_seal(body, _WHAT)
    else:
        check_names(body, _WHAT)
    own = members
    if version == 2:
        strange = [name for name in ("segments", "uuid", "commits") if name in members]
        if strange:
            raise Corrupt(f"{_WHAT} is damaged", f"it declares version 2, but has {', '.join(strange)} of version 3")
        own = _RAWS.decode(members.pop("penstock", b"{}"))
    return _head(version, members, own)


def _head(version: int, members: dict[str, msgspec.Raw], own: dict[str, msgspec.Raw]) -> CatalogHead:
    added = _take(own, "added", dict[str, int])
    chunks = {}
    for path, raw in _take(members, "chunks", dict[str, msgspec.Raw]).items():
        inline = parse_inline(bytes(raw), added.get(path, 0))
        if inline.file.path != path:
            raise Corrupt(f"{_WHAT} is damaged", f"the entry {path[:80]!r} is of {inline.file.path[:80]!r}")
        chunks[path] = inline
    # Derived, so that what is there can never disagree with the files; `verify` compares the two.
    members.pop("time_index", None)
    head = CatalogHead(
        version=version,
        uuid=_take(own, "uuid", str, ""),
        seq=_take(own, "seq", int, 0),
        fence=_take(own, "fence", int, 0),
        shard=_take(own, "shard", str, ""),
        state=_take(own, "state", HeadState, HeadState.OPEN),
        purged_seq=_take(own, "purged_seq", int, 0),
        chunks=chunks,
        time_index=time_index_of(chunks),
        leases=_structs(own, "leases", LeaseRecord),
        pins=_structs(own, "pins", Pin),
        commits=_take(own, "commits", dict[str, int]),
        sources=_take(own, "sources", dict[str, int]),
        migrated=_take(own, "migrated", dict[str, Any]),
        tombstones=tuple(_tombstone(raw) for raw in _take(own, "tombstones", list[msgspec.Raw])),
        segments=_entries(own, "segments"),
        archive=_entries(own, "archive"),
        graves=_entries(own, "graves"),
        dropped=tuple(_dropped(raw) for raw in _take(own, "dropped", list[msgspec.Raw])),
    )
    # What is left of `penstock` is of a later release of ours, what is left beside it is somebody else's.
    return replace(head, extra=members, own_extra=own if version == 2 else {})


def _take(members: dict[str, msgspec.Raw], name: str, type: Any, default: Any = None) -> Any:
    """A member by its type; one that is not there is its default, or empty."""
    raw = members.pop(name, None)
    if raw is not None:
        return msgspec.json.decode(raw, type=type)
    return get_origin(type)() if default is None else default


def _structs(members: dict[str, msgspec.Raw], name: str, type: type[S]) -> dict[str, S]:
    return {key: parsed(json, type) for key, json in _take(members, name, dict[str, dict[str, Any]]).items()}


def _entries(members: dict[str, msgspec.Raw], name: str) -> tuple[SegmentEntry, ...]:
    return tuple(parsed(json, SegmentEntry) for json in _take(members, name, list[dict[str, Any]]))


def _tombstone(raw: msgspec.Raw) -> Tombstone:
    members = _RAWS.decode(raw)
    members.pop("path", None)
    file = bytes(members.pop("file"))
    added, removed, at_ms = (
        msgspec.json.decode(members.pop(name), type=int) for name in ("added_seq", "removed_seq", "at")
    )
    return tombstone(decode_file(file), added, removed, at_ms, file, members)


def _dropped(raw: msgspec.Raw) -> Dropped:
    json = msgspec.json.decode(raw, type=dict[str, Any])
    return Dropped(
        entry=parsed(msgspec.convert(json.pop("entry"), dict[str, Any]), SegmentEntry),
        removed_seq=msgspec.convert(json.pop("removed_seq"), int),
        at_ms=msgspec.convert(json.pop("at"), int),
        has_files=msgspec.convert(json.pop("has_files"), bool),
        extra=json,
    )


def stored_time_index(body: bytes) -> dict[int, list[str]]:
    """The time index as it stands in the bytes, for comparing."""
    raw = _RAWS.decode(body).get("time_index", msgspec.Raw(b"{}"))
    return {int(hour): paths for hour, paths in msgspec.json.decode(raw, type=dict[str, list[str]]).items()}


class HeadFormat:
    """`penstock.objects.Format` over heads: the proof of a commit is its number under the writer's name."""

    def __init__(self, version: int, *, shard: str = "", bytes_max: int = HEAD_BYTES_MAX) -> None:
        self._absent = CatalogHead(version=version, shard=shard, is_absent=True)
        self._bytes_max = bytes_max
        # Of the body that was last read or written.
        self.bytes_last = 0

    def empty(self) -> CatalogHead:
        return self._absent

    def decode(self, body: bytes) -> CatalogHead:
        self.bytes_last = len(body)
        return decode_head(body, bytes_max=self._bytes_max)

    def encode(self, value: CatalogHead) -> bytes:
        body = encode_head(value)
        if len(body) > self._bytes_max:
            why = f"it would have {len(body):,} bytes, over the bound of {self._bytes_max:,}"
            raise InvalidInput(f"{_WHAT} grows too large", why, "move to format 3, or split the shard")
        self.bytes_last = len(body)
        return body

    def fence(self, value: CatalogHead) -> int:
        return value.fence

    def with_fence(self, value: CatalogHead, fence: int) -> CatalogHead:
        return replace(value, fence=fence)

    def next_fence(self, fence: int) -> int:
        if fence >= _FENCE_MAX:
            raise InvalidInput(f"fence {fence} cannot be raised", "it is the largest that fits 64 bits")
        return fence + 1

    def stamp(self, value: CatalogHead, token: Token) -> CatalogHead:
        commits: dict[str, int] = {writer: number for writer, number in value.commits.items() if writer != token.writer}
        commits[token.writer] = token.number
        kept = dict(list(commits.items())[-COMMITS_MAX:])
        return replace(value, seq=value.seq + 1, commits=kept, is_absent=False, is_draft=False)

    def landed(self, value: CatalogHead, token: Token) -> bool | None:
        number = value.commits.get(token.writer)
        if number is None:
            # A table with room has never forgotten anybody.
            return None if len(value.commits) >= COMMITS_MAX else False
        return None if number > token.number else number == token.number
