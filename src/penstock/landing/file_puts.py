"""Data files on their way to the store: a bounded number at once, and bounded bytes in memory.

A round of many tenants has a small file for each. Put one after the other, each would wait for the whole answer of the
store before the next one is even encoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from penstock.telemetry import EncodedFile

__all__ = ["FilePuts"]


class FilePuts:
    """Belongs to one event loop. All files are on the store when its block ends; the first failure is raised."""

    def __init__(self, put: Callable[[EncodedFile], Awaitable[None]], at_once: int, bytes_max: int) -> None:
        self._put, self._at_once, self._bytes_max = put, at_once, bytes_max
        # Tasks that are under way, with the bytes that each holds.
        self._under_way: dict[asyncio.Future[None], int] = {}

    async def __aenter__(self) -> FilePuts:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            while self._under_way and error is None:
                await self._some_done()
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def add(self, file: EncodedFile) -> None:
        """Begin to put a file, as soon as there is room; a file above the bound goes alone."""
        size = len(file.body)
        while self._under_way and not self._has_room(size):
            await self._some_done()
        self._under_way[asyncio.ensure_future(self._put(file))] = size

    def _has_room(self, size: int) -> bool:
        return len(self._under_way) < self._at_once and sum(self._under_way.values()) + size <= self._bytes_max

    async def _some_done(self) -> None:
        done, _ = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del self._under_way[task]
        for task in done:
            task.result()
