"""The doors of one instance: disk, time, randomness, threads and metrics; and a signal that tasks wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.clock import Clock
from penstock.disk import Disk
from penstock.ids import Entropy
from penstock.loops import Offload
from penstock.observability import Observer

__all__ = ["Doors", "InTurn", "WakeUp"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Doors:
    disk: Disk
    clock: Clock
    entropy: Entropy
    offload: Offload
    observer: Observer
    # The label of this instance's metrics.
    instance: str
    # For the log: calls run one at a time, in the order in which they were made. None: `offload` does it, in turn.
    log_lane: Offload | None = None


class InTurn:
    """Blocking calls one at a time, in the order in which they were made."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._turn = asyncio.Lock()

    async def __call__(self, work: Callable[..., T], /, *args: Any) -> T:
        async with self._turn:
            return await self._offload(work, *args)


class WakeUp:
    """Something may have changed: whoever waits looks again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # In the order in which they came: a simulation wakes them alike in every run.
        self._waiting: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        if not self._waiting:
            return
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting = {}

    async def wait(self, seconds: float | None = None) -> None:
        """Until the next `notify`, or so long. Whoever calls this looks at the state first, without an await between."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            if seconds is None:
                await waiter
            elif seconds > 0:
                await self._race(waiter, seconds)
        finally:
            self._waiting.pop(waiter, None)

    async def _race(self, waiter: asyncio.Future[None], seconds: float) -> None:
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait([waiter, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
