"""An object store in this process's memory: for tests, simulations and trials.

It is deterministic: no threads, no I/O, no await inside a verb, and versions come from a counter, so
the same calls in the same order give the same answers. Nothing survives the process.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeAlias

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.objects.bounds import (
    GET_BYTES_MAX,
    check_body,
    check_listing,
    check_size,
    check_start,
    check_version,
    missing,
)
from penstock.objects.port import Body, Object, ObjectMeta, check_key, check_keys, check_range

__all__ = ["MemoryStore"]

# Named here because the verb `list` shadows the type inside the class.
_Page: TypeAlias = list[ObjectMeta]


class MemoryStore:
    """The port over a dictionary. One instance may serve several event loops: a lock guards each verb."""

    def __init__(self, name: str = "", *, clock: Clock = SYSTEM_CLOCK, get_bytes_max: int = GET_BYTES_MAX) -> None:
        self.url = f"memory://{name}"
        self._clock = clock
        self._get_bytes_max = get_bytes_max
        self._objects: dict[str, Object] = {}
        # Python orders text by code point, which is UTF-8 byte order.
        self._keys: list[str] = []
        self._writes = 0
        self._lock = threading.Lock()

    async def get(self, key: str) -> Object:
        found = self._find(key)
        check_size(self.url, found.meta, self._get_bytes_max)
        return found

    async def get_durable(self, key: str) -> Object:
        return await self.get(key)

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        found = self._find(key)
        return None if found.meta.version == version else await self.get(key)

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        return (await self.get_ranges(key, [(start, end)], version=version))[0]

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        for start, end in ranges:
            check_range(key, start, end)
        found = self._find(key)
        if version is not None:
            check_version(self.url, key, found.meta.version, version)
        for start, _ in ranges:
            check_start(key, start, found.meta.size)
        return [found.data[start:end] for start, end in ranges]

    async def head(self, key: str) -> ObjectMeta:
        return self._find(key).meta

    async def put(self, key: str, data: Body) -> ObjectMeta:
        check_key(key)
        with self._lock:
            return self._write(key, data)

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        check_key(key)
        with self._lock:
            found = self._objects.get(key)
            check_version(self.url, key, found.meta.version if found else None, version)
            return self._write(key, data)

    async def list(
        self, prefix: str = "", *, offset: str = "", page_size: int = 1000
    ) -> AsyncIterator[list[ObjectMeta]]:
        check_listing(prefix, offset, page_size)
        # Each page looks again from the last key, so that a listing never holds a copy of all keys.
        while page := self._page(prefix, offset, page_size):
            yield page
            offset = page[-1].key

    async def delete(self, key: str) -> None:
        await self.delete_many([key])

    async def delete_many(self, keys: Iterable[str]) -> None:
        doomed = check_keys(keys)
        with self._lock:
            for key in doomed:
                if self._objects.pop(key, None):
                    del self._keys[bisect_left(self._keys, key)]

    async def close(self) -> None:
        """Nothing is held open; other holders of this instance go on."""

    def _find(self, key: str) -> Object:
        found = self._objects.get(check_key(key))
        if found is None:
            raise missing(self.url, key)
        return found

    def _write(self, key: str, data: Body) -> ObjectMeta:
        self._writes += 1
        body = bytes(check_body(key, data))
        meta = ObjectMeta(key, len(body), str(self._writes), self._clock.now_ms())
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = Object(meta, body)
        return meta

    def _page(self, prefix: str, offset: str, page_size: int) -> _Page:
        with self._lock:
            first = max(bisect_left(self._keys, prefix), bisect_right(self._keys, offset))
            keys = self._keys[first : first + page_size]
            return [self._objects[key].meta for key in keys if key.startswith(prefix)]
