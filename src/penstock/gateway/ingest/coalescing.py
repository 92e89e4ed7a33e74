"""Requests of one kind that arrive while another is decoded are decoded and stored together.

Making columns costs much the same for one point as for a thousand, so that many small requests become one decode, one
bundle and one sync. When anything of a group cannot be taken, its requests are decoded one by one, and each gets its own
answer. A request that comes alone does not wait.

While a group is being synced, the next one gathers. Once that is large enough to be worth a decode of its own it is
decoded meanwhile, so that processor and disk work at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput, PenstockError
from penstock.telemetry import DecodedRows

__all__ = ["Coalescer", "Divided"]

# Of one group: larger ones gain nothing.
_GROUP_BYTES_MAX: Final = 2 << 20
_GROUP_REQUESTS_MAX: Final = 256
# So many bytes do not wait until the group before them is synced.
_AHEAD_BYTES_MIN: Final = 256 << 10
# Senders that were just answered send again: so long the next group waits for them, if the last one was of several.
# Decoding it takes several times as long.
_GATHER_SECONDS: Final = 0.001
# Groups of one line that are decoded or synced at once.
_GROUPS_AHEAD_MAX: Final = 3

# Decodes messages off the loop, and stores their rows; returns once they are durable. Several are a group, which it may
# ask to divide.
Take = Callable[[Sequence[bytes]], Awaitable[DecodedRows]]


class Divided(PenstockError):
    """A group is to be taken apart, so that each request hears of its own rows. Nothing of it was stored."""


@dataclass(slots=True)
class _Waiting:
    body: bytes
    answer: asyncio.Future[DecodedRows]


@dataclass(slots=True)
class _Line:
    """Requests of one kind, and the groups of them that are being taken."""

    waiting: list[_Waiting] = field(default_factory=list)
    waiting_bytes: int = 0
    last_count: int = 1
    groups: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def may_go_on(self) -> bool:
        if not self.waiting or len(self.groups) >= _GROUPS_AHEAD_MAX:
            return False
        return not self.groups or self.waiting_bytes >= _AHEAD_BYTES_MIN

    def next_group(self) -> list[_Waiting]:
        """As many of those that wait, in their order, as may go together."""
        size, count = 0, 0
        for one in self.waiting[:_GROUP_REQUESTS_MAX]:
            if count and size + len(one.body) > _GROUP_BYTES_MAX:
                break
            size += len(one.body)
            count += 1
        group = self.waiting[:count]
        del self.waiting[:count]
        self.waiting_bytes -= size
        self.last_count = count
        return group


class Coalescer:
    """Lines by key: requests of different keys are never put together. A key is a kind of request of one tenant."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._clock = clock

    async def take(self, key: Hashable, body: bytes, take: Take) -> DecodedRows:
        """What `take` gives for this body; of a group that succeeded, the rows are the group's."""
        line = self._lines.setdefault(key, _Line())
        waiting = _Waiting(body, asyncio.get_running_loop().create_future())
        line.waiting.append(waiting)
        line.waiting_bytes += len(body)
        self._go_on(line, take)
        return await waiting.answer

    def _go_on(self, line: _Line, take: Take) -> None:
        if line.may_go_on:
            line.groups.add(asyncio.ensure_future(self._work(line, take)))

    async def _work(self, line: _Line, take: Take) -> None:
        # Begun in the next turn of the loop: what came with the request that began it goes with it.
        try:
            # Another group may have taken all that waited.
            if line.waiting and line.last_count > 1 and line.waiting_bytes < _AHEAD_BYTES_MIN:
                await self._clock.sleep(_GATHER_SECONDS)
            group = line.next_group()
            if group:
                await _answered(group, take)
        finally:
            task = asyncio.current_task()
            assert task is not None
            line.groups.discard(task)
            self._go_on(line, take)


async def _answered(group: list[_Waiting], take: Take) -> None:
    """Answer every request of a group, whatever happens."""
    try:
        found = await take([one.body for one in group])
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
