"""Where segments are kept: on a disk (`SegmentShelf`), or in memory when persistence is off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from penstock.errors import Corrupt
from penstock.quiver.segment.format import SegmentMeta, SegmentStream, segment_meta
from penstock.quiver.segment.open_segment import OpenSegment

__all__ = ["MemorySegments", "SegmentStore"]


class SegmentStore(Protocol):
    """Blocking."""

    def write(self, segment: OpenSegment, segment_seq: int) -> SegmentMeta: ...

    def read(self, meta: SegmentMeta, *, check: bool = True) -> dict[str, list[pa.Table]]: ...

    def remove(self, metas: Sequence[SegmentMeta]) -> None: ...

    def set_aside(self, segment_seq: int) -> None: ...


class MemorySegments:
    """Segments of a store that persists nothing."""

    def __init__(self) -> None:
        self._tables: dict[int, dict[str, list[pa.Table]]] = {}

    def write(self, segment: OpenSegment, segment_seq: int) -> SegmentMeta:
        streams: list[SegmentStream] = []
        slots: dict[str, list[pa.Table]] = {}
        for slot, mark in segment.streams:
            table = segment.table(slot, mark)
            slots.setdefault(slot, []).append(table)
            streams.append(SegmentStream("", slot, mark, table.num_rows, table.nbytes, 0))
        self._tables[segment_seq] = slots
        return segment_meta(segment, segment_seq, streams)

    def read(self, meta: SegmentMeta, *, check: bool = True) -> dict[str, list[pa.Table]]:
        if meta.segment_seq not in self._tables:
            raise Corrupt(f"segment {meta.segment_seq} is gone", "it was removed")
        return self._tables[meta.segment_seq]

    def remove(self, metas: Sequence[SegmentMeta]) -> None:
        for meta in metas:
            self._tables.pop(meta.segment_seq, None)

    def set_aside(self, segment_seq: int) -> None:
        self._tables.pop(segment_seq, None)
