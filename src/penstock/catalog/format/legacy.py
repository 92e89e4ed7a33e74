"""The legacy pair, version 1: chunk metadata in one object and the time index in another, which can disagree.

Chunk metadata decides what is visible; the index is derived from it. Two kinds of inconsistency are told by
name: a chunk that the index lacks under some hour it touches, and a path in the index that has no metadata.
Format page: docs/format/catalog.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.catalog.format.data_file import hours_of
from penstock.catalog.format.head import CatalogHead, InlineFile, parse_inline, time_index_of
from penstock.catalog.format.members import check_names
from penstock.errors import Corrupt, PenstockError
from penstock.undecodable import UNDECODABLE

__all__ = ["Inconsistencies", "decode_pair", "encode_pair", "inconsistencies"]


@dataclass(frozen=True, slots=True)
class Inconsistencies:
    """What the pair disagrees about, sorted by path."""

    # Chunks with metadata that the index lacks under at least one hour they touch.
    missing_from_index: tuple[str, ...] = ()
    # Paths in the index that have no metadata; no reader can plan them.
    missing_from_metadata: tuple[str, ...] = ()
    # Paths under an hour they do not touch, or twice under one: harmless, and gone after a rewrite.
    misplaced: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing_from_index or self.missing_from_metadata)


def decode_pair(chunks: bytes | None, index: bytes | None, version: int) -> tuple[CatalogHead, Inconsistencies]:
    """The pair as a head of `version` that was never written, and where the two disagree. A missing one is empty."""
    try:
        if chunks is not None:
            check_names(chunks, "the legacy catalog")
        raws = msgspec.json.decode(chunks, type=dict[str, msgspec.Raw]) if chunks is not None else {}
        files = {path: parse_inline(bytes(raw), 0) for path, raw in raws.items()}
        hours = msgspec.json.decode(index, type=dict[str, list[str]]) if index is not None else {}
        told = {int(hour): paths for hour, paths in hours.items()}
    except Corrupt:
        raise
    except (*UNDECODABLE, ValueError, PenstockError) as error:
        raise Corrupt("the legacy catalog is damaged", f"{type(error).__name__}: {error}") from error
    for path, inline in files.items():
        if inline.file.path != path:
            raise Corrupt("the legacy catalog is damaged", f"the entry {path[:80]!r} is of {inline.file.path[:80]!r}")
    head = CatalogHead(version=version, chunks=files, time_index=time_index_of(files))
    return head, inconsistencies(files, told)


def inconsistencies(files: Mapping[str, InlineFile], index: Mapping[int, list[str]]) -> Inconsistencies:
    listed: dict[str, list[int]] = {}
    for hour, paths in index.items():
        for path in paths:
            listed.setdefault(path, []).append(hour)
    missing, misplaced = [], []
    for path, inline in files.items():
        touched, found = hours_of(inline.file), listed.get(path, [])
        if not set(touched) <= set(found):
            missing.append(path)
        if len(found) > len(set(found)) or not set(found) <= set(touched):
            misplaced.append(path)
    unknown = (path for path in listed if path not in files)
    return Inconsistencies(tuple(sorted(missing)), tuple(sorted(unknown)), tuple(sorted(misplaced)))


def encode_pair(files: Mapping[str, InlineFile]) -> tuple[bytes, bytes]:
    """Chunk metadata and time index, as version 1 wrote them."""
    chunks = b"{%b}" % b",".join(inline.member for inline in files.values())
    index: dict[int, Any] = time_index_of(files)
    return chunks, msgspec.json.encode({hour: index[hour] for hour in sorted(index)})
