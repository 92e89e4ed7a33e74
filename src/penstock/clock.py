"""The only door to time. Rooms take a `Clock` and never import `time` or call `asyncio.sleep`.

That one rule lets a test own time: under `penstock.testing` the same code runs on a manual clock or
on a simulated event loop, where an hour of retries passes in microseconds and in a repeatable order.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from penstock.errors import DeadlineExceeded

__all__ = ["SYSTEM_CLOCK", "Clock", "Deadline", "SystemClock"]


class Clock(Protocol):
    """Wall time for stamps, monotonic time for durations, and the only sleep."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC. May jump; never used to measure a duration."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; zero yields to other tasks once."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


class Deadline:
    """A point in monotonic time by which something must be done."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds
        self._at = clock.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._at - self._clock.monotonic())

    @property
    def passed(self) -> bool:
        return self.remaining == 0.0

    def check(self, what: str, why: str = "", remedy: str = "") -> None:
        """Raise `DeadlineExceeded` once the time is up."""
        if self.passed:
            raise DeadlineExceeded(what, why or f"not done within {self.seconds:g} s", remedy)
