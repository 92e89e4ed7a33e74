"""The lock files of a directory store: one of 256 stripes for each key.

A lock is tried, never waited for in a thread: whoever meets `LockHeld` waits where waiting costs nothing,
and tries again. A stopped process that holds one then holds up the keys of its stripe and nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from penstock.disk import Disk

__all__ = ["LockHeld", "Locks"]


class LockHeld(Exception):
    """Somebody else has the lock at `path`; nothing was done. Never leaves the directory store."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Locks:
    """The stripes in one folder."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def held(self, key: str) -> AbstractContextManager[None]:
        """The stripe of a key, chosen by its checksum."""
        return self.named(f"{zlib.crc32(key.encode()) & 0xFF:02x}")

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        path = f"{self._folder}/{name}"
        with ExitStack() as stack:
            try:
                stack.enter_context(self._disk.lock(path))
            except BlockingIOError as error:
                raise LockHeld(path) from error
            yield

    def holder(self, held: LockHeld) -> str:
        """Who has it, as far as that can be told."""
        return self._disk.lock_holder(held.path)
