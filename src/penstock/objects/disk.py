"""The few file operations a durable directory needs, as a port, so that a torn disk can stand in.

A write is durable only when `sync_file` made its bytes so and `sync_directory` its name. Errors are
the operating system's own (`OSError`), passed through unchanged; the directory store gives them their
meaning. Symbolic links are never followed in the last part of a path: `ELOOP`. What is made is for its owner
alone, or for nobody where the umask says so.
"""

# Paths are plain text: a pathlib object costs more than the system call behind it.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108

from __future__ import annotations

import errno
import fcntl
import os
import stat as modes
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.objects.fork import UNINHERITED
from penstock.objects.lock_holder import lock_holder
from penstock.objects.port import Body

__all__ = ["Disk", "FileStat", "RealDisk"]

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FILE: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_OR_NEW_FILE: Final = _OLD_FILE | os.O_CREAT
# Non-blocking, so that a foreign named pipe cannot hang its reader; files do not care.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Documents and vectors are nobody else's; as everywhere, the umask may take more away.
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


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


class RealDisk:
    """The operating system's files."""

    def read(self, path: str, start: int = 0, end: int | None = None) -> tuple[bytes, FileStat]:
        handle = os.open(path, _READ)
        try:
            found = _plain(path, os.fstat(handle))
            if found.is_directory:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            stop = found.size if end is None else min(end, found.size)
            return _read_exactly(handle, start, stop), found
        finally:
            os.close(handle)

    def stat(self, path: str) -> FileStat:
        return _plain(path, os.lstat(path))

    def create(self, path: str, data: Body, modified_ns: int | None = None) -> None:
        handle = os.open(path, _NEW_FILE, _FILE_MODE)
        try:
            _write_all(handle, data)
            if modified_ns is not None:
                os.utime(handle, ns=(modified_ns, modified_ns))
        finally:
            os.close(handle)

    def allocate(self, path: str, size: int) -> None:
        handle = os.open(path, _OLD_OR_NEW_FILE, _FILE_MODE)
        try:
            os.posix_fallocate(handle, 0, size)
        finally:
            os.close(handle)

    def overwrite(self, path: str, data: Body, modified_ns: int) -> None:
        handle = os.open(path, _OLD_FILE)
        try:
            _write_all(handle, data)
            os.ftruncate(handle, len(memoryview(data).cast("B")))
            os.utime(handle, ns=(modified_ns, modified_ns))
        finally:
            os.close(handle)

    def sync_file(self, path: str) -> None:
        _sync(path, _READ)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        os.mkdir(path, _FOLDER_MODE)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        handles = _WATCHED.handles.get(path)
        if handles:
            os.fsync(handles[-1])
        else:
            _sync(path, _FOLDER)

    @contextmanager
    def watching(self, path: str) -> Iterator[None]:
        handles = _WATCHED.handles.setdefault(path, [])
        handles.append(os.open(path, _FOLDER))
        try:
            yield
        finally:
            os.close(handles.pop())
            if not handles:
                del _WATCHED.handles[path]

    def scan(self, path: str) -> list[tuple[str, bool]]:
        with os.scandir(path) as entries:
            return sorted(
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in entries
                if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
            )

    @contextmanager
    def lock(self, path: str) -> Iterator[None]:
        # A fresh open file each time: flock excludes open files, so this excludes threads as well.
        with UNINHERITED.opened(path, _LOCK, _FILE_MODE) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                yield
            finally:
                # Closing would not do: the lock belongs to the open file, which a forked child may hold open too.
                fcntl.flock(handle, fcntl.LOCK_UN)

    def lock_holder(self, path: str) -> str:
        return lock_holder(path)


class _Watched(threading.local):
    """The folders that each thread has opened ahead of a change."""

    def __init__(self) -> None:
        self.handles: dict[str, list[int]] = {}


_WATCHED: Final = _Watched()


def _plain(path: str, found: os.stat_result) -> FileStat:
    if modes.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return FileStat(found.st_size, found.st_mtime_ns, found.st_ino, modes.S_ISDIR(found.st_mode))


def _read_exactly(handle: int, start: int, stop: int) -> bytes:
    """One read in nearly all cases; the system caps a single one at 2 GiB."""
    pieces = []
    while start < stop:
        piece = os.pread(handle, stop - start, start)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _write_all(handle: int, data: Body) -> None:
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(handle, rest) :]


def _sync(path: str, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
