"""Requests of one kind that arrive while another is decoded are decoded and stored together.

Making columns costs much the same for one point as for a thousand. Protobuf messages of one type, one after the other,
are one message with the repeated fields of all, so that many small requests become one decode, one bundle and one
sync. Each is checked first to be whole at its outermost level: one that is cut off could otherwise swallow the next.
When anything of a group cannot be taken, its requests are decoded one by one, and each gets its own answer. A request that
comes alone does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from penstock.errors import InvalidInput, PenstockError
from penstock.telemetry import DecodedRows

__all__ = ["Coalescer", "Divided", "is_whole"]

# Of one group: larger ones gain nothing.
_GROUP_BYTES_MAX: Final = 2 << 20
_GROUP_REQUESTS_MAX: Final = 256
_LENGTH_DELIMITED: Final = 2
_VARINT_BYTES_MAX: Final = 10

# Decodes a message off the loop, and stores its rows; returns once they are durable. It is told whether the message is
# that of a group, which it may ask to divide.
Take = Callable[[bytes, bool], Awaitable[DecodedRows]]


class Divided(PenstockError):
    """A group is to be taken apart, so that each request hears of its own rows. Nothing of it was stored."""


@dataclass(slots=True)
class _Waiting:
    body: bytes
    answer: asyncio.Future[DecodedRows]


@dataclass(slots=True)
class _Line:
    """Requests of one kind; `working` while somebody takes groups from it."""

    waiting: list[_Waiting] = field(default_factory=list)
    working: asyncio.Task[None] | None = None


class Coalescer:
    """Lines by key: requests of different keys are never put together."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}

    async def take(self, key: Hashable, body: bytes, take: Take) -> DecodedRows:
        """What `take` gives for this body; of a group that succeeded, the rows are the group's."""
        if not is_whole(body) or len(body) > _GROUP_BYTES_MAX:
            return await take(body, False)
        line = self._lines.setdefault(key, _Line())
        waiting = _Waiting(body, asyncio.get_running_loop().create_future())
        line.waiting.append(waiting)
        if line.working is None:
            line.working = asyncio.ensure_future(self._work(key, line, take))
        return await waiting.answer

    async def _work(self, key: Hashable, line: _Line, take: Take) -> None:
        while line.waiting:
            group = _first_group(line.waiting)
            del line.waiting[: len(group)]
            await _answered(group, take)
        line.working = None
        self._lines.pop(key, None)


def _first_group(waiting: list[_Waiting]) -> list[_Waiting]:
    size, count = 0, 0
    for one in waiting[:_GROUP_REQUESTS_MAX]:
        size += len(one.body)
        if count and size > _GROUP_BYTES_MAX:
            break
        count += 1
    return waiting[:count]


async def _answered(group: list[_Waiting], take: Take) -> None:
    """Answer every request of a group, whatever happens."""
    try:
        found = await take(b"".join(one.body for one in group), len(group) > 1)
    except (InvalidInput, Divided) as error:
        # Nothing of it was stored: each finds out for itself.
        if len(group) > 1:
            await asyncio.gather(*[_answered([one], take) for one in group])
        else:
            _fail(group, error)
    except BaseException as error:
        # What a store that failed has kept is not known: nobody's rows are stored again here.
        _fail(group, error)
        if not isinstance(error, Exception):
            raise
    else:
        for one in group:
            _tell(one, found)


def _fail(group: list[_Waiting], error: BaseException) -> None:
    for one in group:
        if not one.answer.done():
            one.answer.set_exception(error)


def _tell(one: _Waiting, found: DecodedRows) -> None:
    # Whoever went away is not told.
    if not one.answer.done():
        one.answer.set_result(found)


def is_whole(body: bytes) -> bool:
    """Whether a message is nothing but length-delimited fields that end where the message ends."""
    at, end = 0, len(body)
    while at < end:
        if body[at] & 7 != _LENGTH_DELIMITED or body[at] >= 0x80:
            return False
        size, at = _varint(body, at + 1)
        if size < 0:
            return False
        at += size
    return at == end and end > 0


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; -1 when there is none."""
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        if at + place >= len(body):
            break
        byte = body[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    return -1, at
