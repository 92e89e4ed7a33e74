"""Files of frames, written group by group: what the log and `ack.log` stand on. Blocking; one writer.

A file is set aside at its full size and overwritten, directly where the file system allows it, else through the page
cache with a sync for each group. A file in which a write or a sync failed is never written again: what it holds behind
the last good group is nobody's word, and the group goes into a new one.

The next file is begun ahead, from a spare, while groups are written: a rotation then costs no sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from penstock.clock import Clock
from penstock.disk import Disk, DiskFile
from penstock.ids import Entropy
from penstock.quiver.log.frames import BLOCK_BYTES
from penstock.quiver.log.group_layout import GroupLayout, LaidGroup, Record, whole_blocks
from penstock.quiver.log.log_files import WAL_SUFFIX, LogFile
from penstock.quiver.log.log_folder import BegunFile, LogFolder
from penstock.quiver.log.next_file import NextFile

__all__ = ["FrameLog", "UnsureWrite"]


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
        self._folder = LogFolder(disk, folder, suffix, direct=direct, clock=clock, entropy=entropy)
        self.rotation_size = rotation_size
        self._direct = direct
        self._next_number = next_number
        self._spare_files = spare_files
        self.spares = list(spares)
        self.retired: list[LogFile] = []
        self.active: LogFile | None = None
        self._file: DiskFile | None = None
        self._generation = 0
        self._next = NextFile(self._folder)
        # Where the group that was laid out last will end, in the file of which generation.
        self._laid_through = (0, 0)
        # Behind the last record that was written; None after a failure.
        self._end_record: int | None = None
        self._layout = GroupLayout()
        self._closed = False

    @property
    def bytes(self) -> int:
        """Everything the log takes on the disk, spares included."""
        files = [*self.retired, *[file for file in (self.active, self._next.file) if file is not None]]
        return sum(file.size for file in files) + sum(size for _, size in self.spares)

    def has_room(self, records: Sequence[Record]) -> bool:
        """Whether the active file takes this group."""
        return self._takes(whole_blocks(sum([record.bytes for record in records])))

    def _takes(self, needed: int) -> bool:
        return self.active is not None and self.active.end + needed <= self.active.size

    def growth(self, size: int) -> int:
        """How much more room the disk has to give for a new file that takes so many bytes."""
        wanted = max(self.rotation_size, BLOCK_BYTES + whole_blocks(size))
        ready = [spare for _, spare in self.spares]
        if self._next.file is not None:
            ready.append(self._next.file.size)
        return 0 if max(ready, default=0) >= wanted else wanted

    def write(self, records: Sequence[Record]) -> None:
        """Make a group durable. On an `OSError` none of it counts as such, and the file is given up."""
        size = sum([record.bytes for record in records])
        needed = whole_blocks(size)
        if not self._takes(needed):
            self._rotate_for(needed)
        assert self.active is not None
        self._laid_through = self._generation, self.active.end + (needed if self._direct else size)
        self._put(self._layout.lay(records, self._generation))

    def lay(self, records: Sequence[Record]) -> LaidGroup:
        """A group as bytes, for the file that it will go into. May be called by another thread, while one is written."""
        size = sum([record.bytes for record in records])
        needed = whole_blocks(size)
        generation, end = self._laid_through
        active, ahead = self.active, self._next.generation
        if active is None or generation not in (self._generation, ahead):
            generation, end = self._generation, 0 if active is None else active.end
        if active is not None and generation == self._generation and ahead is not None and end + needed > active.size:
            generation, end = ahead, BLOCK_BYTES
        # A guess: groups before this one may fail yet. Where it proves wrong, the group is laid out again.
        self._laid_through = generation, end + (needed if self._direct else size)
        return self._layout.lay(records, generation)

    def put(self, laid: LaidGroup) -> bool:
        """Make a group durable that was laid ahead, as `write` does.

        False, and nothing is done, unless it follows the last record that was written: the group before it failed.
        """
        follows = laid.records[0].sequence == self._end_record
        if follows and not self._takes(laid.needed):
            try:
                self._rotate_for(laid.needed)
            except OSError:
                self._layout.give_back(laid)
                raise
        if follows and laid.generation == self._generation:
            self._put(laid)
            return True
        self._layout.give_back(laid)
        if follows:
            # Into another file, for which it is laid out again.
            self.write(laid.records)
        return follows

    def _rotate_for(self, needed: int) -> None:
        # A failure to begin a file is one of the group that needs it.
        self._end_record = None
        self.rotate(needed)

    def _put(self, laid: LaidGroup) -> None:
        assert self.active is not None
        assert self._file is not None
        try:
            self._file.write_at(self.active.end, laid.body(in_blocks=self._direct))
            if not self._direct:
                self._file.sync()
        except OSError as error:
            self.seal()
            self._end_record = None
            raise UnsureWrite(error.errno, error.strerror) from error
        finally:
            self._layout.give_back(laid)
        self.active.end += laid.needed if self._direct else laid.size
        self.active.end_record = self._end_record = laid.records[-1].sequence + laid.records[-1].count

    def rotate(self, needed: int = 0, first: Sequence[Record] = ()) -> None:
        """Begin a new file, with the records `first` in it from the start; or go on in the one that is ready."""
        self.seal()
        body_bytes = whole_blocks(sum([record.bytes for record in first]))
        size = max(self.rotation_size, BLOCK_BYTES + body_bytes + whole_blocks(needed))
        if not first and (ready := self._next.take(size)) is not None:
            self.active = ready[0]
            self._use(ready[1])
            return
        self._retire(self._next.give_up())
        number = self._new_number()
        given = self._take_spare(number, size)
        # From here on the file counts, though what follows fail: it takes its room.
        self.active = LogFile(number, max(size, given), first[-1].sequence + first[-1].count if first else 0)
        try:
            self._use(self._folder.begin(number, room=0 if given else size, first=first))
        except OSError:
            self.seal()
            raise
        self.active.end += body_bytes

    def _use(self, begun: BegunFile) -> None:
        self._file, self._generation = begun.handle, begun.generation

    def seal(self) -> None:
        """Write no more into the active file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.active is not None:
            self.retired.append(self.active)
            self.active = None

    def claim_next(self) -> bool:
        """Take a spare for the next rotation, where it has no file yet; if so, `make_next` and `settle_next` follow."""
        has_spare = any(size >= self.rotation_size for _, size in self.spares)
        if self._closed or self.active is None or self._next.file is not None or not has_spare:
            return False
        number = self._new_number()
        self._next.claim(LogFile(number, self._take_spare(number, self.rotation_size), 0))
        return True

    def make_next(self) -> None:
        """Begin the file that is claimed. May be called by another thread, while one writes."""
        self._next.make_ready()

    def settle_next(self) -> None:
        """After `make_next`, whether it succeeded or not."""
        self._retire(self._next.settle())

    def _retire(self, file: LogFile | None) -> None:
        """A file without records only waits to be reused."""
        if file is not None:
            self.retired.append(file)

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
        number = self._new_number()
        self._folder.fill_spare(number, self.rotation_size)
        self.spares.append((number, self.rotation_size))

    def close(self) -> None:
        self._closed = True
        self.seal()
        self._retire(self._next.give_up())

    def _recycle(self, file: LogFile) -> int:
        ready = len(self.spares) + (self._next.file is not None)
        try:
            if ready < self._spare_files and file.size == self.rotation_size:
                self._folder.keep_as_spare(file.number)
                self.spares.append((file.number, file.size))
                return 0
            self._folder.remove(file.number)
        except FileNotFoundError:
            # It could not even be opened when its turn came, for want of handles or inodes; or an earlier try failed
            # and was done all the same. Those behind it must go on.
            with suppress(FileNotFoundError):
                self._folder.remove(file.number, spare=True)
            return 0
        return file.size

    def _take_spare(self, number: int, size: int) -> int:
        """The size of the spare that now has this number; 0 where none fits."""
        for spare in [spare for spare in self.spares if spare[1] >= size]:
            try:
                self._folder.use_spare(spare[0], number)
            except FileNotFoundError:
                self.spares.remove(spare)
                continue
            except OSError:
                # It may have its new name all the same: under that it is let go of.
                self.retired.append(LogFile(number, spare[1], 0))
                raise
            self.spares.remove(spare)
            return spare[1]
        return 0

    def _new_number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number
