"""Frames: what the log and `ack.log` are made of. Pure: bytes in, bytes out. The bytes are drawn in docs/format/wal.md.

A frame names the generation of its file, a number drawn anew each time a file is put to use: bytes that an earlier
use left in a recycled file are never taken for new ones. It also says which records were durable when it was written:
that tells damage (something lost that had been durable) from a write that the power interrupted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import google_crc32c
import numpy as np

from penstock.quiver.log.batch_parts import BatchPart, BatchSink, lay_copy

__all__ = [
    "BLOCK_BYTES",
    "HEADER_BYTES",
    "BadRegion",
    "Frame",
    "FrameKind",
    "checksum",
    "decode_frame",
    "encode_frame",
    "frame_bytes",
    "read_header",
    "scan_frames",
]

MAGIC: Final = b"QvFr"
# magic, crc32c of all that follows, generation, first record, records durable before, payload length, records, kind
_HEADER: Final = struct.Struct("<4sIQQQIIB7x")
HEADER_BYTES: Final = _HEADER.size
_CHECKSUM: Final = struct.Struct("<I")
_CHECKED_FROM: Final = 8
_GENERATION_AT: Final = 8
_ALIGNMENT: Final = 8
# Files begin with one block for their header, and direct writes end at the end of one.
BLOCK_BYTES: Final = 4096
_SEARCH_BYTES: Final = 1 << 20
# Copies and checksums keep Python's other threads waiting, the event loop among them: never for longer than for this.
_PIECE_BYTES: Final = 1 << 20


class FrameKind(IntEnum):
    HEADER = 1  # the first of a file; `sequence` is the file's number
    BUNDLES = 2
    CHECKPOINT = 3
    OUTCOMES = 4
    SUBSCRIBER = 5
    RECLAIMED = 6
    SEALED = 7


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    sequence: int
    count: int
    durable_before: int
    payload: memoryview
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class BadRegion:
    """Bytes that are no frame, between two good ones or behind the last."""

    offset: int
    end: int
    # Behind the last frame: a write that did not come to its end, or damage to the very last group.
    is_tail: bool = False


def frame_bytes(payload_bytes: int) -> int:
    """What a frame with so long a payload takes in a file."""
    return HEADER_BYTES + payload_bytes + -payload_bytes % _ALIGNMENT


def encode_frame(
    target: memoryview,
    at: int,
    kind: int,
    parts: Sequence[Any],
    *,
    generation: int,
    sequence: int,
    count: int,
    durable_before: int,
    sink: BatchSink | None = None,
) -> int:
    """Lay a frame into `target` at `at`, and return where it ends. `sink` lays the parts that are batches, if many are."""
    start = at + HEADER_BYTES
    end = start
    for part in parts:
        if isinstance(part, BatchPart):
            end = lay_copy(target, part, end) if sink is None else sink.lay(part, end)
            continue
        size = len(part)
        if size <= _PIECE_BYTES:
            target[end : end + size] = part
        else:
            for at_part in range(0, size, _PIECE_BYTES):
                target[end + at_part : end + min(at_part + _PIECE_BYTES, size)] = part[at_part : at_part + _PIECE_BYTES]
        end += size
    length = end - start
    gap = -length % _ALIGNMENT
    target[end : end + gap] = bytes(gap)
    _HEADER.pack_into(target, at, MAGIC, 0, generation, sequence, durable_before, length, count, kind)
    _CHECKSUM.pack_into(target, at + 4, checksum(target[at + _CHECKED_FROM : end]))
    return end + gap


def decode_frame(data: memoryview, at: int, generation: int) -> Frame | None:
    """The frame at `at`, if there is a sound one of this generation."""
    if at + HEADER_BYTES > len(data) or bytes(data[at : at + 4]) != MAGIC:
        return None
    _, crc, found, sequence, durable, length, count, kind = _HEADER.unpack_from(data, at)
    end = at + HEADER_BYTES + length
    if found != generation or end > len(data):
        return None
    if checksum(data[at + _CHECKED_FROM : end]) != crc:
        return None
    return Frame(kind, sequence, count, durable, data[at + HEADER_BYTES : end], at, end + -length % _ALIGNMENT)


def read_header(data: memoryview) -> tuple[int, Frame] | None:
    """The generation of a file and its first frame; None when it has no sound one."""
    if len(data) < HEADER_BYTES or bytes(data[:4]) != MAGIC:
        return None
    (generation,) = struct.unpack_from("<Q", data, _GENERATION_AT)
    frame = decode_frame(data, 0, generation)
    return (generation, frame) if frame is not None and frame.kind == FrameKind.HEADER else None


def scan_frames(data: memoryview, generation: int, start: int = BLOCK_BYTES) -> Iterator[Frame | BadRegion]:
    """All sound frames of a file, and the regions between them that are none. Never raises, whatever the bytes are."""
    at = start
    while True:
        at = _behind_padding(data, at)
        frame = decode_frame(data, at, generation)
        if frame is None:
            frame = _next_frame(data, at, generation)
            if frame is None:
                yield from _tail(data, at, generation)
                return
            yield BadRegion(at, frame.offset)
        yield frame
        at = frame.end


def _tail(data: memoryview, at: int, generation: int) -> Iterator[BadRegion]:
    """Behind the last sound frame: nothing, stale bytes, or a frame of this generation that cannot be read."""
    found = _find(data, struct.pack("<Q", generation), at)
    if found >= at + _GENERATION_AT:
        yield BadRegion(found - _GENERATION_AT, len(data), is_tail=True)
    elif bytes(data[at : at + 4]) == MAGIC and len(data) >= at + HEADER_BYTES:
        # The generation itself may be what is damaged: a stale frame would be sound by its own.
        (own,) = struct.unpack_from("<Q", data, at + _GENERATION_AT)
        if decode_frame(data, at, own) is None:
            yield BadRegion(at, len(data), is_tail=True)


def _next_frame(data: memoryview, at: int, generation: int) -> Frame | None:
    marker = struct.pack("<Q", generation)
    found = at
    while (found := _find(data, marker, found + 1)) >= 0:
        frame = decode_frame(data, found - _GENERATION_AT, generation) if found >= at + _GENERATION_AT else None
        if frame is not None:
            return frame
    return None


def _behind_padding(data: memoryview, at: int) -> int:
    """Zeros up to the end of the block, where a group of frames ended, are skipped."""
    end = at + -at % BLOCK_BYTES
    return end if end <= len(data) and bytes(data[at:end]).count(0) == end - at else at


def _find(data: memoryview, marker: bytes, start: int) -> int:
    """Where `marker` is next, looked for in pieces, so that a large file is never copied whole."""
    size = BLOCK_BYTES
    while start < len(data):
        found = bytes(data[start : start + size + len(marker) - 1]).find(marker)
        if found >= 0:
            return start + found
        start += size
        size = min(2 * size, _SEARCH_BYTES)
    return -1


def checksum(data: Any) -> int:
    """CRC32C of anything that has a buffer. The library refuses memory views, and takes arrays without a copy."""
    whole = np.frombuffer(data, np.uint8)
    if len(whole) <= _PIECE_BYTES:
        return int(google_crc32c.value(whole))
    crc32c = 0
    for at in range(0, len(whole), _PIECE_BYTES):
        crc32c = google_crc32c.extend(crc32c, whole[at : at + _PIECE_BYTES])
    return int(crc32c)
