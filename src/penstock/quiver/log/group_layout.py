"""Groups of records as bytes, in memory that direct writes take as it is. Pure, but for the memory that goes round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.disk import DIRECT_BLOCK_BYTES, aligned_buffer
from penstock.quiver.log.batch_parts import WRITER_BYTES_MIN, BatchPart, BatchSink
from penstock.quiver.log.frames import FrameKind, encode_frame, frame_bytes

__all__ = ["GroupLayout", "LaidGroup", "Record", "lay_record", "whole_blocks"]

# Twice what a group of small records has at most.
_BUFFER_KEPT_MAX: Final = 16 << 20
# One is written while the next is laid out.
_BUFFERS_MAX: Final = 2


@dataclass(slots=True)
class Record:
    """A frame to be: `parts` laid one behind the other, `count` records in it, the first numbered `sequence`."""

    kind: FrameKind
    parts: Sequence[Any]
    sequence: int
    count: int = 1
    # What was durable when this one was handed over.
    durable_before: int = 0
    # What it takes in a file.
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = frame_bytes(sum([len(part) for part in self.parts]))


@dataclass(frozen=True, slots=True)
class LaidGroup:
    """A group of records as bytes, for the file of this generation."""

    records: Sequence[Record]
    generation: int
    # Of its frames, and of the whole blocks that they are written in.
    size: int
    needed: int
    # Where they begin in the buffer.
    start: int
    buffer: memoryview

    def body(self, *, in_blocks: bool) -> memoryview:
        return self.buffer[self.start : self.start + (self.needed if in_blocks else self.size)]


class GroupLayout:
    """Lays groups out. Threads may share it: memory is with one group at a time."""

    def __init__(self) -> None:
        self._buffers: list[memoryview] = []

    def lay(self, records: Sequence[Record], generation: int) -> LaidGroup:
        size = sum([record.bytes for record in records])
        needed = whole_blocks(size)
        schemas = _wide_schemas(records) if size >= WRITER_BYTES_MIN else {}
        start = whole_blocks(BatchSink.room(schemas))
        buffer = self._taken(start + needed)
        sink = BatchSink(buffer, schemas) if schemas else None
        at, end = start, start + needed
        for record in records:
            at = lay_record(buffer, at, record, generation, sink)
        buffer[at:end] = bytes(end - at)
        return LaidGroup(records, generation, size, needed, start, buffer)

    def give_back(self, laid: LaidGroup) -> None:
        """The memory of one large record does not stay."""
        if len(laid.buffer) <= _BUFFER_KEPT_MAX and len(self._buffers) < _BUFFERS_MAX:
            self._buffers.append(laid.buffer)

    def _taken(self, needed: int) -> memoryview:
        """Memory that an earlier group had, if it is large enough: fresh memory costs more than a copy."""
        try:
            buffer = self._buffers.pop()
        except IndexError:
            return aligned_buffer(needed)
        return buffer if len(buffer) >= needed else aligned_buffer(needed)


def _wide_schemas(records: Sequence[Record]) -> dict[bytes, int]:
    return BatchSink.wide_schemas(part for record in records for part in record.parts if isinstance(part, BatchPart))


def lay_record(target: memoryview, at: int, record: Record, generation: int, sink: BatchSink | None = None) -> int:
    return encode_frame(
        target,
        at,
        record.kind,
        record.parts,
        generation=generation,
        sequence=record.sequence,
        count=record.count,
        durable_before=record.durable_before,
        sink=sink,
    )


def whole_blocks(size: int) -> int:
    return size + -size % DIRECT_BLOCK_BYTES
