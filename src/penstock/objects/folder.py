"""A directory that replaces files whole, in order, and durably: the synchronous core of the directory store.

A write goes: new file in a hidden folder, sync, lock of the key's stripe, check, rename, unlock, sync
of the folder. Until the rename nothing is visible; after it, an error no longer means "not written"
and is told as `OutcomeUnknown`. Readers take no lock: they open one file, which never changes.

```
<root>/<key>                   one file an object, its modification time set by us, strictly increasing
<root>/.penstock/locks/<hh>    256 lock files; a key's is chosen by its checksum
<root>/.penstock/temporary/    files not yet renamed; those an hour old belong to a dead writer
```
"""

from __future__ import annotations

import errno
import posixpath
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

from penstock.clock import Clock
from penstock.errors import InvalidInput, NotFound, OutcomeUnknown, PenstockError, Unsupported
from penstock.ids import Entropy, ulid
from penstock.objects.bounds import missing
from penstock.objects.disk import Disk, FileStat
from penstock.objects.disk_errors import explain
from penstock.objects.listing import walk
from penstock.objects.port import RESERVED_FOLDER, Body

__all__ = ["Folder", "version_of"]

_NS_PER_MS: Final = 1_000_000
# A put of gigabytes to a slow disk ends well before; a younger file may still be renamed.
_TEMPORARY_AGE_MS_MAX: Final = 3_600_000
# Folders known to be durable: some hundred bytes each, a megabyte in all.
_KNOWN_FOLDERS_MAX: Final = 10_000
# Nanoseconds below the millisecond that no coarser stamp can hold: rounded, quick writes could not be told apart.
_STAMP_TRIAL_NS: Final = 123_457

_ABSENT: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def version_of(found: FileStat) -> str:
    """Never given twice to one key: time only grows, and what it cannot tell apart, the inode and size do."""
    return f"{found.modified_ns:x}-{found.inode:x}-{found.size:x}"


class Folder:
    """The files of one directory store. Safe to share between threads, and between processes."""

    def __init__(self, root: str, url: str, *, disk: Disk, clock: Clock, entropy: Entropy) -> None:
        self._root = root
        self._url = url
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._hidden = f"{root}/{RESERVED_FOLDER}"
        self._prepared = False
        # Guards the preparation and the last stamp; never held during a write.
        self._mutex = threading.Lock()
        self._last_stamp_ns = 0
        # Folders whose own names are synced. Two threads may both sync one; neither trusts the other too early.
        self._durable: set[str] = set()

    def prepare(self) -> None:
        """Make the folders, throw away what dead writers left, and refuse a disk that rounds time stamps."""
        with self._mutex:
            if self._prepared:
                return
            with self._explained(f"{self._url} cannot be a store"):
                self._make_root()
                for folder in (self._hidden, f"{self._hidden}/locks", f"{self._hidden}/temporary"):
                    self._make_folder(folder)
                self._remove_stale()
                self._try_stamps()
            self._prepared = True

    def check_present(self) -> None:
        """`NotFound` unless the directory is there."""
        with self._explained(f"{self._url} cannot be a store"):
            if not self._is_there(self._root):
                raise NotFound(f"{self._url} cannot be opened", "there is no such directory", "create it first")

    def stat(self, key: str) -> FileStat:
        with self._serving(key), self._absent_is_missing(key):
            found = self._disk.stat(self._inside(key))
            if found.is_directory:
                raise missing(self._url, key)
            return found

    def read(self, key: str, start: int = 0, end: int | None = None) -> tuple[bytes, FileStat]:
        with self._serving(key), self._absent_is_missing(key):
            return self._disk.read(self._inside(key), start, end)

    def place(self, key: str, data: Body, check: Callable[[str | None], None]) -> FileStat:
        """Write durably if `check`, given the version that is there, does not raise."""
        self.prepare()
        path = f"{self._root}/{key}"
        with self._serving(key):
            before = self._current(key)
            check(_version(before))
            self._make_parents(key)
            temporary, placed = self._write_temporary(data, before)
            try:
                with self._disk.lock(self._lock_path(key)):
                    now = self._current(key)
                    check(_version(now))
                    if now is not None and now.modified_ns >= placed.modified_ns:
                        # Another writer's stamp is ahead of ours: write again, above it, undisturbed.
                        self._discard(temporary)
                        temporary, placed = self._write_temporary(data, now)
                    self._rename(key, temporary, path)
            except (OSError, PenstockError):
                self._discard(temporary)
                raise
        self._settle(key, posixpath.dirname(path))
        return placed

    def remove(self, keys: Iterable[str]) -> None:
        """Unlink each, then sync each folder once, also for what was gone: its remover may have failed to."""
        self.prepare()
        touched: dict[str, str] = {}
        for key in keys:
            with self._serving(key):
                if self._unlink(key):
                    touched.setdefault(posixpath.dirname(f"{self._root}/{key}"), key)
        for folder, key in touched.items():
            self._settle(key, folder)

    def walk(self, prefix: str, offset: str) -> Iterator[tuple[str, FileStat]]:
        """Objects in byte order of their keys, as they are when the walk comes by."""
        for key in walk(self._scan, prefix, offset):
            # Deleted or replaced by a folder since its name was read.
            with suppress(NotFound):
                yield key, self.stat(key)

    def _scan(self, folder: str) -> list[tuple[str, bool]]:
        with self._serving(folder):
            try:
                if not folder:
                    return self._disk.scan(self._root)
                path = self._inside(folder[:-1])
                # The last part too must be a folder, and no link to one.
                return self._disk.scan(path) if self._disk.stat(path).is_directory else []
            except _ABSENT:
                return []

    def _inside(self, key: str) -> str:
        """The path of a key none of whose folders is a symbolic link, which could lead out of the directory."""
        slash = key.find("/")
        while slash >= 0:
            folder = f"{self._root}/{key[:slash]}"
            if not self._disk.stat(folder).is_directory:
                raise NotADirectoryError(errno.ENOTDIR, "a folder of the key is an object", folder)
            slash = key.find("/", slash + 1)
        return f"{self._root}/{key}"

    def _current(self, key: str) -> FileStat | None:
        try:
            found = self._disk.stat(self._inside(key))
        except FileNotFoundError:
            return None
        if found.is_directory:
            raise IsADirectoryError(errno.EISDIR, "the key is a folder", key)
        return found

    def _make_parents(self, key: str) -> None:
        slash = key.find("/")
        while slash >= 0:
            self._make_folder(f"{self._root}/{key[:slash]}")
            slash = key.find("/", slash + 1)

    def _make_folder(self, path: str) -> None:
        """A folder whose own name is durable, whoever made it: its maker may not have come to sync it."""
        try:
            self._disk.make_directory(path)
        except FileExistsError:
            if path in self._durable:
                return
        self._disk.sync_directory(posixpath.dirname(path))
        if len(self._durable) >= _KNOWN_FOLDERS_MAX:
            self._durable.clear()
        self._durable.add(path)

    def _make_root(self) -> None:
        """The directory and all above it, each of a durable name as far as this user may see to that."""
        path = self._root
        above = [path]
        while path != "/":
            path = posixpath.dirname(path)
            above.append(path)
        for folder in reversed(above[:-1]):
            if self._is_there(folder):
                # Perhaps made a moment ago by a process that has yet to sync it; usually not ours to sync.
                with suppress(OSError):
                    self._disk.sync_directory(posixpath.dirname(folder))
            else:
                self._make_folder(folder)

    def _is_there(self, path: str) -> bool:
        try:
            found = self._disk.stat(path)
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise self._file_in_the_way(posixpath.dirname(path)) from None
        if not found.is_directory:
            raise self._file_in_the_way(path)
        return True

    def _file_in_the_way(self, path: str) -> InvalidInput:
        return InvalidInput(f"{self._url} cannot be a store", f"{path} is a file", "name a directory")

    def _write_temporary(self, data: Body, before: FileStat | None) -> tuple[str, FileStat]:
        path = f"{self._hidden}/temporary/{ulid(self._clock.now_ms(), self._entropy)}"
        try:
            self._disk.create(path, data, self._stamp(before))
            self._disk.sync_file(path)
            return path, self._disk.stat(path)
        except OSError:
            self._discard(path)
            raise

    def _stamp(self, before: FileStat | None) -> int:
        """Above the version that is there and above all of ours; random below the millisecond, for other processes."""
        noise = int.from_bytes(self._entropy.token(3), "big") % _NS_PER_MS
        now = self._clock.now_ms() * _NS_PER_MS + noise
        with self._mutex:
            self._last_stamp_ns = max(now, self._last_stamp_ns + 1, before.modified_ns + 1 if before else 0)
            return self._last_stamp_ns

    def _rename(self, key: str, temporary: str, path: str) -> None:
        try:
            self._disk.rename(temporary, path)
        except OSError as error:
            if error.errno == errno.EIO:
                raise self._unknown(key, error) from error
            raise

    def _unlink(self, key: str) -> bool:
        """Whether there is a folder that held it, or could have."""
        try:
            with self._disk.lock(self._lock_path(key)):
                path = self._inside(key)
                if self._current(key) is not None:
                    self._disk.unlink(path)
        except _ABSENT:
            return False
        return True

    def _settle(self, key: str, folder: str) -> None:
        """Make what was renamed or unlinked durable. Others may have seen it by now, so failing is no refusal."""
        try:
            self._disk.sync_directory(folder)
        except OSError as error:
            raise self._unknown(key, error) from error

    def _unknown(self, key: str, error: OSError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"object {key!r} in {self._url} was changed, and may not last",
            f"the disk failed while making it durable: {error}",
            "read it again, and check the disk",
        )

    def _discard(self, temporary: str) -> None:
        # Best effort: what stays is removed an hour later.
        with suppress(OSError):
            self._disk.unlink(temporary)

    def _remove_stale(self) -> None:
        limit_ns = (self._clock.now_ms() - _TEMPORARY_AGE_MS_MAX) * _NS_PER_MS
        for name, is_folder in self._disk.scan(f"{self._hidden}/temporary"):
            path = f"{self._hidden}/temporary/{name}"
            with suppress(FileNotFoundError):
                if not is_folder and self._disk.stat(path).modified_ns < limit_ns:
                    self._disk.unlink(path)

    def _try_stamps(self) -> None:
        path = f"{self._hidden}/temporary/{ulid(self._clock.now_ms(), self._entropy)}"
        stamp = self._clock.now_ms() * _NS_PER_MS + _STAMP_TRIAL_NS
        self._disk.create(path, b"", stamp)
        kept = self._disk.stat(path).modified_ns
        self._disk.unlink(path)
        if kept != stamp:
            raise Unsupported(
                f"{self._url} cannot be a store",
                "its file system rounds time stamps, so quick writes could not be told apart",
                "use a directory on ext4, xfs, btrfs, zfs or tmpfs",
            )

    def _lock_path(self, key: str) -> str:
        return f"{self._hidden}/locks/{zlib.crc32(key.encode()) & 0xFF:02x}"

    @contextmanager
    def _absent_is_missing(self, key: str) -> Iterator[None]:
        try:
            yield
        except _ABSENT as error:
            raise missing(self._url, key) from error

    def _serving(self, key: str) -> AbstractContextManager[None]:
        return self._explained(f"{self._url} cannot serve {key!r}")

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise explain(what, error) from error


def _version(found: FileStat | None) -> str | None:
    return version_of(found) if found else None
