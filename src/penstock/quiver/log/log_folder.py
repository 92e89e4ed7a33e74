"""The folder of a log: the names of its files, and how one of them begins. Blocking.

A file counts once its header, what is written with it, and its name are durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.clock import Clock
from penstock.disk import Disk, DiskFile
from penstock.ids import Entropy
from penstock.quiver.log.frames import BLOCK_BYTES, FrameKind
from penstock.quiver.log.group_layout import Record, lay_record, whole_blocks
from penstock.quiver.log.log_files import SPARE, file_name

__all__ = ["BegunFile", "LogFolder"]

# Zeros are written into a new spare in pieces of this size.
_FILL_BYTES: Final = 1 << 20
FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class BegunFile:
    """A file that records can go into, and the generation that its frames have to name."""

    handle: DiskFile
    generation: int


class LogFolder:
    def __init__(self, disk: Disk, path: str, suffix: str, *, direct: bool, clock: Clock, entropy: Entropy) -> None:
        self.disk = disk
        self.direct = direct
        self._path = path
        self._suffix = suffix
        self._clock = clock
        self._entropy = entropy

    def path(self, number: int, *, spare: bool = False) -> str:
        return f"{self._path}/{SPARE if spare else ''}{file_name(number, self._suffix)}"

    def begin(self, number: int, *, room: int = 0, first: Sequence[Record] = ()) -> BegunFile:
        """Begin the file of this number, with the records `first` in it. `room`: it is new, and is to have so many bytes."""
        handle = self.disk.open(self.path(number), direct=self.direct)
        try:
            if room:
                handle.preallocate(room)
            generation = int.from_bytes(self._entropy.token(8), "little")
            handle.write_at(0, self._head(number, first, generation))
            if not self.direct:
                handle.sync()
            self.disk.sync_directory(self._path)
        except BaseException:
            handle.close()
            raise
        return BegunFile(handle, generation)

    def fill_spare(self, number: int, size: int) -> None:
        """Make a spare of zeros: the first write into untouched room is slow."""
        with self.disk.open(self.path(number, spare=True)) as file:
            for at in range(0, size, _FILL_BYTES):
                file.write_at(at, bytes(min(_FILL_BYTES, size - at)))
            file.sync()

    def use_spare(self, number: int, new_number: int) -> None:
        self.disk.rename(self.path(number, spare=True), self.path(new_number))

    def keep_as_spare(self, number: int) -> None:
        self.disk.rename(self.path(number), self.path(number, spare=True))

    def remove(self, number: int, *, spare: bool = False) -> None:
        self.disk.unlink(self.path(number, spare=spare))

    def _head(self, number: int, first: Sequence[Record], generation: int) -> memoryview:
        # A clock before 1970 must not stop the log: this time is for people who look at the file.
        created_ms = max(0, self._clock.now_ms())
        payload = FORMAT_VERSION.to_bytes(2, "little") + bytes(6) + created_ms.to_bytes(8, "little")
        block = memoryview(bytearray(BLOCK_BYTES + whole_blocks(sum([record.bytes for record in first]))))
        lay_record(block, 0, Record(FrameKind.HEADER, [payload], number), generation)
        at = BLOCK_BYTES
        for record in first:
            at = lay_record(block, at, record, generation)
        return block
