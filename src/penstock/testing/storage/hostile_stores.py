"""Stores that break one promise of the port each, named after their sin, and one that only watches.

`FaultyStore` fails honestly; these lie. They show that code refuses such stores, or that a test would
notice: a checker that stays green over a `CarelessStore` checks nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from penstock.errors import Conflict, NotFound, Unavailable
from penstock.objects import Body, Object, ObjectMeta, ObjectStore

__all__ = ["CarelessStore", "PassingStore", "StutteringStore", "UnreachableStore", "WitnessStore"]

_Page: TypeAlias = list[ObjectMeta]


class PassingStore:
    """Hands every verb on to another store."""

    def __init__(self, inner: ObjectStore) -> None:
        self.url = inner.url
        self._inner = inner

    async def get(self, key: str) -> Object:
        return await self._inner.get(key)

    async def get_durable(self, key: str) -> Object:
        return await self._inner.get_durable(key)

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        return await self._inner.get_if_changed(key, version=version)

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        return await self._inner.get_range(key, start, end, version=version)

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        return await self._inner.get_ranges(key, ranges, version=version)

    async def head(self, key: str) -> ObjectMeta:
        return await self._inner.head(key)

    async def put(self, key: str, data: Body) -> ObjectMeta:
        return await self._inner.put(key, data)

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        return await self._inner.put_if(key, data, version=version)

    async def delete(self, key: str) -> None:
        await self._inner.delete(key)

    async def delete_many(self, keys: Iterable[str]) -> None:
        await self._inner.delete_many(keys)

    async def close(self) -> None:
        await self._inner.close()

    # Last, because the verb shadows the type for every annotation below it.
    def list(self, prefix: str = "", *, offset: str = "", page_size: int = 1000) -> AsyncIterator[_Page]:
        return self._inner.list(prefix, offset=offset, page_size=page_size)


class CarelessStore(PassingStore):
    """Ignores the condition of a conditional write, as several servers that speak S3 do."""

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        return await self._inner.put(key, data)


class StutteringStore(PassingStore):
    """Sends a landed conditional write again, and reports the repeat: a false `Conflict`.

    This is a client library that retries behind the caller's back. `stutters` says which writes.
    """

    def __init__(self, inner: ObjectStore, stutters: Callable[[], bool] = lambda: True) -> None:
        super().__init__(inner)
        self._stutters = stutters

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        landed = await self._inner.put_if(key, data, version=version)
        if self._stutters():
            raise Conflict(f"put_if {key!r} in {self.url}", "the object changed (by this very write)")
        return landed


class UnreachableStore:
    """Answers nothing, ever: every verb raises `Unavailable`."""

    url = "unreachable://"

    async def _refuse(self, *_: Any, **__: Any) -> Any:
        raise Unavailable(f"{self.url} did not answer", "the server is down", "check the address")

    get = get_durable = get_if_changed = get_range = get_ranges = _refuse
    head = put = put_if = delete = delete_many = _refuse

    async def list(self, prefix: str = "", *, offset: str = "", page_size: int = 1000) -> AsyncIterator[_Page]:
        await self._refuse()
        yield []

    async def close(self) -> None:
        """Nothing is open."""


class WitnessStore(PassingStore):
    """Keeps no sin: it remembers every body each key ever had, in the order in which they landed.

    Put it below a `FaultyStore` and above the real one, where nothing is in doubt.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._bodies: dict[str, list[bytes | None]] = {}

    def history(self, key: str) -> Sequence[bytes | None]:
        """Oldest first; None where the object was deleted."""
        return tuple(self._bodies.get(key, ()))

    async def put(self, key: str, data: Body) -> ObjectMeta:
        return self._note(key, bytes(data), await self._inner.put(key, data))

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        return self._note(key, bytes(data), await self._inner.put_if(key, data, version=version))

    async def delete(self, key: str) -> None:
        await self.delete_many([key])

    async def delete_many(self, keys: Iterable[str]) -> None:
        present = [key for key in keys if await self._has(key)]
        await self._inner.delete_many(present)
        for key in present:
            self._bodies.setdefault(key, []).append(None)

    async def _has(self, key: str) -> bool:
        try:
            await self._inner.head(key)
        except NotFound:
            return False
        return True

    def _note(self, key: str, body: bytes, meta: ObjectMeta) -> ObjectMeta:
        self._bodies.setdefault(key, []).append(body)
        return meta
