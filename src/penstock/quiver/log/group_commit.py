"""Group commit: whoever comes while the disk is busy shares the next write.

```
callers    a        b c d        e
writes     [==a==][==b c d==][==e==]        a free disk takes what there is
```
Records become durable in the order in which they came. Where `overlap` is 2, a group is begun while the one before it is
written: it is laid out meanwhile, so that the disk never waits for it. When the last group had many callers, the next
one waits for about as many, for as long as that write took and never longer than the interval: callers that were
answered together come back one by one.
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
# Where groups overlap, each takes half of what is there, and a smaller one is not worth it: the disk is as slow then.
_HALF_BYTES_MIN: Final = 1 << 20


@dataclass(slots=True)
class _Waiter(Generic[Item]):
    item: Item
    size: int
    done: asyncio.Future[Any]


class GroupCommit(Generic[Item, Answer]):
    """`commit` makes a group durable and returns one answer for each of its items, or raises for all of them.

    An answer that is an exception is raised for its item alone. `commit` also gets the group before, if that is under
    way still: groups are begun in order, `overlap` of them at a time at most, and each ends behind the one before it.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Item], asyncio.Task[None] | None], Awaitable[Sequence[Answer | Exception]]],
        *,
        clock: Clock,
        interval: float = 0.0,
        one_by_one: bool = False,
        group_bytes_max: int = GROUP_BYTES_MAX,
        overlap: int = 1,
    ) -> None:
        self._commit = commit
        self._clock = clock
        self._interval = interval
        self._one_by_one = one_by_one
        self._overlap = overlap
        # An item came, or a group ended.
        self._changed = WakeUp(clock)
        self._under_way: list[asyncio.Task[None]] = []
        # Of the last group: how many shared it, and how long it took.
        self._last_count = 0
        self._last_seconds = 0.0
        self._group_bytes_max = group_bytes_max
        self._waiting: deque[_Waiter[Item]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        # Of all items that have no answer yet, and of those among them that are in a group.
        self.waiting_bytes = 0
        self._under_way_bytes = 0

    async def add(self, item: Item, size: int) -> Answer:
        """Return once the item's group is durable. A caller that is cancelled takes nothing back."""
        if self._closed:
            raise Closed("the store is closed", "close() was called", "open it again")
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiter(item, size, done))
        self.waiting_bytes += size
        self._changed.notify()
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
            while self._waiting or self._under_way:
                if not self._waiting or len(self._under_way) == self._overlap:
                    await self._changed.wait()
                    continue
                await self._gather()
                group = self._take()
                before = self._under_way[-1] if self._under_way else None
                if self._overlap == 1:
                    await self._write(group, None)
                else:
                    self._under_way.append(asyncio.create_task(self._write(group, before)))
        finally:
            self._task = None

    async def _gather(self) -> None:
        """Wait for those who are likely to come back."""
        if self._one_by_one or not self._interval:
            return
        deadline = Deadline(self._clock, min(self._interval, self._last_seconds))
        while (
            len(self._waiting) < self._last_count // 2
            and self.waiting_bytes - self._under_way_bytes < self._group_bytes
            and not deadline.passed
        ):
            await self._changed.wait(deadline.remaining)

    def _take(self) -> list[_Waiter[Item]]:
        size_max = self._group_bytes
        group = [self._waiting.popleft()]
        size = group[0].size
        while self._waiting and not self._one_by_one and size + self._waiting[0].size <= size_max:
            group.append(self._waiting.popleft())
            size += group[-1].size
        self._under_way_bytes += size
        return group

    @property
    def _group_bytes(self) -> int:
        """What a group may have: one is written while the callers of the other come back."""
        if self._overlap == 1:
            return self._group_bytes_max
        return min(self._group_bytes_max, max(_HALF_BYTES_MIN, self.waiting_bytes // self._overlap))

    async def _write(self, group: list[_Waiter[Item]], before: asyncio.Task[None] | None) -> None:
        started = self._clock.monotonic()
        try:
            answers = await self._commit([waiter.item for waiter in group], before)
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
            size = sum([waiter.size for waiter in group])
            self.waiting_bytes -= size
            self._under_way_bytes -= size
            self._last_count, self._last_seconds = len(group), self._clock.monotonic() - started
            if self._overlap > 1:
                self._under_way = [task for task in self._under_way if task is not asyncio.current_task()]
                self._changed.notify()
