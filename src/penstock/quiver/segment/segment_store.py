"""Where segments are kept: on a disk (`SegmentShelf`), or in memory, until they are written or for good."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from penstock.errors import Corrupt
from penstock.quiver.segment.format import SegmentMeta, SegmentStream, file_tables, read_back, segment_meta
from penstock.quiver.segment.open_segment import OpenSegment

__all__ = ["HeldSegment", "MemorySegments", "SegmentStore"]


class SegmentStore(Protocol):
    """Blocking."""

    def write(self, segment: OpenSegment, segment_seq: int) -> SegmentMeta: ...

    def read(self, meta: SegmentMeta, *, check: bool = True) -> dict[str, list[pa.Table]]: ...

    def redate(self, metas: Sequence[SegmentMeta]) -> None: ...

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

    def redate(self, metas: Sequence[SegmentMeta]) -> None:
        """Nothing outlives the process."""

    def remove(self, metas: Sequence[SegmentMeta]) -> None:
        for meta in metas:
            self._tables.pop(meta.segment_seq, None)

    def set_aside(self, segment_seq: int) -> None:
        self._tables.pop(segment_seq, None)


class HeldSegment:
    """A sealed segment in memory: its tables are those that its files would give, to the batch.

    Several threads may read it at once; the first lays it out, and the lock keeps the others waiting meanwhile.
    """

    def __init__(self, segment: OpenSegment, segment_seq: int) -> None:
        streams = [
            SegmentStream("", slot, mark, sum([batch.num_rows for batch in batches]), _encoded_bytes(batches), 0)
            for (slot, mark), batches in segment.streams.items()
        ]
        self.meta = segment_meta(segment, segment_seq, streams)
        self._segment = segment
        self._tables: dict[str, list[pa.Table]] | None = None
        self._turn = threading.Lock()

    def read(self) -> dict[str, list[pa.Table]]:
        """Tables by slot. Blocking."""
        with self._turn:
            if self._tables is None:
                slots: dict[str, list[pa.Table]] = {}
                for slot, mark in self._segment.streams:
                    laid_out = file_tables(self._segment.table(slot, mark))
                    slots.setdefault(slot, []).extend(read_back(table) for table in laid_out)
                self._tables = slots
            return {slot: list(tables) for slot, tables in self._tables.items()}


def _encoded_bytes(batches: Sequence[pa.RecordBatch]) -> int:
    return sum([pa.ipc.get_record_batch_size(batch) for batch in batches])
