"""Two clocks that a test owns: one moved by hand, one moved by the simulated loop.

Neither ever waits for real. `ManualClock` serves tests that run on an ordinary asyncio loop, or on none,
and say themselves when time passes; `SimulatedClock` follows the virtual time of the running loop.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, Final

from penstock.errors import DeadlineExceeded, InvalidInput

__all__ = ["START_MS", "ManualClock", "SimulatedClock"]

# 2024-01-01T00:00:00Z in ms: a real date, so that a stamp taken for a duration shows at once.
START_MS: Final = 1_704_067_200_000

# How often a woken task may yield before the next sleeper is due: deep chains of awaits need tens.
_SETTLING_YIELDS: Final = 64

# Yields granted to tasks on their way into a sleep before the test is told that they never arrived.
_ARRIVAL_YIELDS: Final = 10_000


class ManualClock:
    """Time stands still until `advance` or `run_for` moves it. For one event loop; not shared between threads."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The count keeps sleepers with one due time in the order in which they fell asleep.
        self._count += 1
        heapq.heappush(self._sleepers, (self._elapsed + seconds, self._count, woken))
        await woken

    @property
    def sleeping(self) -> int:
        """How many tasks are asleep."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move time in one jump. All sleepers now due are released, the earliest first.

        They run at the caller's next await, and see the time after the jump, as after a stalled machine.
        """
        self._move_to(self._elapsed + _forward(seconds))

    async def run_for(self, seconds: float) -> None:
        """Move time sleeper by sleeper: each wakes at its own moment, and what it then sleeps counts too."""
        end = self._elapsed + _forward(seconds)
        await _settle()
        while (due := self._next_due()) is not None and due <= end:
            self._move_to(due)
            await _settle()
        self._move_to(end)
        await _settle()

    async def until_sleeping(self, count: int = 1) -> None:
        """Yield to other tasks until `count` of them are asleep."""
        for _ in range(_ARRIVAL_YIELDS):
            if self.sleeping >= count:
                return
            await asyncio.sleep(0)
        raise DeadlineExceeded(
            f"{count} tasks were to fall asleep on the manual clock, and {self.sleeping} did",
            "the others wait for something else, or were never started",
        )

    def _move_to(self, moment: float) -> None:
        self._elapsed = max(self._elapsed, moment)
        while (due := self._next_due()) is not None and due <= self._elapsed:
            heapq.heappop(self._sleepers)[2].set_result(None)

    def _next_due(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None


class SimulatedClock:
    """The time of whichever loop is running; `skew_ms` makes one process's wall clock wrong, as they are."""

    def __init__(self, start_ms: int = START_MS, *, skew_ms: int = 0) -> None:
        self._origin_ms = start_ms + skew_ms

    def now_ms(self) -> int:
        return self._origin_ms + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    # Not a coroutine function: simulations sleep so much that the extra frame would show.
    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return asyncio.sleep(seconds)


def _forward(seconds: float) -> float:
    if seconds < 0:
        raise InvalidInput(f"the clock cannot advance by {seconds} s", "monotonic time never goes back")
    return seconds


async def _settle() -> None:
    for _ in range(_SETTLING_YIELDS):
        await asyncio.sleep(0)
