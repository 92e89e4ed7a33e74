"""A store that is lent over a pipe: a SQL process reads through its gateway, and holds no credentials and no network.

The borrower asks for objects below one prefix and gets their bytes, and no other verb exists. Keeping a snapshot from
vacuum takes a write, which the lender does itself: the borrower names the position and the time, and nothing else. Frames
are those of `sql_frames`; requests are numbered, and many may be under way.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, Protocol

import msgspec

from penstock.errors import Closed, InvalidInput, PenstockError, PermissionDenied
from penstock.gateway.query.sql_frames import (
    LENGTHS,
    checked_lengths,
    encode_frame,
    error_of,
    named_error,
    read_header,
)
from penstock.objects import Body, Object, ObjectMeta, ObjectStore

__all__ = ["LentStore", "SnapshotPins", "StoreLender"]

# Requests of one borrower that are answered at once; others wait in the pipe.
_AT_ONCE_MAX: Final = 32
_PAGE_MAX: Final = 1000
# A pin of a query that died ends by itself.
_PIN_SECONDS_MAX: Final = 24 * 3600.0


class StoreRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One verb of a borrower."""

    number: int
    verb: str
    key: str = ""
    ranges: list[tuple[int, int]] = []
    version: str | None = None
    offset: str = ""
    page_size: int = _PAGE_MAX
    position: dict[str, int] = {}
    seconds: float = 0.0


class StoreAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it. The body of the frame holds the ranges, one after the other."""

    number: int
    error: str = ""
    what: str = ""
    why: str = ""
    remedy: str = ""
    metas: list[tuple[str, int, str, int]] = []
    sizes: list[int] = []
    text: str = ""


class SnapshotPins(Protocol):
    """What keeps a position of a catalog; a catalog does."""

    async def pin(self, position: Any, *, seconds: float, name: str | None = None) -> Any: ...

    async def unpin(self, name: str) -> None: ...


_Outcome = tuple[StoreAnswer, bytes]


class StoreLender:
    """The gateway's side: answers for objects of `store` below `prefix`, until the pipe ends."""

    def __init__(self, store: ObjectStore, prefix: str, pins: Callable[[], Awaitable[SnapshotPins]]) -> None:
        self._store, self._prefix, self._pins = store, prefix.rstrip("/") + "/", pins
        self._verbs: dict[str, Callable[[StoreRequest], Awaitable[_Outcome]]] = {
            "get": self._get,
            "get_if_changed": self._get_if_changed,
            "get_ranges": self._get_ranges,
            "head": self._head,
            "list": self._list,
            "pin": self._pin,
            "unpin": self._unpin,
        }

    async def serve(self, requests: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        room, turn = asyncio.Semaphore(_AT_ONCE_MAX), asyncio.Lock()
        under_way: set[asyncio.Task[None]] = set()
        # Of this borrower: it ends no other's.
        pinned: set[str] = set()

        async def answer(request: StoreRequest) -> None:
            try:
                header, body = await self._answered(request, pinned)
                async with turn:
                    answers.writelines([bytes(part) for part in encode_frame(header, body)])
                    with suppress(ConnectionError):
                        await answers.drain()
            finally:
                room.release()

        try:
            while (request := await _next_request(requests)) is not None:
                await room.acquire()
                task = asyncio.ensure_future(answer(request))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        finally:
            for task in under_way:
                task.cancel()
            answers.close()

    async def _answered(self, request: StoreRequest, pinned: set[str]) -> _Outcome:
        try:
            verb = self._verbs.get(request.verb)
            if verb is None:
                raise PermissionDenied(f"{request.verb[:40]!r} is not lent", "a query only reads")
            if request.verb == "unpin" and request.key not in pinned:
                raise PermissionDenied("the pin is not this query's")
            header, body = await verb(request)
            if request.verb == "pin":
                pinned.add(header.text)
            return msgspec.structs.replace(header, number=request.number), body
        except PenstockError as error:
            return StoreAnswer(number=request.number, **named_error(error)), b""

    def _lent(self, key: str) -> str:
        if not key.startswith(self._prefix) or ".." in key.split("/"):
            raise PermissionDenied(f"the object {key[:120]!r} is not lent", f"only those below {self._prefix} are")
        return key

    async def _get(self, request: StoreRequest) -> _Outcome:
        return _told(await self._store.get(self._lent(request.key)))

    async def _get_if_changed(self, request: StoreRequest) -> _Outcome:
        if request.version is None:
            raise InvalidInput("the version is missing")
        found = await self._store.get_if_changed(self._lent(request.key), version=request.version)
        return _told(found) if found else (StoreAnswer(number=0), b"")

    async def _get_ranges(self, request: StoreRequest) -> _Outcome:
        parts = await self._store.get_ranges(self._lent(request.key), request.ranges, version=request.version)
        return StoreAnswer(number=0, sizes=[len(part) for part in parts]), b"".join(parts)

    async def _head(self, request: StoreRequest) -> _Outcome:
        return StoreAnswer(number=0, metas=[_packed(await self._store.head(self._lent(request.key)))]), b""

    async def _list(self, request: StoreRequest) -> _Outcome:
        prefix, size = self._lent(request.key), max(1, min(request.page_size, _PAGE_MAX))
        async for page in self._store.list(prefix, offset=request.offset, page_size=size):
            return StoreAnswer(number=0, metas=[_packed(meta) for meta in page]), b""
        return StoreAnswer(number=0), b""

    async def _pin(self, request: StoreRequest) -> _Outcome:
        seconds = min(request.seconds, _PIN_SECONDS_MAX)
        made = await (await self._pins()).pin(request.position, seconds=seconds)
        return StoreAnswer(number=0, text=made.name), b""

    async def _unpin(self, request: StoreRequest) -> _Outcome:
        await (await self._pins()).unpin(request.key)
        return StoreAnswer(number=0), b""


class LentStore:
    """The borrower's side: the port for reading, over two descriptors. Make it with `open`."""

    def __init__(self, url: str, answers: asyncio.StreamReader, requests: int) -> None:
        self.url = url
        self._answers, self._requests = answers, requests
        self._waiting: dict[int, asyncio.Future[tuple[StoreAnswer, bytes]]] = {}
        self._number = 0
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, url: str, answers: int, requests: int) -> LentStore:
        reader = asyncio.StreamReader()
        pipe = os.fdopen(answers, "rb", buffering=0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        return cls(url, reader, requests)

    async def get(self, key: str) -> Object:
        header, body = await self._ask(verb="get", key=key)
        return Object(_meta(header.metas[0]), body)

    async def get_durable(self, key: str) -> Object:
        self._refuse(key)

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        header, body = await self._ask(verb="get_if_changed", key=key, version=version)
        return Object(_meta(header.metas[0]), body) if header.metas else None

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        return (await self.get_ranges(key, [(start, end)], version=version))[0]

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        if not ranges:
            return []
        header, body = await self._ask(verb="get_ranges", key=key, ranges=list(ranges), version=version)
        found, at = [], 0
        for size in header.sizes:
            found.append(body[at : at + size])
            at += size
        return found

    async def head(self, key: str) -> ObjectMeta:
        return _meta((await self._ask(verb="head", key=key))[0].metas[0])

    async def list(
        self, prefix: str = "", *, offset: str = "", page_size: int = _PAGE_MAX
    ) -> AsyncIterator[list[ObjectMeta]]:
        while True:
            header, _ = await self._ask(verb="list", key=prefix, offset=offset, page_size=page_size)
            if not header.metas:
                return
            page = [_meta(one) for one in header.metas]
            yield page
            offset = page[-1].key

    async def pin(self, position: dict[str, int], seconds: float) -> str:
        return (await self._ask(verb="pin", position=position, seconds=seconds))[0].text

    async def unpin(self, name: str) -> None:
        await self._ask(verb="unpin", key=name)

    async def put(self, key: str, data: Body) -> ObjectMeta:
        self._refuse(key)

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        self._refuse(key)

    async def delete(self, key: str) -> None:
        self._refuse(key)

    async def delete_many(self, keys: Iterable[str]) -> None:
        self._refuse(", ".join(keys))

    async def close(self) -> None:
        self._reading.cancel()

    def _refuse(self, key: str) -> NoReturn:
        raise PermissionDenied(f"{key[:80]!r} cannot be written", "the store is lent for reading")

    async def _ask(self, **request: Any) -> tuple[StoreAnswer, bytes]:
        if self._reading.done():
            raise Closed("the store is no longer lent", "its gateway has ended")
        self._number += 1
        number = self._number
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        # Far smaller than what a pipe holds, and read at once.
        _write_all(self._requests, encode_frame(StoreRequest(number=number, **request)))
        try:
            header, body = await waiting
        finally:
            self._waiting.pop(number, None)
        if header.error:
            raise error_of(header.error, header.what, header.why, header.remedy)
        return header, body

    async def _read(self) -> None:
        try:
            while True:
                head, size = checked_lengths(await self._answers.readexactly(LENGTHS.size))
                header = read_header(await self._answers.readexactly(head), StoreAnswer)
                body = await self._answers.readexactly(size)
                waiting = self._waiting.get(header.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result((header, body))
        except asyncio.IncompleteReadError:
            pass
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(Closed("the store is no longer lent", "its gateway has ended"))


async def _next_request(requests: asyncio.StreamReader) -> StoreRequest | None:
    try:
        head, _ = checked_lengths(await requests.readexactly(LENGTHS.size), 0)
        return read_header(await requests.readexactly(head), StoreRequest)
    except (asyncio.IncompleteReadError, ConnectionError, PenstockError):
        # Whoever sends what is no request is lent nothing more.
        return None


def _told(found: Object) -> _Outcome:
    return StoreAnswer(number=0, metas=[_packed(found.meta)]), found.data


def _packed(meta: ObjectMeta) -> tuple[str, int, str, int]:
    return meta.key, meta.size, meta.version, meta.modified_ms


def _meta(packed: tuple[str, int, str, int]) -> ObjectMeta:
    return ObjectMeta(*packed)


def _write_all(descriptor: int, parts: Sequence[Any]) -> None:
    data = memoryview(b"".join(bytes(part) for part in parts))
    while data:
        data = data[os.write(descriptor, data) :]
