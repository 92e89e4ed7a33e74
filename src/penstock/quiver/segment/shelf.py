"""The segments of one instance on its disk. Blocking.

The metadata is what makes files a segment: it is written last, to a temporary name, synced and renamed. Files without
metadata are leftovers of a crash, whose records the log still has. Whatever cannot be read is moved into `aside`, and
the store opens without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.disk import DIRECT_BLOCK_BYTES, Disk, DiskFile, aligned_buffer, is_full
from penstock.errors import Corrupt
from penstock.quiver.layout import scan_if_there
from penstock.quiver.segment.format import (
    CheckedSink,
    SegmentMeta,
    SegmentStream,
    StreamTooLong,
    decode_meta,
    encode_meta,
    encode_stream,
    encoded_bytes_max,
    file_tables,
    is_meta,
    meta_name,
    read_stream,
    segment_meta,
    segment_number,
    stream_name,
    write_stream,
)
from penstock.quiver.segment.open_segment import OpenSegment

__all__ = ["SegmentShelf", "ShelfListing"]

_TEMPORARY: Final = ".tmp"
# Written at once: large enough that a disk is kept busy.
_BUFFER_BYTES: Final = 8 << 20
# A file of up to so many bytes is laid out in memory as a whole; a larger one goes through a buffer.
_WHOLE_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ShelfListing:
    """What a folder of segments holds: sound metadata, names of unreadable metadata, files without any."""

    metas: list[SegmentMeta]
    unreadable: list[str]
    leftovers: list[str]
    # Above every number that a segment ever had here.
    next_segment_seq: int


class SegmentShelf:
    def __init__(self, disk: Disk, folder: str, aside: str, *, direct: bool = False) -> None:
        self._disk = disk
        self._direct = direct
        self._buffer = aligned_buffer(0)
        self._folder = folder
        self._aside = aside

    def listing(self) -> ShelfListing:
        """Read metadata only, however large the segments are."""
        names = [name for name, is_folder in scan_if_there(self._disk, self._folder) if not is_folder]
        metas, unreadable = [], []
        for name in filter(is_meta, names):
            try:
                metas.append(decode_meta(self._disk.read(f"{self._folder}/{name}")[0], name))
            except Corrupt:
                unreadable.append(name)
            except FileNotFoundError:
                # Removed by a running writer since the folder was listed.
                continue
        known = {stream.file for meta in metas for stream in meta.streams}
        known |= {meta_name(meta.segment_seq) for meta in metas} | set(unreadable)
        damaged = {segment_number(name) for name in unreadable}
        leftovers = [name for name in names if name not in known and segment_number(name) not in damaged]
        # Leftovers were never a segment: their number is free.
        numbers = [number for name in filter(is_meta, names) if (number := segment_number(name)) is not None]
        return ShelfListing(metas, unreadable, leftovers, max(numbers, default=0) + 1)

    def tidy(self, listing: ShelfListing) -> None:
        """Remove what a crash left half written, and move aside what cannot be read."""
        for name in listing.leftovers:
            self._disk.unlink(f"{self._folder}/{name}")
        for name in listing.unreadable:
            self.set_aside(segment_number(name) or 0)
        if listing.leftovers or listing.unreadable:
            self._disk.sync_directory(self._folder)

    def renew(self, meta: SegmentMeta) -> None:
        """Make the newest segment's name durable: a process that was killed may have renamed it and not synced.

        Before this the log must not let go of its records. The name is made anew, because a sync of it may have failed;
        its files were synced under theirs before it was given. A full disk has no room for that: then a sync must do.
        """
        try:
            self._put_metas([meta])
        except OSError as error:
            if not is_full(error):
                raise
            self._disk.sync_directory(self._folder)

    def redate(self, metas: Sequence[SegmentMeta]) -> None:
        """Write the metadata of these segments anew."""
        self._put_metas(metas)

    def set_aside(self, segment_seq: int) -> None:
        """Move whatever there is of a segment out of the way, for whoever wants to look at it."""
        for name, is_folder in self._disk.scan(self._folder):
            if not is_folder and segment_number(name) == segment_seq:
                self._disk.rename(f"{self._folder}/{name}", f"{self._aside}/{name}")

    def write(self, segment: OpenSegment, segment_seq: int) -> SegmentMeta:
        """Make a segment durable. After an `OSError` nothing of it counts, and it may be written again."""
        self._take_back(segment_seq)
        streams: list[SegmentStream] = []
        for slot, mark in segment.streams:
            for table in file_tables(segment.table(slot, mark)):
                name = stream_name(segment_seq, len(streams))
                streams.append(self._write_stream(table, slot, mark, name, segment_seq))
        meta = segment_meta(segment, segment_seq, streams)
        self._put_metas([meta])
        return meta

    def remove(self, metas: Sequence[SegmentMeta]) -> None:
        """Delete segments for good: their metadata first, so that none is ever found without its files."""
        for meta in metas:
            self._unlink(meta_name(meta.segment_seq))
        self._disk.sync_directory(self._folder)
        for meta in metas:
            for stream in meta.streams:
                self._unlink(stream.file)
        self._disk.sync_directory(self._folder)

    def read(self, meta: SegmentMeta, *, check: bool = True) -> dict[str, list[pa.Table]]:
        """Tables by slot, as maps of the files: bytes come into memory when they are touched."""
        slots: dict[str, list[pa.Table]] = {}
        for stream in meta.streams:
            try:
                data = self._disk.map(f"{self._folder}/{stream.file}")
            except FileNotFoundError as error:
                raise Corrupt(f"the segment file {stream.file} is missing", str(error)) from error
            slots.setdefault(stream.slot, []).append(read_stream(data, stream, check=check))
        return slots

    def _put_metas(self, metas: Sequence[SegmentMeta]) -> None:
        names = [meta_name(meta.segment_seq) for meta in metas]
        for name, meta in zip(names, metas, strict=True):
            self._create(f"{name}{_TEMPORARY}", memoryview(encode_meta(meta)))
        with self._disk.watching(self._folder):
            # Names reach the disk in any order: the metadata must not be there before what it vouches for.
            self._disk.sync_directory(self._folder)
            for name in names:
                self._disk.rename(f"{self._folder}/{name}{_TEMPORARY}", f"{self._folder}/{name}")
            self._disk.sync_directory(self._folder)

    def _write_stream(self, table: pa.Table, slot: str, mark: str, name: str, segment_seq: int) -> SegmentStream:
        """Straight from the columns in memory into a new file: after a failed sync the old one cannot be trusted."""
        self._unlink(name)
        # Arrow's own count fails on an empty union that was read back.
        size = table.nbytes if table.num_rows else 0
        with self._disk.open(f"{self._folder}/{name}", direct=self._direct, synchronous=False) as file:
            if size:
                file.preallocate(size)
            needed = encoded_bytes_max(table) if table.num_rows else _WHOLE_BYTES_MAX
            try:
                if needed >= _WHOLE_BYTES_MAX:
                    raise StreamTooLong
                written, crc32c = self._write_whole(table, file, needed, slot, segment_seq)
            except StreamTooLong:
                written, crc32c = self._write_through(table, file, size, slot, segment_seq)
            file.truncate(written)
            file.sync()
        return SegmentStream(name, slot, mark, table.num_rows, written, crc32c)

    def _write_whole(
        self, table: pa.Table, file: DiskFile, needed: int, slot: str, segment_seq: int
    ) -> tuple[int, int]:
        """Laid out in one buffer, and written in pieces as it grows."""
        buffer, written, laid = self._buffer_for(needed), 0, (0, 0)
        for laid in encode_stream(table, buffer, segment_seq=segment_seq, slot=slot):
            end = laid[0] - laid[0] % DIRECT_BLOCK_BYTES
            if end - written >= _BUFFER_BYTES:
                file.write_at(written, buffer[written:end])
                written = end
        file.write_at(written, buffer[written : self._whole_block(laid[0])])
        return laid

    def _write_through(
        self, table: pa.Table, file: DiskFile, size: int, slot: str, segment_seq: int
    ) -> tuple[int, int]:
        buffer = self._buffer_for(min(_BUFFER_BYTES, max(size, 1)))

        def write(offset: int, piece: memoryview) -> None:
            # Only the last piece is no whole block; it lies at the beginning of the buffer.
            file.write_at(offset, buffer[: self._whole_block(len(piece))])

        sink = CheckedSink(buffer[: min(len(buffer), _BUFFER_BYTES)], write)
        write_stream(table, sink, segment_seq=segment_seq, slot=slot)
        return sink.bytes, sink.crc32c

    def _buffer_for(self, size: int) -> memoryview:
        """One buffer for all segments, as large as the largest wants it: fresh memory costs more than a copy."""
        wanted = size + -size % DIRECT_BLOCK_BYTES
        if len(self._buffer) < wanted:
            self._buffer = aligned_buffer(wanted)
        return self._buffer

    def _whole_block(self, size: int) -> int:
        """What a write of so many bytes has to have; the rest is cut off again."""
        return size + -size % DIRECT_BLOCK_BYTES if self._direct else size

    def _take_back(self, segment_seq: int) -> None:
        """Undo a try whose last sync failed: its metadata must not come back and vouch for files that were replaced."""
        if self._unlink(meta_name(segment_seq)):
            self._disk.sync_directory(self._folder)

    def _create(self, name: str, body: memoryview) -> None:
        """A new file each time: after a failed sync the old one's pages cannot be trusted."""
        self._unlink(name)
        path = f"{self._folder}/{name}"
        self._disk.create(path, body)
        self._disk.sync_file(path)

    def _unlink(self, name: str) -> bool:
        try:
            self._disk.unlink(f"{self._folder}/{name}")
        except FileNotFoundError:
            return False
        return True
