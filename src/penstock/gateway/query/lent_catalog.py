"""A catalog that is lent over a pipe: a SQL process plans and reads through its gateway, and holds no credentials.

`LentCatalog` offers what a SQL engine asks of a catalog and of the store beneath it. Frames are those of `sql_frames`;
requests are numbered, and many may be under way. What is lent is decided by `catalog_lender`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from penstock.catalog import CatalogConfig, CatalogLayout, DataFile, Position
from penstock.errors import Closed, Corrupt, PermissionDenied
from penstock.gateway.query.sql_frames import (
    LENGTHS,
    LoanAnswer,
    LoanRequest,
    checked_lengths,
    encode_frame,
    error_of,
    read_header,
)
from penstock.undecodable import UNDECODABLE

__all__ = ["LentCatalog", "LentPin", "LentPlan", "LentState"]

_FILES: Final = msgspec.msgpack.Decoder(list[DataFile])
_NAMES: Final = msgspec.msgpack.Decoder(list[str])

T = TypeVar("T")


class LentPlan(msgspec.Struct, frozen=True):
    """The files of a plan."""

    files: list[DataFile]


class LentPin(msgspec.Struct, frozen=True):
    """A pin that the gateway made."""

    name: str


class LentState:
    """One state of the catalog, which the gateway keeps for all plans of a query."""

    def __init__(self, lent: LentCatalog, position: dict[str, int]) -> None:
        self._lent, self.position = lent, position

    async def plan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
    ) -> LentPlan:
        """The files of the tenant that the gateway asks for, whatever is named here, with all their statistics."""
        _, body = await self._lent.ask(verb="plan", start=start, end=end, table=table or "")
        return LentPlan(_decoded(_FILES, body))

    def known_plan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
    ) -> LentPlan | None:
        """Nothing of a catalog is in the memory of its borrower."""
        return None

    async def tables(self, *, tenant: str | None = None) -> list[str]:
        """Names of the tables of the tenant that the gateway asks for."""
        return _decoded(_NAMES, (await self._lent.ask(verb="tables"))[1])


def _decoded(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except UNDECODABLE as error:
        raise Corrupt("an answer of the gateway cannot be read", str(error)) from error


class LentCatalog:
    """The borrower's side, over two descriptors: a catalog, and the store in which its files lie. Make it with `open`."""

    def __init__(
        self, url: str, prefix: str, config: CatalogConfig, answers: asyncio.StreamReader, requests: int
    ) -> None:
        self.url, self.layout, self.config = url, CatalogLayout(prefix), config
        self._answers, self._requests = answers, requests
        self._waiting: dict[int, asyncio.Future[tuple[LoanAnswer, bytes]]] = {}
        self._number = 0
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, url: str, prefix: str, config: CatalogConfig, answers: int, requests: int) -> LentCatalog:
        reader = asyncio.StreamReader()
        pipe = os.fdopen(answers, "rb", buffering=0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        return cls(url, prefix, config, reader, requests)

    @property
    def store(self) -> LentCatalog:
        return self

    async def hold(self, position: Position | None = None) -> LentState:
        header, _ = await self.ask(verb="hold", as_of=position)
        return LentState(self, header.position)

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        if version is not None:
            raise PermissionDenied(f"{key[:80]!r} cannot be read by its version", "data files have one")
        return (await self.ask(verb="read", key=key, start=start, end=end))[1]

    async def pin(self, position: Position, *, seconds: float, name: str | None = None) -> LentPin:
        """Keep the state that is held; the gateway names the pin."""
        return LentPin((await self.ask(verb="pin", seconds=seconds))[0].text)

    async def unpin(self, name: str) -> None:
        await self.ask(verb="unpin", key=name)

    async def close(self) -> None:
        self._reading.cancel()

    async def ask(self, **request: Any) -> tuple[LoanAnswer, bytes]:
        """The answer to one request; the error of the gateway is raised."""
        if self._reading.done():
            raise Closed("the store is no longer lent", "its gateway has ended")
        self._number += 1
        number = self._number
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        # Far smaller than what a pipe holds, and read at once.
        _write_all(self._requests, encode_frame(LoanRequest(number=number, **request)))
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
                header = read_header(await self._answers.readexactly(head), LoanAnswer)
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


def _write_all(descriptor: int, parts: Sequence[Any]) -> None:
    data = memoryview(b"".join(bytes(part) for part in parts))
    while data:
        data = data[os.write(descriptor, data) :]
