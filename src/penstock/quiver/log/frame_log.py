"""Files of frames, written group by group: what the log and `ack.log` stand on. Blocking; one writer.

A file is set aside at its full size and overwritten, directly where the file system allows it, else through the page
cache with a sync for each group. A file in which a write or a sync failed is never written again: what it holds behind
the last good group is nobody's word, and the group goes into a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.clock import Clock
from penstock.disk import Disk, DiskFile
from penstock.ids import Entropy
from penstock.quiver.log.frames import BLOCK_BYTES, FrameKind
from penstock.quiver.log.group_layout import GroupLayout, LaidGroup, Record, lay_record, whole_blocks
from penstock.quiver.log.log_files import SPARE, WAL_SUFFIX, LogFile, file_name

__all__ = ["FrameLog", "UnsureWrite"]

# Zeros are written into a new spare in pieces of this size.
_FILL_BYTES: Final = 1 << 20
FORMAT_VERSION: Final = 1


class UnsureWrite(OSError):
    """A write or a sync of records failed: some of them may be in the file, and a start may find them."""


class FrameLog:
    """Appends groups of frames to the newest of several files."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        *,
        rotation_size: int,
        direct: bool,
        clock: Clock,
        entropy: Entropy,
        next_number: int = 1,
        spares: Sequence[tuple[int, int]] = (),
        spare_files: int = 0,
        suffix: str = WAL_SUFFIX,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self.rotation_size = rotation_size
        self._direct = direct
        self._clock = clock
        self._entropy = entropy
        self._next_number = next_number
        self._spare_files = spare_files
        self._suffix = suffix
        self.spares = list(spares)
        self.retired: list[LogFile] = []
        self.active: LogFile | None = None
        self._file: DiskFile | None = None
        self._generation = 0
        # Behind the last record that was written; None after a failure.
        self._end_record: int | None = None
        self._layout = GroupLayout()

    @property
    def bytes(self) -> int:
        """Everything the log takes on the disk, spares included."""
        files = [*self.retired, *([self.active] if self.active else [])]
        return sum(file.size for file in files) + sum(size for _, size in self.spares)

    def has_room(self, records: Sequence[Record]) -> bool:
        """Whether the active file takes this group."""
        return self._takes(whole_blocks(sum([record.bytes for record in records])))

    def _takes(self, needed: int) -> bool:
        return self.active is not None and self.active.end + needed <= self.active.size

    def growth(self, size: int) -> int:
        """How much more room the disk has to give for a new file that takes so many bytes."""
        wanted = max(self.rotation_size, BLOCK_BYTES + whole_blocks(size))
        return 0 if any(spare >= wanted for _, spare in self.spares) else wanted

    def write(self, records: Sequence[Record]) -> None:
        """Make a group durable. On an `OSError` none of it counts as such, and the file is given up."""
        needed = whole_blocks(sum([record.bytes for record in records]))
        if not self._takes(needed):
            # A failure to begin a file is one of this group.
            self._end_record = None
            self.rotate(needed)
        self._put(self.lay(records))

    def lay(self, records: Sequence[Record]) -> LaidGroup:
        """A group as bytes for the active file. May be called by another thread than the writer's, while it writes."""
        return self._layout.lay(records, self._generation)

    def put(self, laid: LaidGroup) -> bool:
        """Make a group durable that was laid ahead, as `write` does.

        False, and nothing is done, unless it follows the last record that was written: the group before it failed.
        """
        follows = laid.records[0].sequence == self._end_record
        if follows and laid.generation == self._generation and self._takes(laid.needed):
            self._put(laid)
            return True
        self._layout.give_back(laid)
        if follows:
            # Into another file, for which it is laid out again.
            self.write(laid.records)
        return follows

    def _put(self, laid: LaidGroup) -> None:
        assert self.active is not None
        try:
            self._write_at(self.active.end, laid.body(in_blocks=self._direct))
            self._save()
        except OSError as error:
            self.seal()
            self._end_record = None
            raise UnsureWrite(error.errno, error.strerror) from error
        finally:
            self._layout.give_back(laid)
        self.active.end += laid.needed if self._direct else laid.size
        self.active.end_record = self._end_record = laid.records[-1].sequence + laid.records[-1].count

    def rotate(self, needed: int = 0, first: Sequence[Record] = ()) -> None:
        """Begin a new file, with the records `first` in it from the start; then give its name to the disk."""
        self.seal()
        body_bytes = whole_blocks(sum(record.bytes for record in first))
        size = max(self.rotation_size, BLOCK_BYTES + body_bytes + whole_blocks(needed))
        number = self._next_number
        self._next_number += 1
        path = self._path(number)
        given = self._take_spare(path, size)
        # From here on the file counts, though what follows fail: it takes its room.
        self.active = LogFile(number, max(size, given), first[-1].sequence + first[-1].count if first else 0)
        try:
            self._file = self._disk.open(path, direct=self._direct)
            if not given:
                self._file.preallocate(size)
            self._generation = int.from_bytes(self._entropy.token(8), "little")
            self._write_header(number, first, body_bytes)
            self._disk.sync_directory(self._folder)
        except OSError:
            self.seal()
            raise
        self.active.end += body_bytes

    def seal(self) -> None:
        """Write no more into the active file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.active is not None:
            self.retired.append(self.active)
            self.active = None

    def release(self, through: int, with_active: bool = False) -> int:
        """Let go of the files whose records are all at or below `through`; return how many bytes the disk got back.

        The active one stays for the records to come, unless it was made for one large record, or `with_active`.
        """
        freed = 0
        active = self.active
        is_done = active is not None and active.end > BLOCK_BYTES and active.end_record <= through + 1
        if active is not None and is_done and (with_active or active.size > self.rotation_size):
            self.seal()
        for file in [file for file in self.retired if file.end_record <= through + 1]:
            freed += self._recycle(file)
            self.retired.remove(file)
        return freed

    def forget_all_but(self, kept: int) -> None:
        """Let go of the oldest sealed files, whatever they hold."""
        for file in self.retired[: len(self.retired) - kept]:
            self._recycle(file)
            self.retired.remove(file)

    def prepare_spare(self) -> None:
        """Have a filled file ready for the next rotation: the first write into untouched room is slow."""
        if self.spares or not self._spare_files:
            return
        number = self._next_number
        self._next_number += 1
        path = self._path(number, spare=True)
        with self._disk.open(path) as file:
            for at in range(0, self.rotation_size, _FILL_BYTES):
                file.write_at(at, bytes(min(_FILL_BYTES, self.rotation_size - at)))
            file.sync()
        self.spares.append((number, self.rotation_size))

    def close(self) -> None:
        self.seal()

    def _recycle(self, file: LogFile) -> int:
        path = self._path(file.number)
        if len(self.spares) < self._spare_files and file.size == self.rotation_size:
            self._disk.rename(path, self._path(file.number, spare=True))
            self.spares.append((file.number, file.size))
            return 0
        self._disk.unlink(path)
        return file.size

    def _take_spare(self, path: str, size: int) -> int:
        """The size of the spare that now has this name; 0 where none fits."""
        for at, (number, spare_size) in enumerate(self.spares):
            if spare_size >= size:
                self._disk.rename(self._path(number, spare=True), path)
                del self.spares[at]
                return spare_size
        return 0

    def _write_header(self, number: int, first: Sequence[Record], body_bytes: int) -> None:
        # A clock before 1970 must not stop the log: this time is for people who look at the file.
        created_ms = max(0, self._clock.now_ms())
        payload = FORMAT_VERSION.to_bytes(2, "little") + bytes(6) + created_ms.to_bytes(8, "little")
        header = Record(FrameKind.HEADER, [payload], number)
        block = bytearray(BLOCK_BYTES + body_bytes)
        lay_record(memoryview(block), 0, header, self._generation)
        at = BLOCK_BYTES
        for record in first:
            at = lay_record(memoryview(block), at, record, self._generation)
        self._write_at(0, memoryview(block))
        self._save()

    def _write_at(self, offset: int, data: memoryview) -> None:
        assert self._file is not None
        self._file.write_at(offset, data)

    def _save(self) -> None:
        assert self._file is not None
        if not self._direct:
            self._file.sync()

    def _path(self, number: int, *, spare: bool = False) -> str:
        return f"{self._folder}/{SPARE if spare else ''}{file_name(number, self._suffix)}"
