"""A local directory as a first-class store: compare-and-swap across processes, every success power-safe.

Objects are plain files under their keys, so other programs can read them. The directory refuses what
files cannot be: a key that is also a folder of keys, a segment over 255 bytes, a path through a
symbolic link. A folder stays when its last object goes. How a write is made safe: `folder.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed, InvalidInput
from penstock.ids import SYSTEM_ENTROPY, Entropy
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
from penstock.objects.disk import Disk, FileStat, RealDisk
from penstock.objects.folder import Folder, version_of
from penstock.objects.fork import Home
from penstock.objects.port import Body, Object, ObjectMeta, check_key, check_keys, check_range
from penstock.objects.url import StoreUrl

__all__ = ["DirectoryStore", "Offload", "Threads"]

T = TypeVar("T")
# Named here because the verb `list` shadows the type inside the class.
_Page: TypeAlias = list[ObjectMeta]
_Ranges: TypeAlias = list[bytes]

# Enough syncs under way for the file system to commit them together; more threads gained nothing.
THREADS_MAX: Final = 8


class Offload(Protocol):
    """Runs a blocking call where it does not hold up the event loop."""

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]: ...


class Threads:
    """Blocking calls on a few threads of their own, so that a slow disk never starves the loop's executor."""

    def __init__(self, count: int = THREADS_MAX) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="penstock-directory")
        self._home = Home()
        self._closed = False

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]:
        if self._closed:
            raise Closed("the directory store was closed", "a call came after close()", "open it again")
        self._home.check("the directory store", "open it again")
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def close(self) -> None:
        """Take no more work, and wait for what is under way."""
        self._closed = True
        self._pool.shutdown()


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
    ) -> None:
        if not root.startswith("/"):
            raise InvalidInput(f"directory {root!r} cannot be a store", "its path is relative", "give the full path")
        self.url = str(StoreUrl("file", root))
        self._threads = None if offload else Threads()
        self._offload: Offload = offload or self._threads  # type: ignore[assignment] # one of the two is there
        self._get_bytes_max = get_bytes_max
        self._folder = Folder(root.rstrip("/") or "/", self.url, disk=disk or RealDisk(), clock=clock, entropy=entropy)

    async def prepare(self) -> None:
        """Make the directory ready for writes now instead of with the first one."""
        await self._offload(self._folder.prepare)

    async def check_present(self) -> None:
        """`NotFound` unless the directory exists; writes nothing."""
        await self._offload(self._folder.check_present)

    async def get(self, key: str) -> Object:
        return await self._offload(self._get, check_key(key))

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        return await self._offload(self._get_if_changed, check_key(key), version)

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        return (await self.get_ranges(key, [(start, end)], version=version))[0]

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        for start, end in ranges:
            check_range(key, start, end)
        return await self._offload(self._get_ranges, check_key(key), ranges, version)

    async def head(self, key: str) -> ObjectMeta:
        return _meta(key, await self._offload(self._folder.stat, check_key(key)))

    async def put(self, key: str, data: Body) -> ObjectMeta:
        return _meta(key, await self._offload(self._folder.place, check_key(key), check_body(key, data), _always))

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        def check(found: str | None) -> None:
            check_version(self.url, key, found, version)

        body = check_body(key, data)
        return _meta(key, await self._offload(self._folder.place, check_key(key), body, check))

    async def list(
        self, prefix: str = "", *, offset: str = "", page_size: int = 1000
    ) -> AsyncIterator[list[ObjectMeta]]:
        check_listing(prefix, offset, page_size)
        found = self._folder.walk(prefix, offset)

        def next_page() -> _Page:
            return [_meta(key, stat) for key, stat in islice(found, page_size)]

        while page := await self._offload(next_page):
            yield page

    async def delete(self, key: str) -> None:
        await self.delete_many([key])

    async def delete_many(self, keys: Iterable[str]) -> None:
        await self._offload(self._folder.remove, check_keys(keys))

    async def close(self) -> None:
        """Wait for writes under way, then end the threads."""
        if self._threads:
            await asyncio.to_thread(self._threads.close)

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
