"""A directory that replaces files whole, in order, and durably: the synchronous core of the directory store.

A write goes: new file in a hidden folder, sync, lock of the key's stripe, check, rename, unlock, sync
of the folder (`placement.py`). Readers take no lock: they open one file, which never changes.

What is visible is not yet durable, and a sync that failed is never made good by a later one: the system
counts what it could not write as written. So the folder keeps two things in mind. It vouches for the
version of a key that its own sync has made durable, and for no other; and a name whose sync failed it
makes anew instead of syncing it again.

```
<root>/<key>                   one file an object, its modification time set by us, strictly increasing
<root>/.penstock/locks/<hh>    256 lock files; a key's is chosen by its checksum
<root>/.penstock/temporary/    files not yet renamed; those an hour old belong to a dead writer
<root>/.penstock/reserve/      room set aside for draining a full disk: `reserve.py`
```
"""

from __future__ import annotations

import errno
import posixpath
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

from penstock.clock import Clock
from penstock.disk import Disk, FileStat, explain, is_full
from penstock.errors import InvalidInput, NotFound, OutcomeUnknown, PermissionDenied, Unavailable
from penstock.ids import Entropy
from penstock.objects.bounds import missing
from penstock.objects.directory.locks import Locks
from penstock.objects.directory.reserve import Reserve
from penstock.objects.directory.staging import Staging
from penstock.objects.port import RESERVED_FOLDER
from penstock.objects.prefix_walk import walk

__all__ = ["Folder", "Unreadable", "version_of"]

Unreadable = Callable[[str], None]

# Folders known to be durable, and keys vouched for: some hundred bytes each, a megabyte or two in all.
_KNOWN_MAX: Final = 10_000

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
        self._hidden = f"{root}/{RESERVED_FOLDER}"
        self.locks = Locks(disk, f"{self._hidden}/locks")
        self.staging = Staging(f"{self._hidden}/temporary", disk=disk, clock=clock, entropy=entropy)
        self.reserve = Reserve(f"{self._hidden}/reserve", disk=disk, locks=self.locks, staging=self.staging)
        self._prepared = False
        # Whether the directory was there once: from then on its absence says nothing of what it holds.
        self._was_there = False
        # Guards the preparation and what is vouched for; never held during a write.
        self._mutex = threading.Lock()
        # Folders whose own names are synced. Two threads may both sync one; neither trusts the other too early.
        self._durable: set[str] = set()
        # Folders in which a sync failed: few, since that is the end of most disks.
        self._doubted: set[str] = set()
        # The version of each key that is known to be durable, those written last at the end.
        self._vouched: dict[str, str] = {}

    def prepare(self) -> None:
        """Make the folders, throw away what dead writers left, and refuse a disk that rounds time stamps."""
        with self._mutex, self._explained(f"{self._url} cannot be a store"):
            if self._prepared:
                return
            self._make_root()
            for folder in (self._hidden, f"{self._hidden}/locks", f"{self._hidden}/temporary"):
                self._make_folder(folder)
            self.staging.remove_stale()
            self._check_stamps()
            self._prepared = self._was_there = True

    def check_present(self) -> None:
        """`NotFound` unless the directory is there."""
        with self._explained(f"{self._url} cannot be a store"):
            if not self._is_there(self._root):
                raise NotFound(f"{self._url} cannot be opened", "there is no such directory", "create it first")
            self._was_there = True

    def stat(self, key: str) -> FileStat:
        with self.serving(key), self._absent_is_missing(key):
            found = self._disk.stat(self._inside(key))
            if found.is_directory:
                raise missing(self._url, key)
            return found

    def read(self, key: str, start: int = 0, end: int | None = None) -> tuple[bytes, FileStat]:
        with self.serving(key), self._absent_is_missing(key):
            return self._disk.read(self._inside(key), start, end)

    def current(self, key: str) -> FileStat | None:
        """What is there now; None if nothing is."""
        try:
            found = self._disk.stat(self._inside(key))
        except FileNotFoundError:
            return None
        if found.is_directory:
            raise IsADirectoryError(errno.EISDIR, "the key is a folder", key)
        return found

    def make_parents(self, key: str) -> None:
        slash = key.find("/")
        while slash >= 0:
            self._make_folder(f"{self._root}/{key[:slash]}")
            slash = key.find("/", slash + 1)

    def rename(self, key: str, temporary: str) -> None:
        """Make a staged file the object: the moment from which others see it."""
        try:
            self._disk.rename(temporary, f"{self._root}/{key}")
        except OSError as error:
            if error.errno == errno.EIO:
                raise self._unknown(key, error) from error
            raise

    def could_hold(self, key: str) -> bool:
        """Whether the folder of this key is there."""
        with self.serving(key), suppress(*_ABSENT):
            self._inside(key)
            return True
        return False

    def unlink(self, key: str) -> None:
        """Take its name off, if it is there."""
        path = f"{self._root}/{key}"
        with suppress(*_ABSENT):
            if self.current(key) is not None:
                self._disk.unlink(path)
            elif posixpath.dirname(path) in self._doubted:
                # Gone from sight, perhaps not from the disk. A name that comes and goes as a folder, which no
                # reader takes for an object, is a new change, and one that the next sync can make durable.
                self._disk.make_directory(path)
                self._disk.remove_directory(path)

    def watching(self, key: str) -> AbstractContextManager[None]:
        """Around a change of a name and its `settle`."""
        return self._disk.watching(posixpath.dirname(f"{self._root}/{key}"))

    def settle(self, key: str) -> None:
        """Make what was renamed or unlinked durable. Others may have seen it by now, so failing is no refusal."""
        try:
            self._sync_folder(posixpath.dirname(f"{self._root}/{key}"))
        except OSError as error:
            raise self._unknown(key, error) from error

    def vouch_for(self, key: str, placed: FileStat) -> None:
        """A sync that began after this version got its name has succeeded, and none failed in between."""
        with self._mutex:
            self._vouched.pop(key, None)
            if len(self._vouched) >= _KNOWN_MAX:
                del self._vouched[next(iter(self._vouched))]
            self._vouched[key] = version_of(placed)

    def vouches_for(self, key: str, version: str) -> bool:
        """Whether this version is known to survive a power loss."""
        return self._vouched.get(key) == version

    def walk(self, prefix: str, offset: str, unreadable: Unreadable | None = None) -> Iterator[tuple[str, FileStat]]:
        """Objects in byte order of their keys, as they are when the walk comes by.

        A folder that this user may not look into ends it, unless `unreadable` is told of such ones, as `a/b/`.
        """

        def scan(folder: str) -> list[tuple[str, bool]]:
            try:
                return self._scan(folder)
            except PermissionDenied as error:
                _pass_over(folder, error, unreadable)
                return []

        for key in walk(scan, prefix, offset):
            # Deleted or replaced by a folder since its name was read.
            with suppress(NotFound):
                try:
                    found = self.stat(key)
                except PermissionDenied as error:
                    _pass_over(key[: key.rfind("/") + 1], error, unreadable)
                    continue
                yield key, found

    def _scan(self, folder: str) -> list[tuple[str, bool]]:
        with self.serving(folder):
            try:
                if not folder:
                    found = self._disk.scan(self._root)
                    if not found:
                        self._check_still_there(folder)
                    return found
                path = self._inside(folder[:-1])
                # The last part too must be a folder, and no link to one.
                return self._disk.scan(path) if self._disk.stat(path).is_directory else []
            except _ABSENT:
                self._check_still_there(folder)
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

    def _make_folder(self, path: str) -> None:
        """A folder whose own name is durable, whoever made it: its maker may not have come to sync it."""
        if path in self._durable:
            with suppress(FileNotFoundError):
                self._disk.stat(path)
                return
        parent = posixpath.dirname(path)
        with self._disk.watching(parent):
            with suppress(FileExistsError):
                self._disk.make_directory(path)
            try:
                self._sync_folder(parent)
            except OSError as error:
                # Away with it, so that neither we nor another process sync in vain what is found here. One that
                # holds something stays: it was there before.
                if error.errno == errno.EIO:
                    with suppress(OSError):
                        self._disk.remove_directory(path)
                raise
        if len(self._durable) >= _KNOWN_MAX:
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
            was_there = self._is_there(folder)
            try:
                self._make_folder(folder)
            except OSError as error:
                # One that was there is usually not ours to sync. But it may have been made a moment ago, and a
                # disk that fails to sync its name may lose it with all that it will hold.
                if not was_there or error.errno == errno.EIO:
                    raise

    def _check_stamps(self) -> None:
        try:
            self.staging.check_stamps(self._url)
        except OSError as error:
            # A full disk must open, to be drained. Whoever made the reserve has tried the stamps.
            if not (is_full(error) and self.reserve.is_established()):
                raise

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

    def _sync_folder(self, path: str) -> None:
        try:
            self._disk.sync_directory(path)
        except OSError:
            self._doubted.add(path)
            raise

    def _unknown(self, key: str, error: OSError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"object {key!r} in {self._url} was changed, but may not be durable",
            f"the disk failed while making it durable: {error}",
            "read it with get_durable, then decide; and check the disk",
        )

    @contextmanager
    def _absent_is_missing(self, key: str) -> Iterator[None]:
        try:
            yield
        except _ABSENT as error:
            self._check_still_there(key)
            raise missing(self._url, key) from error

    def _check_still_there(self, key: str) -> None:
        """Raise `Unavailable` if the directory itself went away: an empty place would pass for an empty store.

        Where a disk is unmounted, the folder it was mounted on stays; then it is our own folder that is missing.
        """
        own = self._hidden if self._prepared else self._root
        if self._was_there and not self._is_there(own):
            why = f"{own} was there and is gone"
            raise Unavailable(f"{self._url} cannot serve {key!r}", why, "mount its disk, or restore the directory")

    def serving(self, key: str) -> AbstractContextManager[None]:
        return self._explained(f"{self._url} cannot serve {key!r}")

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise explain(what, error) from error


def _pass_over(folder: str, error: PermissionDenied, unreadable: Unreadable | None) -> None:
    # Without its own folder there is no listing at all.
    if unreadable is None or not folder:
        raise error
    unreadable(folder)
