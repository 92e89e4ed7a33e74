"""Group commit: whoever comes while the disk is busy shares the next write.

```
callers    a        b c d        e
writes     [==a==][==b c d==][==e==]        a free disk takes what there is
```
One write is under way at a time, so records become durable in the order in which they came. When the last group had
many callers, the next one waits for about as many, for as long as that write took and never longer than the interval:
callers that were answered together come back one by one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock.clock import Clock, Deadline
from penstock.errors import Closed
from penstock.quiver.doors import WakeUp

__all__ = ["GroupCommit"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")
# Bounds the memory of one write; a single larger item goes alone.
GROUP_BYTES_MAX: Final = 8 << 20


@dataclass(slots=True)
class _Waiter(Generic[Item]):
    item: Item
    size: int
    done: asyncio.Future[Any]


class GroupCommit(Generic[Item, Answer]):
    """`commit` makes a group durable and returns one answer for each of its items, or raises for all of them.

    An answer that is an exception is raised for its item alone.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        *,
        clock: Clock,
        interval: float = 0.0,
        one_by_one: bool = False,
        group_bytes_max: int = GROUP_BYTES_MAX,
    ) -> None:
        self._commit = commit
        self._clock = clock
        self._interval = interval
        self._one_by_one = one_by_one
        self._arrived = WakeUp(clock)
        # Of the last group: how many shared it, and how long it took.
        self._last_count = 0
        self._last_seconds = 0.0
        self._group_bytes_max = group_bytes_max
        self._waiting: deque[_Waiter[Item]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.waiting_bytes = 0

    async def add(self, item: Item, size: int) -> Answer:
        """Return once the item's group is durable. A caller that is cancelled takes nothing back."""
        if self._closed:
            raise Closed("the store is closed", "close() was called", "open it again")
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiter(item, size, done))
        self.waiting_bytes += size
        self._arrived.notify()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await done

    async def drain(self) -> None:
        """Wait until nothing is waiting or under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        self._closed = True
        await self.drain()

    async def _run(self) -> None:
        try:
            # Begun in the next turn of the loop: whoever was ready in this one is here already.
            while self._waiting:
                await self._gather()
                started = self._clock.monotonic()
                group = self._take()
                await self._write(group)
                self._last_count, self._last_seconds = len(group), self._clock.monotonic() - started
        finally:
            self._task = None

    async def _gather(self) -> None:
        """Wait for those who are likely to come back."""
        if self._one_by_one or not self._interval:
            return
        deadline = Deadline(self._clock, min(self._interval, self._last_seconds))
        while len(self._waiting) < self._last_count // 2 and not deadline.passed:
            await self._arrived.wait(deadline.remaining)

    def _take(self) -> list[_Waiter[Item]]:
        group = [self._waiting.popleft()]
        size = group[0].size
        while self._waiting and not self._one_by_one and size + self._waiting[0].size <= self._group_bytes_max:
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group

    async def _write(self, group: list[_Waiter[Item]]) -> None:
        try:
            answers = await self._commit([waiter.item for waiter in group])
        except Exception as error:  # noqa: BLE001  whatever it is, it is the callers' answer
            for waiter in group:
                if not waiter.done.done():
                    waiter.done.set_exception(error)
        else:
            for waiter, answer in zip(group, answers, strict=True):
                if waiter.done.done():
                    continue
                if isinstance(answer, Exception):
                    waiter.done.set_exception(answer)
                else:
                    waiter.done.set_result(answer)
        finally:
            self.waiting_bytes -= sum(waiter.size for waiter in group)
