"""One sync for many waiters: a wait is over when a sync that began after it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["SyncGroup"]


class SyncGroup:
    """Runs one sync at a time; those who ask during one share the next.

    ```
    waiters   a b        c d e
    syncs      [===1===][===2===]        a, b are covered by 1; c, d, e, who came during 1, by 2
    ```
    """

    def __init__(self, sync: Callable[[], Awaitable[None]]) -> None:
        self._sync = sync
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Return after a sync that started no earlier than this call; raise what it raised."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
            # When every waiter was cancelled nobody asks for the outcome, and that is no fault.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        # A waiter that gives up must not take the others' sync with it.
        await asyncio.shield(self._next)

    async def _run(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        # From here on a newcomer's write may come too late for this sync.
        self._running, self._next = self._next, None
        await self._sync()
