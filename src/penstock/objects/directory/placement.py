"""A write on its way to its name in a directory, and a removal: the steps that need a key's lock.

Each is an object that can be tried again: `attempt` raises `LockHeld` when another process or thread has
the lock, and keeps what it has done so far. Until the rename nothing is visible; after it, an error no
longer means "not written" and is told as `OutcomeUnknown`.
"""

from __future__ import annotations

import posixpath
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from penstock.disk import FileStat, is_full
from penstock.errors import PenstockError
from penstock.objects.directory.folder import Folder, version_of
from penstock.objects.directory.locks import LockHeld
from penstock.objects.port import Body

__all__ = ["Placement", "Removal"]

Check = Callable[[str | None], None]


class Placement:
    """Writes one object durably if `check`, given the version that is there, does not raise."""

    def __init__(self, folder: Folder, key: str, data: Body, check: Check, *, conditional: bool) -> None:
        self._folder = folder
        self._size = len(memoryview(data).cast("B"))
        # What is written under a condition is what drains: registers. The reserve is kept for their sizes.
        self._reserved = self._size if conditional else 0
        self._key = key
        self._data = data
        self._check = check
        self._staged: tuple[str, FileStat] | None = None
        # Guards the two flags: a caller may give up while a thread is at it.
        self._mutex = threading.Lock()
        self._under_way = False
        self._abandoned = False

    def attempt(self) -> FileStat:
        self._folder.prepare()
        self._begin()
        try:
            with self._folder.serving(self._key):
                no_room = self._stage()
                with self._folder.watching(self._key), ExitStack() as stack:
                    if no_room is not None:
                        self._staged = stack.enter_context(self._folder.reserve.spent(self._data, *no_room))
                        stack.callback(self._forget_staged)
                    placed = self._place()
                    self._folder.settle(self._key)
        except (LockHeld, PenstockError) as error:
            self._end(keep=isinstance(error, LockHeld))
            raise
        self._folder.vouch_for(self._key, placed)
        return placed

    def abandon(self) -> None:
        """Never mind: what is staged goes, at once or when the attempt under way has ended."""
        with self._mutex:
            self._abandoned = True
            if self._under_way:
                return
        self._discard()

    def _stage(self) -> tuple[FileStat, OSError] | None:
        """Write the bytes, unless they are written already. For want of room: what may be replaced without any."""
        if self._staged is not None:
            return None
        before = self._folder.current(self._key)
        self._check(_version(before))
        self._folder.make_parents(self._key)
        fits = before is not None and self._size <= before.size
        self._folder.reserve.keep(self._reserved, grows=not fits)
        try:
            self._staged = self._folder.staging.write(self._data, before)
        except OSError as error:
            if before is None or not fits or not is_full(error):
                raise
            return before, error
        return None

    def _place(self) -> FileStat:
        assert self._staged is not None
        with self._folder.locks.held(self._key):
            now = self._folder.current(self._key)
            self._check(_version(now))
            if now is not None and now.modified_ns >= self._staged[1].modified_ns:
                # Another writer's stamp is ahead of ours: write again, above it, undisturbed.
                self._discard()
                self._staged = self._folder.staging.write(self._data, now)
            temporary, placed = self._staged
            self._folder.rename(self._key, temporary)
            self._staged = None
            return placed

    def _begin(self) -> None:
        with self._mutex:
            self._under_way = True

    def _end(self, *, keep: bool) -> None:
        with self._mutex:
            self._under_way = False
            keep = keep and not self._abandoned
        if not keep:
            self._discard()

    def _forget_staged(self) -> None:
        """The reserve's file is not ours to keep, nor to discard."""
        self._staged = None

    def _discard(self) -> None:
        if self._staged is not None:
            self._folder.staging.discard(self._staged[0])
            self._staged = None


class Removal:
    """Unlinks each key, and syncs each folder once, also for what was gone: its remover may have failed to."""

    def __init__(self, folder: Folder, keys: Iterable[str]) -> None:
        self._folder = folder
        self._left: dict[str, deque[str]] = {}
        for key in keys:
            self._left.setdefault(posixpath.dirname(key), deque()).append(key)

    def attempt(self) -> None:
        self._folder.prepare()
        while self._left:
            parent, keys = next(iter(self._left.items()))
            if self._folder.could_hold(keys[0]):
                self._empty(keys)
            del self._left[parent]

    def _empty(self, keys: deque[str]) -> None:
        """All keys of one folder. What went before a lock was met is made durable before that is told."""
        first, count = keys[0], len(keys)
        with self._folder.serving(first), self._folder.watching(first):
            try:
                while keys:
                    with self._folder.serving(keys[0]), self._folder.locks.held(keys[0]):
                        self._folder.unlink(keys[0])
                    keys.popleft()
            finally:
                if len(keys) < count:
                    self._folder.settle(first)


def _version(found: FileStat | None) -> str | None:
    return version_of(found) if found else None
