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
from functools import partial
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


def _as_it_is(answers: Any) -> Any:
    return answers


@dataclass(slots=True)
class _Waiter(Generic[Item]):
    item: Item
    size: int
    done: asyncio.Future[Any]


class GroupCommit(Generic[Item, Answer]):
    """`commit` makes a group durable, or raises for all of its items; `conclude` makes of what it returns an answer for each.

    An answer that is an exception is raised for its item alone. `commit` also gets the group before, if that is under
    way still: groups are begun in order, `overlap` of them at a time at most, and each ends behind the one before it.
    Groups are concluded in that order. A future that `commit` returns is taken as it is; a coroutine becomes a task.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Item], asyncio.Future[Any] | None], Awaitable[Any]],
        *,
        conclude: Callable[[Any], Sequence[Answer | Exception]] = _as_it_is,
        clock: Clock,
        interval: float = 0.0,
        one_by_one: bool = False,
        group_bytes_max: int = GROUP_BYTES_MAX,
        overlap: int = 1,
    ) -> None:
        self._commit = commit
        self._conclude = conclude
        self._clock = clock
        self._interval = interval
        self._one_by_one = one_by_one
        self._overlap = overlap
        # An item came, or a group ended.
        self._changed = WakeUp(clock)
        self._under_way: list[asyncio.Future[Any]] = []
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
        if self._task is not None:
            self._changed.notify()
        elif len(self._waiting) == 1:
            # In the next turn of the loop: whoever was ready in this one is here by then.
            asyncio.get_running_loop().call_soon(self._start)
        return await done

    async def drain(self) -> None:
        """Wait until nothing is waiting or under way."""
        self._start()
        while self._task is not None or self._under_way:
            await asyncio.wait([self._task] if self._task is not None else self._under_way)

    async def close(self) -> None:
        self._closed = True
        await self.drain()

    def _start(self) -> None:
        """Begin what can be begun now. Only what has to wait needs a task: a lone caller is spared its price."""
        if self._task is None:
            while self._waiting and not self._must_wait:
                self._begin(*self._take())
            if self._waiting:
                self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                if len(self._under_way) == self._overlap:
                    await self._changed.wait()
                else:
                    await self._gather()
                    self._begin(*self._take())
        finally:
            self._task = None

    @property
    def _must_wait(self) -> bool:
        return len(self._under_way) == self._overlap or self._has_few

    @property
    def _has_few(self) -> bool:
        """Whether more are likely to come back than wait now."""
        return (
            not self._one_by_one
            and self._interval > 0
            and len(self._waiting) < self._last_count // 2
            and self.waiting_bytes - self._under_way_bytes < self._group_bytes
        )

    async def _gather(self) -> None:
        """Wait for those who are likely to come back."""
        deadline = Deadline(self._clock, min(self._interval, self._last_seconds))
        while self._has_few and not deadline.passed:
            await self._changed.wait(deadline.remaining)

    def _take(self) -> tuple[list[_Waiter[Item]], int]:
        """The next group, and its bytes."""
        size_max = self._group_bytes
        group = [self._waiting.popleft()]
        size = group[0].size
        while self._waiting and not self._one_by_one and size + self._waiting[0].size <= size_max:
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group, size

    @property
    def _group_bytes(self) -> int:
        """What a group may have: one is written while the callers of the other come back."""
        if self._overlap == 1:
            return self._group_bytes_max
        return min(self._group_bytes_max, max(_HALF_BYTES_MIN, self.waiting_bytes // self._overlap))

    def _begin(self, group: list[_Waiter[Item]], size: int) -> None:
        before = self._under_way[-1] if self._under_way else None
        started = self._clock.monotonic()
        writing: asyncio.Future[Any]
        try:
            writing = asyncio.ensure_future(self._commit([waiter.item for waiter in group], before))
        except Exception as error:  # noqa: BLE001  whatever it is, it is the callers' answer
            writing = asyncio.get_running_loop().create_future()
            writing.set_exception(error)
        self._under_way.append(writing)
        self._under_way_bytes += size
        writing.add_done_callback(partial(self._end, group, size, started))

    def _end(self, group: list[_Waiter[Item]], size: int, started: float, writing: asyncio.Future[Any]) -> None:
        self.waiting_bytes -= size
        self._under_way_bytes -= size
        self._last_count, self._last_seconds = len(group), self._clock.monotonic() - started
        self._under_way.remove(writing)
        try:
            answers: Sequence[Any] = self._conclude(writing.result())
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  see above
            answers = [error] * len(group)
        for waiter, answer in zip(group, answers, strict=True):
            if waiter.done.done():
                continue
            if isinstance(answer, BaseException):
                waiter.done.set_exception(answer)
            else:
                waiter.done.set_result(answer)
        self._changed.notify()
