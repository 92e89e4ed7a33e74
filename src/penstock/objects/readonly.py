"""A store that reads and never writes: for followers, queries and credentials that may not write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from penstock.errors import PermissionDenied
from penstock.objects.port import Body, Object, ObjectMeta, ObjectStore, check_keys

__all__ = ["DirectRead", "ReadOnlyStore", "direct_read"]

DirectRead: TypeAlias = Callable[[str, int, int], bytes]


@runtime_checkable
class _ReadsNow(Protocol):
    """A store on this machine, which any thread may read."""

    def read_now(self, key: str, start: int, end: int) -> bytes: ...


def direct_read(store: object) -> DirectRead | None:
    """A function that reads a range of an object without the store's event loop; None for a remote store."""
    if isinstance(store, ReadOnlyStore):
        return direct_read(store.inner)
    return store.read_now if isinstance(store, _ReadsNow) else None


class ReadOnlyStore:
    """The port over another store, its writes refused before anything is sent."""

    def __init__(self, store: ObjectStore) -> None:
        self.url = store.url
        self.inner = store

    async def get(self, key: str) -> Object:
        return await self.inner.get(key)

    async def get_durable(self, key: str) -> Object:
        # Making sure may take a write.
        raise self._refusal(key)

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        return await self.inner.get_if_changed(key, version=version)

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        return await self.inner.get_range(key, start, end, version=version)

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        return await self.inner.get_ranges(key, ranges, version=version)

    async def head(self, key: str) -> ObjectMeta:
        return await self.inner.head(key)

    async def put(self, key: str, data: Body) -> ObjectMeta:
        raise self._refusal(key)

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        raise self._refusal(key)

    def list(self, prefix: str = "", *, offset: str = "", page_size: int = 1000) -> AsyncIterator[list[ObjectMeta]]:
        return self.inner.list(prefix, offset=offset, page_size=page_size)

    async def delete(self, key: str) -> None:
        raise self._refusal(key)

    async def delete_many(self, keys: Iterable[str]) -> None:
        raise self._refusal(", ".join(check_keys(keys)))

    async def close(self) -> None:
        await self.inner.close()

    def _refusal(self, key: str) -> PermissionDenied:
        return PermissionDenied(
            f"object {key[:80]!r} in {self.url} was not changed",
            "the store was opened read-only",
            "open it without read_only",
        )
