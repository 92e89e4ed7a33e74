"""The local-file port: the few operations that a durable directory needs, so that a torn disk can stand in.

A write is durable only when a sync made its bytes so and `sync_directory` its name; a file opened for direct
writes needs no sync. Errors are the operating system's own (`OSError`), passed through unchanged: the rooms above
give them their meaning (`explain`). Symbolic links are never followed in the last part of a path: `ELOOP`. What
is made is for its owner alone, or for nobody where the umask says so.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeAlias

__all__ = ["Body", "Disk", "DiskFile", "FileStat"]

Body: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class FileStat:
    size: int
    modified_ns: int
    inode: int
    is_directory: bool


class Disk(Protocol):
    """Files and folders by path."""

    def read(self, path: str, start: int = 0, end: int | None = None) -> tuple[bytes, FileStat]:
        """Bytes `[start, end)` of a file and the stat of that very file, though it be replaced meanwhile."""
        ...

    def stat(self, path: str) -> FileStat: ...

    def create(self, path: str, data: Body, modified_ns: int | None = None) -> None:
        """A new file holding `data`, not yet synced; `FileExistsError` if there is one."""
        ...

    def allocate(self, path: str, size: int) -> None:
        """Set room aside: a file of `size` bytes, made or grown, which can be overwritten on a full disk."""
        ...

    def overwrite(self, path: str, data: Body, modified_ns: int) -> None:
        """Replace a file's bytes in the room it has, and cut it to their length; not yet synced."""
        ...

    def sync_file(self, path: str) -> None:
        """Make a file's bytes and stamps survive a power loss."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing in one step what had it."""
        ...

    def unlink(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """One level; `FileExistsError` if the name is taken."""
        ...

    def remove_directory(self, path: str) -> None:
        """An empty folder; `OSError` if it is not."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a folder survive a power loss."""
        ...

    def watching(self, path: str) -> AbstractContextManager[None]:
        """Inside, `sync_directory` of this folder by this thread also raises what others' syncs met meanwhile.

        A failed sync is told to whoever had the folder open, and what it was to save counts as saved. So a
        change and its sync belong into one block: without it, the sync may succeed where another one has
        just failed on that very change.
        """
        ...

    def scan(self, path: str) -> list[tuple[str, bool]]:
        """The files and folders in a folder, as name and whether it is a folder, sorted by name."""
        ...

    def lock(self, path: str) -> AbstractContextManager[None]:
        """Exclusive between threads and processes; given up by the system when its holder dies.

        Never waits: `BlockingIOError` while somebody else has it, so that a stopped holder stops no thread.
        """
        ...

    def lock_holder(self, path: str) -> str:
        """Who holds a lock, for an error text; "another process" where the system does not tell."""
        ...

    def open(self, path: str, *, direct: bool = False, synchronous: bool = True) -> DiskFile:
        """A file for many writes, made if there is none.

        With `direct`, every write is on the disk when it returns, past the page cache, and takes whole blocks of
        `DIRECT_BLOCK_BYTES` at a multiple of them: anything else is `EINVAL`, and so is opening where the file
        system cannot do it. One that is not `synchronous` goes past the page cache as well, and needs a `sync`: for
        new files, where each synchronous write would wait for the file system's journal.
        """
        ...

    def map(self, path: str) -> memoryview:
        """The bytes a file has now, read when they are touched. They stay readable when the file is removed."""
        ...


class DiskFile(Protocol):
    """One open file. Calls come one at a time, from any thread."""

    @property
    def direct(self) -> bool: ...

    def size(self) -> int: ...

    def write_at(self, offset: int, data: Body) -> None:
        """Write all of `data`; beyond the end, the gap reads as zeros. A failed call may have written any part."""
        ...

    def append(self, data: Body) -> int:
        """Write at the end, and return where that was."""
        ...

    def preallocate(self, size: int) -> None:
        """Grow to `size` bytes with room set aside: overwriting them works on a full disk."""
        ...

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes, or grow with zeros that have no room of their own."""
        ...

    def sync(self) -> None:
        """Make the bytes and the length survive a power loss.

        After a failed one nobody knows which writes since the last sync were saved, and no later sync tells.
        """
        ...

    def close(self) -> None:
        """Give the file back. Idempotent; saves nothing."""
        ...

    def __enter__(self) -> DiskFile: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
