"""A local directory as a first-class store: compare-and-swap across processes, every success power-safe.

Objects are plain files under their keys, so other programs can read them. The directory refuses what
files cannot be: a key that is also a folder of keys, a segment over 255 bytes, a path through a
symbolic link. A folder stays when its last object goes. How a write is made safe: `folder.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock, Deadline
from penstock.disk import Disk, FileStat, RealDisk
from penstock.errors import Conflict, InvalidInput, Unavailable
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.loops import Offload, Threads
from penstock.objects.bounds import (
    GET_BYTES_MAX,
    RACES_MAX,
    check_body,
    check_listing,
    check_size,
    check_start,
    check_version,
    storm,
)
from penstock.objects.directory.folder import Folder, Unreadable, version_of
from penstock.objects.directory.locks import LockHeld
from penstock.objects.directory.placement import Placement, Removal
from penstock.objects.port import Body, Object, ObjectMeta, check_key, check_keys, check_range
from penstock.objects.url import StoreUrl

__all__ = ["DirectoryStore", "Offload", "Threads"]

T = TypeVar("T")
# Named here because the verb `list` shadows the type inside the class.
_Page: TypeAlias = list[ObjectMeta]
_Ranges: TypeAlias = list[bytes]

# Enough syncs under way for the file system to commit them together; more threads gained nothing. As many
# again for reads, so that a disk which is slow to sync still serves what it has.
THREADS_MAX: Final = 8

# A lock is held for microseconds, so whoever has it longer is stopped, or waits for a disk that hangs. Half a
# register's `attempt_seconds`, so that its caller is told who it is.
LOCK_SECONDS_MAX: Final = 5.0
_PAUSE_SECONDS_FIRST: Final = 0.001
_PAUSE_SECONDS_MAX: Final = 0.1


class DirectoryStore:
    """The port over a directory. A cancelled write goes on in its thread: its outcome is then unknown."""

    def __init__(
        self,
        root: str,
        *,
        disk: Disk | None = None,
        offload: Offload | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        get_bytes_max: int = GET_BYTES_MAX,
        lock_seconds_max: float = LOCK_SECONDS_MAX,
        unreadable: Unreadable | None = None,
    ) -> None:
        """`unreadable` is told of folders that a listing goes on without, because this user may not look into them."""
        if not root.startswith("/"):
            raise InvalidInput(f"directory {root!r} cannot be a store", "its path is relative", "give the full path")
        self.url = str(StoreUrl("file", root))
        self._threads: list[Threads] = [] if offload else [_threads(), _threads()]
        self._reading: Offload = offload or self._threads[0]
        self._writing: Offload = offload or self._threads[1]
        self._clock = clock
        self._entropy = entropy
        self._get_bytes_max = get_bytes_max
        self._lock_seconds_max = lock_seconds_max
        self._unreadable = unreadable
        self._folder = Folder(root.rstrip("/") or "/", self.url, disk=disk or RealDisk(), clock=clock, entropy=entropy)

    async def prepare(self) -> None:
        """Make the directory ready for writes now instead of with the first one."""
        await self._writing(self._folder.prepare)

    async def check_present(self) -> None:
        """`NotFound` unless the directory exists; writes nothing."""
        await self._reading(self._folder.check_present)

    async def get(self, key: str) -> Object:
        return await self._reading(self._get, check_key(key))

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        return await self._reading(self._get_if_changed, check_key(key), version)

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        return (await self.get_ranges(key, [(start, end)], version=version))[0]

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        for start, end in ranges:
            check_range(key, start, end)
        return await self._reading(self._get_ranges, check_key(key), ranges, version)

    def read_now(self, key: str, start: int, end: int) -> bytes:
        """As `get_range`, on the thread of the caller: for threads that read, and have no loop to wait for."""
        check_range(key, start, end)
        return self._get_ranges(check_key(key), [(start, end)], None)[0]

    async def head(self, key: str) -> ObjectMeta:
        return _meta(key, await self._reading(self._folder.stat, check_key(key)))

    async def get_durable(self, key: str) -> Object:
        """What another process wrote, or a sync that failed, nobody here can vouch for: it is written anew."""
        for _ in range(RACES_MAX):
            found = await self.get(key)
            if self._folder.vouches_for(key, found.meta.version):
                return found
            try:
                return Object(await self.put_if(key, found.data, version=found.meta.version), found.data)
            except Conflict:
                continue
        raise storm(self.url, key)

    async def put(self, key: str, data: Body) -> ObjectMeta:
        return await self._place(check_key(key), check_body(key, data), _always, conditional=False)

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        def check(found: str | None) -> None:
            check_version(self.url, key, found, version)

        return await self._place(check_key(key), check_body(key, data), check, conditional=True)

    async def list(
        self, prefix: str = "", *, offset: str = "", page_size: int = 1000
    ) -> AsyncIterator[list[ObjectMeta]]:
        check_listing(prefix, offset, page_size)
        found = self._folder.walk(prefix, offset, self._unreadable)

        def next_page() -> _Page:
            return [_meta(key, stat) for key, stat in islice(found, page_size)]

        while page := await self._reading(next_page):
            yield page

    async def delete(self, key: str) -> None:
        await self.delete_many([key])

    async def delete_many(self, keys: Iterable[str]) -> None:
        await self._patiently(Removal(self._folder, check_keys(keys)).attempt)

    async def close(self) -> None:
        """Wait for writes under way, then end the threads."""
        for threads in self._threads:
            await asyncio.to_thread(threads.close)

    async def _place(
        self, key: str, body: Body, check: Callable[[str | None], None], *, conditional: bool
    ) -> ObjectMeta:
        placement = Placement(self._folder, key, body, check, conditional=conditional)
        try:
            return _meta(key, await self._patiently(placement.attempt))
        except (Unavailable, asyncio.CancelledError):
            placement.abandon()
            raise

    async def _patiently(self, attempt: Callable[[], T]) -> T:
        """Try until no lock is in the way. Whoever waits for one waits here, where it takes no thread from others."""
        held: LockHeld | None = None
        deadline, pause = Deadline(self._clock, self._lock_seconds_max), _PAUSE_SECONDS_FIRST
        while True:
            try:
                return await self._writing(attempt)
            except LockHeld as found:
                if held is None or held.path != found.path:
                    held, deadline = found, Deadline(self._clock, self._lock_seconds_max)
                if deadline.passed:
                    raise await self._held_up(found) from found
            await self._clock.sleep(self._entropy.uniform(pause / 2, pause))
            pause = min(_PAUSE_SECONDS_MAX, 2 * pause)

    async def _held_up(self, held: LockHeld) -> Unavailable:
        holder = await self._reading(self._folder.locks.holder, held)
        return Unavailable(
            f"{self.url} was not changed",
            f"the lock {held.path} was held by {holder} for over {self._lock_seconds_max:g} s",
            "let that process continue, or end it, which releases the lock",
        )

    def _get(self, key: str) -> Object:
        # Its size first, so that a giant is refused unread; the bound again, should it be replaced by one.
        check_size(self.url, _meta(key, self._folder.stat(key)), self._get_bytes_max)
        data, found = self._folder.read(key, 0, self._get_bytes_max)
        meta = _meta(key, found)
        check_size(self.url, meta, self._get_bytes_max)
        return Object(meta, data)

    def _get_if_changed(self, key: str, version: str) -> Object | None:
        return None if version_of(self._folder.stat(key)) == version else self._get(key)

    def _get_ranges(self, key: str, ranges: Sequence[tuple[int, int]], version: str | None) -> _Ranges:
        for _ in range(RACES_MAX):
            reads = [self._folder.read(key, start, end) for start, end in ranges]
            stats = [found for _, found in reads] or [self._folder.stat(key)]
            if version is not None:
                for found in stats:
                    check_version(self.url, key, version_of(found), version)
            # Each read is of one whole version; all must be of the same.
            if len({version_of(found) for found in stats}) == 1:
                for start, _ in ranges:
                    check_start(key, start, stats[0].size)
                return [data for data, _ in reads]
        raise storm(self.url, key)


def _always(_: str | None) -> None:
    """The condition of an unconditional write."""


def _meta(key: str, found: FileStat) -> ObjectMeta:
    return ObjectMeta(key, found.size, version_of(found), found.modified_ns // 1_000_000)


def _threads() -> Threads:
    return Threads(THREADS_MAX, "penstock-directory", "the directory store")
