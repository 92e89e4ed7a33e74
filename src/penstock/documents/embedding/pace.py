"""A rate limit: so many requests and so many tokens a minute, spent evenly.

A bucket fills with time and is emptied by requests; one larger than the bucket waits for a full one and leaves a debt,
so that no request is impossible. Waiting happens on the clock's sleep, in the order of arrival.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput

__all__ = ["Pace", "RateLimit"]

_WAIT_SECONDS_MIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class RateLimit:
    """None is no limit."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        for rate in (self.requests_per_minute, self.tokens_per_minute):
            if rate is not None and rate <= 0:
                raise InvalidInput(f"a rate of {rate:g} a minute lets nothing through")


class Pace:
    """Lets requests through no faster than the limit. Cancelling a wait gives its place to the next."""

    def __init__(self, limit: RateLimit | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        limit = limit or RateLimit()
        self._clock = clock
        self._buckets = [
            _Bucket(limit.requests_per_minute, clock.monotonic()),
            _Bucket(limit.tokens_per_minute, clock.monotonic()),
        ]
        self._turn = asyncio.Lock()

    async def admit(self, tokens: int) -> None:
        """Return when a request of `tokens` may be sent."""
        async with self._turn:
            while (wait := max(bucket.wait(self._clock.monotonic()) for bucket in self._buckets)) > 0:
                await self._clock.sleep(wait)
            for bucket, amount in zip(self._buckets, (1, tokens), strict=True):
                bucket.take(amount)


class _Bucket:
    """Holds a tenth of a minute's worth: a burst after a pause is short."""

    def __init__(self, per_minute: float | None, now: float) -> None:
        self._rate = per_minute / 60 if per_minute else None
        self._size = max(1.0, per_minute / 10) if per_minute else 0.0
        self._level, self._at = self._size, now

    def wait(self, now: float) -> float:
        """Seconds until something is in the bucket."""
        if self._rate is None:
            return 0.0
        self._level = min(self._size, self._level + (now - self._at) * self._rate)
        self._at = now
        missing = 1.0 - self._level
        # A millisecond at least: a wait too short for the clock to show would be waited for ever.
        return max(_WAIT_SECONDS_MIN, missing / self._rate) if missing > 0 else 0.0

    def take(self, amount: float) -> None:
        if self._rate is not None:
            self._level -= amount
