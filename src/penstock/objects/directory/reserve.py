"""Room set aside in a directory, so that a full disk can still be drained.

Acknowledging what a queue holds, or taking its fence, replaces an object by one that is no larger; but the
new file has to be written beside the old one, and on a full disk there is no room for it. So one file is
kept allocated, as large as the largest object that was written under a condition. A write that finds the
disk full and does not grow its object is made in that file, which then becomes the object; the room of the
old one becomes the next reserve. A write that needs more room than it frees is refused while the reserve
is missing or too small, or it would take the room from those that drain.

```
<root>/.penstock/reserve/spare     allocated, never read; nobody but its lock's holder touches it
<root>/.penstock/reserve/claimed   being written; only ever removed, because after a power loss it may be
                                   a second name of the object that it was to become
```
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from penstock.disk import Disk, FileStat, is_full
from penstock.objects.directory.locks import LockHeld, Locks
from penstock.objects.directory.staging import Staging
from penstock.objects.port import Body

__all__ = ["RESERVE_BYTES_MIN", "Reserve"]

# A manifest of some hundred batches, and a thousandth of the smallest disk that anybody would queue on.
RESERVE_BYTES_MIN: Final = 64 << 10

_LOCK: Final = "reserve"


class Reserve:
    """The reserve of one directory store, shared by all processes that have it open."""

    def __init__(self, folder: str, *, disk: Disk, locks: Locks, staging: Staging) -> None:
        self._folder = folder
        self._spare = f"{folder}/spare"
        self._claimed = f"{folder}/claimed"
        self._disk = disk
        self._locks = locks
        self._staging = staging

    def keep(self, bytes_needed: int, *, grows: bool) -> None:
        """See to a reserve of so many bytes before a write; with 0, to the one that is there, if any.

        A disk too small for a first reserve goes without. Later on a write that `grows` its object is
        refused with the system's own error when the reserve cannot be kept.
        """
        size = self._size()
        if size is not None and size >= bytes_needed:
            return
        is_first = not self.is_established()
        if is_first and bytes_needed == 0:
            return
        try:
            with self._locks.named(_LOCK):
                self._allocate(max(bytes_needed, RESERVE_BYTES_MIN))
        except LockHeld:
            # It is being spent or made by somebody else.
            return
        except OSError as error:
            if is_first:
                with suppress(OSError):
                    self._disk.remove_directory(self._folder)
            elif grows and is_full(error):
                raise

    @contextmanager
    def spent(self, data: Body, before: FileStat | None, no_room: OSError) -> Iterator[tuple[str, FileStat]]:
        """The reserve as a file that holds `data`, synced and stamped above `before`, to be renamed in the block.

        Raises `no_room` where there is none, and `LockHeld` while another process spends it.
        """
        with self._locks.named(_LOCK):
            size = self._size()
            if size is None or size < len(data):
                raise no_room
            with self._disk.watching(self._folder):
                self._disk.rename(self._spare, self._claimed)
                # Before a byte of it is written: nothing may find an object under the name of the spare.
                self._disk.sync_directory(self._folder)
            try:
                self._disk.overwrite(self._claimed, data, self._staging.stamp(before))
                self._disk.sync_file(self._claimed)
                yield self._claimed, self._disk.stat(self._claimed)
            finally:
                self._replenish(size)

    def is_established(self) -> bool:
        """Whether this directory ever had a reserve."""
        try:
            return self._disk.stat(self._folder).is_directory
        except FileNotFoundError:
            return False

    def _replenish(self, size: int) -> None:
        """From the room of the object that was replaced, if nobody was faster; else the next write sees to it."""
        with suppress(OSError):
            self._allocate(size)

    def _allocate(self, size: int) -> None:
        """Sizes are powers of two, so that an object which grows by and by seldom comes here."""
        with suppress(FileExistsError):
            self._disk.make_directory(self._folder)
        # Whoever has the lock finds here what it could not use, or what one that died had begun.
        with suppress(FileNotFoundError):
            self._disk.unlink(self._claimed)
        is_new = self._size() is None
        try:
            self._disk.allocate(self._spare, 1 << (size - 1).bit_length())
        except OSError:
            if is_new:
                with suppress(OSError):
                    self._disk.unlink(self._spare)
            raise

    def _size(self) -> int | None:
        try:
            return self._disk.stat(self._spare).size
        except (FileNotFoundError, NotADirectoryError):
            return None
