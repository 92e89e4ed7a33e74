"""A rate limit: so many requests and so many tokens a minute, spent evenly.

An allowance fills with time and is emptied by requests; a request larger than it waits for a full one and leaves a debt,
so that no request is impossible. `Allowance` is the rule without waiting; `Pace` waits on the clock's sleep, in the
order of arrival. Several tasks that share a limit each get a part of it, and whoever starts them keeps the account.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput

__all__ = ["Allowance", "Pace", "RateLimit"]

_WAIT_SECONDS_MIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class RateLimit:
    """None is no limit."""

    # Maximum requests per minute to the endpoint. None is no limit.
    requests_per_minute: float | None = None
    # Maximum tokens per minute sent to the endpoint. None is no limit.
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        for rate in (self.requests_per_minute, self.tokens_per_minute):
            if rate is not None and not 0 < rate < math.inf:
                raise InvalidInput(
                    f"a rate of {rate:g} a minute is not possible",
                    "nothing could be sent, or it is no limit",
                    "give a number above 0, or omit it for no limit",
                )

    def shared(self, tasks: int) -> RateLimit:
        """The part of one of so many."""
        parts = (rate and rate / tasks for rate in (self.requests_per_minute, self.tokens_per_minute))
        return RateLimit(*parts)


class Allowance:
    """What may be spent by now. Time is told by the caller, and never goes back."""

    def __init__(self, limit: RateLimit, now: float, *, full: bool = True) -> None:
        self._buckets = [_Bucket(rate, now, full) for rate in (limit.requests_per_minute, limit.tokens_per_minute)]

    def wait(self, now: float) -> float:
        """Seconds until something may be spent."""
        return max(bucket.wait(now) for bucket in self._buckets)

    def spend(self, requests: int, tokens: int) -> None:
        """Take all of it, also what is not there yet."""
        for bucket, amount in zip(self._buckets, (requests, tokens), strict=True):
            bucket.take(amount)


class Pace:
    """Lets requests through no faster than the limit. Cancelling a wait gives its place to the next."""

    def __init__(self, limit: RateLimit | None = None, *, full: bool = True, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._allowance = Allowance(limit or RateLimit(), clock.monotonic(), full=full)
        self._turn = asyncio.Lock()

    async def admit(self, tokens: int) -> None:
        """Return when a request of `tokens` may be sent."""
        async with self._turn:
            while (wait := self._allowance.wait(self._clock.monotonic())) > 0:
                await self._clock.sleep(wait)
            self._allowance.spend(1, tokens)


class _Bucket:
    """Holds a tenth of a minute's worth: a burst after a pause is short. One that is not full has one to give."""

    def __init__(self, per_minute: float | None, now: float, full: bool) -> None:
        self._rate = per_minute / 60 if per_minute else None
        self._size = max(1.0, per_minute / 10) if per_minute else 0.0
        self._level, self._at = self._size if full else min(1.0, self._size), now

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
