"""The operating system's files behind the port."""

# Paths are plain text: a pathlib object costs more than the system call behind it.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108

from __future__ import annotations

import errno
import fcntl
import os
import stat as modes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.disk.lock_holder import lock_holder
from penstock.disk.open_file import RealFile, write_all
from penstock.disk.port import Body, FileStat
from penstock.disk.uninherited import UNINHERITED

__all__ = ["RealDisk"]

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
            write_all(handle, data)
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
            write_all(handle, data)
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

    def open(self, path: str, *, direct: bool = False, synchronous: bool = True) -> RealFile:
        # Non-blocking, so that a foreign named pipe is an error and hangs nobody.
        flags = (
            _OLD_OR_NEW_FILE
            | os.O_NONBLOCK
            | (os.O_DIRECT if direct else 0)
            | (os.O_DSYNC if direct and synchronous else 0)
        )
        return RealFile(os.open(path, flags, _FILE_MODE), direct=direct)

    def map(self, path: str) -> memoryview:
        handle = os.open(path, _READ)
        try:
            found = _plain(path, os.fstat(handle))
            if found.is_directory:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            # Imported when first used: commands that map nothing start without what it needs.
            from penstock.disk.mapping import mapped

            # An empty file cannot be mapped.
            return mapped(handle, found.size) if found.size else memoryview(b"")
        finally:
            os.close(handle)


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


def _sync(path: str, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
