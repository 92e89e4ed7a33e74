"""What the files of the log tell at a start: the records that are in no segment yet, and exactly what is missing. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.quiver.log.frames import (
    BLOCK_BYTES,
    HEADER_BYTES,
    MAGIC,
    BadRegion,
    Frame,
    FrameKind,
    decode_frame,
    read_header,
    scan_frames,
)

__all__ = ["WalFileReplay", "WalReplay", "replay_wal_files"]


@dataclass(slots=True)
class WalFileReplay:
    number: int
    size: int
    frames: list[Frame] = field(default_factory=list)
    bad: list[BadRegion] = field(default_factory=list)

    @property
    def end_record(self) -> int:
        return max((frame.sequence + frame.count for frame in self.frames), default=0)


@dataclass(slots=True)
class WalReplay:
    """`frames` in the order of their records. `lost` are ranges of records that had been durable and are gone.

    Every record before `durable_before` was durable; those of `frames` from there on may be in the page cache alone.
    """

    files: list[WalFileReplay]
    frames: list[Frame]
    lost: list[tuple[int, int]]
    next_record: int
    durable_before: int

    @property
    def lost_records(self) -> int:
        return sum(end - first for first, end in self.lost)


def replay_wal_files(files: Sequence[tuple[int, memoryview]], finalised_through: int) -> WalReplay:
    """Read files, oldest first. Records up to `finalised_through` are in segments and are left out.

    Where two files have one record, the newer one counts: the older is what a failed write left behind.
    """
    read = [_file(number, data) for number, data in files]
    newest = {frame.sequence: frame for file in read for frame in file.frames}
    frames = [newest[sequence] for sequence in sorted(newest)]
    waiting = [frame for frame in frames if frame.sequence + frame.count - 1 > finalised_through]
    is_whole_life = any(number == 1 for number, _ in files)
    expected = finalised_through + 1
    if not finalised_through and not is_whole_life and waiting:
        # Older files were let go, and nobody knows any more through which record.
        expected = waiting[0].sequence
    # Every record before this one was durable when some frame was written.
    durable_before = max((frame.durable_before for frame in waiting), default=0)
    lost, next_record = [], expected
    for start, end in [*((frame.sequence, frame.sequence + frame.count) for frame in waiting), (durable_before, 0)]:
        if min(start, durable_before) > next_record:
            lost.append((next_record, min(start, durable_before)))
        next_record = max(next_record, end)
    ends = [next_record, *(file.end_record for file in read)]
    return WalReplay(read, waiting, lost, max(ends), durable_before if waiting else max(ends))


def _file(number: int, data: memoryview) -> WalFileReplay:
    found = WalFileReplay(number, len(data))
    header = read_header(data)
    if header is not None and header[1].sequence != number:
        # A file that was recycled, and whose new life never began: all of it is stale.
        return found
    generation = header[0] if header is not None else _generation(data)
    if header is None and any(data[:HEADER_BYTES]):
        found.bad.append(BadRegion(0, BLOCK_BYTES))
    if generation is None:
        return found
    for entry in scan_frames(data, generation):
        if isinstance(entry, BadRegion):
            found.bad.append(entry)
        elif entry.kind == FrameKind.BUNDLES:
            found.frames.append(entry)
    return found


def _generation(data: memoryview) -> int | None:
    """Without a header: the generation of the newest sound frame. Stale ones are older."""
    best: tuple[int, int] | None = None
    body, at = bytes(data), BLOCK_BYTES
    while (at := body.find(MAGIC, at)) >= 0 and at + HEADER_BYTES <= len(body):
        (generation,) = struct.unpack_from("<Q", body, at + 8)
        frame = decode_frame(data, at, generation)
        if frame is not None and (best is None or frame.sequence > best[0]):
            best = frame.sequence, generation
        at += len(MAGIC)
    return None if best is None else best[1]
