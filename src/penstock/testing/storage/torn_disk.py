"""A disk that forgets: whatever was not synced may be lost, in part and out of order, when the power goes.

What a crash may do, and what it never does:

```
file bytes     unsynced: lost, cut short, or of full length with sectors of zeros or rubbish
               synced by `sync_file`: never touched
names          unsynced creations, renames, removals, folders: any subset survives. A rename inside one
               folder is one step; between folders the file may keep both names, never neither
               synced by `sync_directory` of the parent: never touched, as long as the parent itself,
               and its parent, were synced too
open files     unsynced pieces: any of their sectors, in any order; a change of length, or none of it
               direct writes are durable when they return; one that the power interrupts is torn
failed sync    what it was to save counts as clean, bytes and names alike: a later sync succeeds and saves
               nothing of it, until it is written anew. Told to its caller, and to whoever is `watching`
swallowed sync says that it saved, and saves nothing (`swallow_next`); a later one saves it
hung call      nothing of it is done, and it never returns (`hang_next`)
locks          given up
never          damage to what was synced (that is for checksums), reuse of an inode number
```
`crash` is the power loss of the whole machine. A killed process is none: it takes no step more
(`penstock.testing.process`), and what it had written stays in the page cache.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from itertools import count
from typing import Final

from penstock.clock import Clock
from penstock.disk import FileStat
from penstock.errors import InvalidInput
from penstock.objects import Body
from penstock.testing.entropy import SeededEntropy
from penstock.testing.storage.pages import Piece
from penstock.testing.storage.power import Hung, PowerCut
from penstock.testing.storage.torn_file import TornFile
from penstock.testing.storage.tree import File, Node, TreeChange, TreeFolder, survivors

__all__ = ["Hung", "PowerCut", "TornDisk"]

_WRITES: Final = (
    "create",
    "allocate",
    "overwrite",
    "sync_file",
    "rename",
    "unlink",
    "make_directory",
    "remove_directory",
    "sync_directory",
    "open",
    "write_at",
    "preallocate",
    "truncate",
)
_SYNCS: Final = ("sync_file", "sync_directory")


class _Fault(Enum):
    HANGS = "hangs"
    SWALLOWED = "swallowed"


class TornDisk:
    """The disk port over memory. Safe to share between threads, which then see one page cache.

    `writes` counts the calls that change the disk, so that a test can cut the power at each of them.
    """

    def __init__(
        self,
        *,
        entropy: SeededEntropy,
        clock: Clock,
        capacity_bytes: int | None = None,
        has_direct_writes: bool = True,
    ) -> None:
        self.writes = 0
        # How often the machine came up. Whatever was open before is gone.
        self.boots = 0
        self._has_direct_writes = has_direct_writes
        self._entropy = entropy
        self._clock = clock
        self._capacity_bytes = capacity_bytes
        self._inodes = count(2)
        self._root = TreeFolder(next(self._inodes), self._now_ns())
        # What the next calls of each verb meet, in order: an error's code, or what else goes wrong.
        self._failures: dict[str, deque[int | _Fault]] = {}
        self._powered_until: int | None = None
        self._dark = False
        self._swallowing = False
        self._mutex = threading.RLock()
        self._locks: set[str] = set()
        self._watched = _Watched()

    # Faults ---------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose the power and come back, with what a disk may have kept."""
        with self._mutex:
            self._root = survivors(self._root, self._entropy)
            self.revive()

    def revive(self) -> None:
        """Come back with the page cache as it was: after `cut_power`, a killed process instead of a power loss."""
        with self._mutex:
            self._locks = set()
            self._powered_until = None
            self._dark = False
            self.boots += 1

    def cut_power(self, after_writes: int = 0) -> None:
        """Let so many more writes pass; the next one, and every call after it, raises `PowerCut` until `crash`."""
        self._powered_until = self.writes + after_writes

    def fail_next(self, verb: str, code: int = errno.EIO) -> None:
        """Make the next call of this verb raise an `OSError` with this code, after doing what such a fault may do."""
        self._script(verb, code)

    def hang_next(self, verb: str) -> None:
        """Make the next call of this verb do nothing and never return: a thread in it is lost."""
        self._script(verb, _Fault.HANGS)

    def swallow_next(self, verb: str) -> None:
        """Make the next call of this sync succeed and save nothing, as a drive with a lying cache does."""
        if verb not in _SYNCS:
            raise InvalidInput(f"the disk cannot swallow {verb!r}", f"its syncs are {' and '.join(_SYNCS)}")
        self._script(verb, _Fault.SWALLOWED)

    def resize(self, capacity_bytes: int | None) -> None:
        """Give the disk another capacity: somebody else filled it, or freed some room."""
        self._capacity_bytes = capacity_bytes

    def heal(self) -> None:
        """Forget the failures and hangs that no call has met yet."""
        self._failures = {}

    # The port -------------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, end: int | None = None) -> tuple[bytes, FileStat]:
        with self._reading():
            file = self._file(path)
            return file.data[start:end], _stat(file)

    def stat(self, path: str) -> FileStat:
        with self._reading():
            return _stat(self._node(path))

    def scan(self, path: str) -> list[tuple[str, bool]]:
        with self._reading():
            return sorted((name, isinstance(node, TreeFolder)) for name, node in self._folder(path).entries.items())

    def create(self, path: str, data: Body, modified_ns: int | None = None) -> None:
        with self._writing("create") as failure:
            parent, name = self._vacant(path)
            stamp = self._now_ns() if modified_ns is None else modified_ns
            body = bytes(data)
            room = self._room(len(body))
            if failure or room < len(body):
                body = body[: self._entropy.below(min(room, len(body)) + 1)]
            parent.change(TreeChange(File(next(self._inodes), stamp, body), given=name))
            if room < len(data):
                raise _error(errno.ENOSPC, path)

    def allocate(self, path: str, size: int) -> None:
        with self._writing("allocate") as failure:
            parent, name = self._parent(path)
            if name not in parent.entries:
                parent.change(TreeChange(File(next(self._inodes), self._now_ns(), b""), given=name))
            file = self._file(path)
            missing = max(0, size - len(file.data))
            if self._room(missing) < missing:
                raise _error(errno.ENOSPC, path)
            if not failure and missing:
                file.write_whole(file.data + bytes(missing))

    def overwrite(self, path: str, data: Body, modified_ns: int) -> None:
        with self._writing("overwrite") as failure:
            file = self._file(path)
            body = bytes(data)
            missing = max(0, len(body) - len(file.data))
            if self._room(missing) < missing:
                raise _error(errno.ENOSPC, path)
            file.modified_ns = modified_ns
            file.write_whole(body[: self._entropy.below(len(body) + 1)] if failure else body)

    def sync_file(self, path: str) -> None:
        with self._writing("sync_file") as failure:
            file = self._file(path)
            if failure:
                file.fail_to_sync()
            elif not self._swallowing:
                file.sync()

    def rename(self, source: str, target: str) -> None:
        with self._writing("rename") as failure:
            file = self._file(source)
            (old, old_name), (new, new_name) = self._parent(source), self._parent(target)
            if isinstance(new.entries.get(new_name), TreeFolder):
                # The code Linux gives for a folder that holds the file itself.
                raise _error(errno.ENOTEMPTY if source.startswith(f"{target}/") else errno.EISDIR, target)
            # After an I/O error nobody knows whether the name changed.
            if file is new.entries.get(new_name) or (failure and self._entropy.chance(0.5)):
                return
            if old is new:
                new.change(TreeChange(file, given=new_name, taken=old_name))
            else:
                moved = new.change(TreeChange(file, given=new_name))
                old.change(TreeChange(file, taken=old_name, requires=moved))

    def unlink(self, path: str) -> None:
        with self._writing("unlink") as failure:
            file = self._file(path)
            parent, name = self._parent(path)
            if not failure:
                parent.change(TreeChange(file, taken=name))

    def make_directory(self, path: str) -> None:
        with self._writing("make_directory") as failure:
            parent, name = self._vacant(path)
            if not failure:
                parent.change(TreeChange(TreeFolder(next(self._inodes), self._now_ns()), given=name))

    def remove_directory(self, path: str) -> None:
        with self._writing("remove_directory") as failure:
            folder = self._folder(path)
            if folder.entries:
                raise _error(errno.ENOTEMPTY, path)
            parent, name = self._parent(path)
            if not failure:
                parent.change(TreeChange(folder, taken=name))

    def sync_directory(self, path: str) -> None:
        with self._writing("sync_directory") as failure:
            folder = self._folder(path)
            if failure:
                folder.fail_to_sync()
                return
            if not self._swallowing:
                folder.sync()
            watched = self._watched.failed_syncs.get(path)
            if watched and watched[-1] < folder.failed_syncs:
                watched[-1] = folder.failed_syncs
                raise _error(errno.EIO, path)

    @contextmanager
    def watching(self, path: str) -> Iterator[None]:
        with self._reading():
            watched = self._watched.failed_syncs.setdefault(path, [])
            watched.append(self._folder(path).failed_syncs)
        try:
            yield
        finally:
            watched.pop()

    @contextmanager
    def lock(self, path: str) -> Iterator[None]:
        with self._reading():
            parent, name = self._parent(path)
            if name not in parent.entries:
                parent.change(TreeChange(File(next(self._inodes), self._now_ns(), b""), given=name))
            locks = self._locks
            if path in locks:
                raise _error(errno.EWOULDBLOCK, path)
            locks.add(path)
        try:
            yield
        finally:
            # Of the set it was put in: after a power loss there is another one.
            locks.discard(path)

    def lock_holder(self, path: str) -> str:
        return "another process"

    def map(self, path: str) -> memoryview:
        with self._reading():
            return memoryview(self._file(path).data)

    def open(self, path: str, *, direct: bool = False, synchronous: bool = True) -> TornFile:
        if direct and not self._has_direct_writes:
            raise _error(errno.EINVAL, path)
        with self._reading():
            parent, name = self._parent(path)
            known = name in parent.entries
            if known:
                return TornFile(self, self._file(path), direct=direct, synchronous=synchronous)
        with self._writing("open") as failure:
            file = File(next(self._inodes), self._now_ns(), b"")
            if not failure:
                parent.change(TreeChange(file, given=name))
        return TornFile(self, file, direct=direct, synchronous=synchronous)

    # What its open files ask of it ----------------------------------------------------------------

    def put(self, file: File, piece: Piece) -> None:
        """Write a piece, as far as there is room and no fault; cut short by either, nobody knows where."""
        verb = "write_at" if piece.data is not None else "truncate"
        with self._writing(verb) as failure:
            length = len(piece.data or b"")
            room = self._room(length) + max(0, len(file.data) - piece.offset)
            if piece.data is not None and (failure or room < length):
                piece.data = piece.data[: self._entropy.below(min(room, length) + 1)]
            # A direct write that does not come to its end is like one in the page cache: any sector may be missing.
            piece.settled = piece.settled and not (failure or self._dark or room < length)
            if not (failure and piece.data is None):
                file.write(piece)
            if room < length:
                raise _error(errno.ENOSPC, "an open file")

    def set_aside(self, file: File, size: int) -> None:
        with self._writing("preallocate") as failure:
            missing = max(0, size - len(file.data))
            if self._room(missing) < missing:
                raise _error(errno.ENOSPC, "an open file")
            if missing and not failure:
                file.write(Piece(size, None))

    def save(self, file: File) -> None:
        with self._writing("sync_file") as failure:
            if failure:
                file.fail_to_sync()
            elif not self._swallowing:
                file.sync()

    def look(self) -> AbstractContextManager[None]:
        return self._reading()

    # What serves it -------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._mutex:
            if self._dark:
                raise PowerCut
            yield

    @contextmanager
    def _writing(self, verb: str) -> Iterator[bool]:
        """Whether this call is to fail; then the body does the damage, and the error is raised here."""
        with self._reading():
            self._dark = self._powered_until is not None and self.writes >= self._powered_until
            if self._dark and self._entropy.chance(0.5):
                raise PowerCut
            self.writes += 1
            failures = self._failures.get(verb)
            fault = failures.popleft() if failures else 0
            if fault is _Fault.HANGS:
                raise Hung
            self._swallowing = fault is _Fault.SWALLOWED
            code = fault if isinstance(fault, int) else 0
            yield bool(code)
            if self._dark:
                raise PowerCut
            if code:
                raise _error(code, verb)

    def _script(self, verb: str, fault: int | _Fault) -> None:
        if verb not in _WRITES:
            raise InvalidInput(f"the disk cannot be told to fail at {verb!r}", f"its writes are {', '.join(_WRITES)}")
        self._failures.setdefault(verb, deque()).append(fault)

    def _node(self, path: str) -> Node:
        node: Node = self._root
        for name in path.split("/"):
            if not name:
                continue
            if not isinstance(node, TreeFolder):
                raise _error(errno.ENOTDIR, path)
            if name not in node.entries:
                raise _error(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        if isinstance(node, TreeFolder):
            raise _error(errno.EISDIR, path)
        return node

    def _folder(self, path: str) -> TreeFolder:
        node = self._node(path)
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[TreeFolder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    def _vacant(self, path: str) -> tuple[TreeFolder, str]:
        parent, name = self._parent(path)
        if name in parent.entries:
            raise _error(errno.EEXIST, path)
        return parent, name

    def _room(self, wanted: int) -> int:
        return wanted if self._capacity_bytes is None else max(0, self._capacity_bytes - _size(self._root))

    def _now_ns(self) -> int:
        return self._clock.now_ms() * 1_000_000


class _Watched(threading.local):
    """For each folder that a thread watches, how many failed syncs it has been told of."""

    def __init__(self) -> None:
        self.failed_syncs: dict[str, list[int]] = {}


def _stat(node: Node) -> FileStat:
    if isinstance(node, TreeFolder):
        return FileStat(0, node.modified_ns, node.inode, is_directory=True)
    return FileStat(len(node.data), node.modified_ns, node.inode, is_directory=False)


def _size(root: TreeFolder) -> int:
    """A file that a power loss left with two names takes its room once."""
    return sum(len(file.data) for file in {file.inode: file for file in _files(root)}.values())


def _files(folder: TreeFolder) -> Iterator[File]:
    for node in folder.entries.values():
        if isinstance(node, TreeFolder):
            yield from _files(node)
        else:
            yield node


def _error(code: int, path: str) -> OSError:
    """The operating system's own error: `OSError` picks the subclass by the code."""
    return OSError(code, os.strerror(code), path)
