"""A notice in the store that an index is being rebuilt: a job that follows steps aside for it, and comes back.

The fence alone keeps writes right. The notice only tells whom a fenced job has made way for and whether that one still
works: whoever rebuilds renews it every few seconds, and a notice that nobody renews is that of a dead process. No clock
of another machine is believed: a watcher counts the time that it has seen no renewal. Lies in `indexing/rebuild`, a
register (docs/format/register.md) with a JSON payload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corrupt, NotFound
from penstock.objects import ObjectStore, Register, Stamped, StampedFormat, open_store
from penstock.undecodable import UNDECODABLE

__all__ = ["RENEW_SECONDS", "SILENT_SECONDS_MAX", "Notice", "NoticeBoard", "Watch", "read_notice"]

_KEY: Final = "indexing/rebuild"
# Often enough that one renewal may be lost, seldom enough that a store does not count it.
RENEW_SECONDS: Final = 5.0
# Six renewals: a process that is merely slow is not taken for dead.
SILENT_SECONDS_MAX: Final = 30.0


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last rebuild: which it is, how often it was renewed, and whether it is over."""

    number: int = 0
    renewals: int = 0
    over: bool = True
    # Which process of which machine, as far as that can be told.
    process: str = ""


# Made here and not at first use: msgspec crashes when two threads describe one type to it at the same time.
_DECODER: Final = msgspec.json.Decoder(Notice)


class NoticeBoard:
    """The notice of one store. Belongs to one event loop; an asynchronous context manager."""

    def __init__(self, store: ObjectStore, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._register: Register[Stamped[Notice]] = Register(store, _KEY, StampedFormat(_Codec()), clock=clock)

    @classmethod
    async def open(cls, url: str, options: Mapping[str, Any] | None = None) -> Self:
        return cls(await open_store(url, probe=False, **(options or {})))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._register.close()
        await self._store.close()

    async def read(self) -> Notice:
        return (await self._register.read()).payload

    async def announce(self, process: str) -> Notice:
        """A new rebuild begins."""
        return await self._changed(lambda notice: Notice(notice.number + 1, 0, over=False, process=process))

    async def renew(self, number: int) -> Notice:
        """This rebuild still works, unless another one has begun since."""
        return await self._changed(
            lambda notice: (
                msgspec.structs.replace(notice, renewals=notice.renewals + 1) if notice.number == number else notice
            )
        )

    async def end(self, number: int) -> Notice:
        """This rebuild is over, or given up for dead."""
        return await self._changed(
            lambda notice: msgspec.structs.replace(notice, over=True) if notice.number == number else notice
        )

    async def _changed(self, change: Callable[[Notice], Notice]) -> Notice:
        return (await self._register.update(lambda value: value.map(change))).payload


async def read_notice(url: str, options: Mapping[str, Any] | None = None) -> Notice:
    """The notice of a store that may not be there, without writing to it."""
    try:
        store = await open_store(url, read_only=True, **(options or {}))
    except NotFound:
        return Notice()
    async with NoticeBoard(store) as board:
        return await board.read()


class Watch:
    """Decides from successive looks at a notice whether its rebuild still works. Pure."""

    def __init__(self) -> None:
        self._seen: Notice | None = None
        self._since = 0.0

    def works(self, notice: Notice, now: float, is_gone: Callable[[str], bool] = lambda _: False) -> bool:
        """`now` in monotonic seconds; `is_gone` knows of processes of this machine that have ended."""
        if notice.over or is_gone(notice.process):
            return False
        if notice != self._seen:
            self._seen, self._since = notice, now
        return now - self._since < SILENT_SECONDS_MAX


class _Codec:
    def empty(self) -> Notice:
        return Notice()

    def encode(self, payload: Notice) -> bytes:
        return msgspec.json.encode(payload)

    def decode(self, data: bytes) -> Notice:
        try:
            return _DECODER.decode(data)
        except UNDECODABLE as error:
            raise Corrupt("the notice of a rebuild cannot be read", str(error), f"remove {_KEY}") from error
