"""Which segment a subscriber gets next. Pure: time comes in as a number.

A segment that waits for a subscriber is ready, delayed (after a refusal, or at its wish), or in flight.
"""

from __future__ import annotations

import heapq

from penstock.ids import Entropy
from penstock.quiver.config import DeliveryOrder, SubscriberConfig

__all__ = ["Dispatch", "retry_seconds"]

_DOUBLINGS_MAX = 30


def retry_seconds(config: SubscriberConfig, attempts: int, entropy: Entropy) -> float:
    """The pause after so many refusals: it doubles up to the maximum, and jitter takes up to half of it away."""
    pause = config.retry_seconds_first * 2.0 ** min(attempts - 1, _DOUBLINGS_MAX)
    return min(pause, config.retry_seconds_max) * entropy.uniform(0.5, 1.0)


class Dispatch:
    def __init__(self, config: SubscriberConfig) -> None:
        self.config = config
        self.in_flight: set[int] = set()
        self._sign = -1 if config.order is DeliveryOrder.NEWEST_FIRST else 1
        self._ready: list[int] = []
        self._delayed: list[tuple[float, int]] = []
        # All that is ready or delayed: what was settled meanwhile is passed over when its turn comes.
        self._waiting: set[int] = set()

    def add(self, segment_seq: int) -> None:
        if segment_seq not in self._waiting and segment_seq not in self.in_flight:
            self._waiting.add(segment_seq)
            heapq.heappush(self._ready, self._sign * segment_seq)

    @property
    def backlog(self) -> int:
        """Segments that wait or are in flight."""
        return len(self._waiting) + len(self.in_flight)

    def discard(self, segment_seq: int) -> None:
        """It is settled, whoever did it."""
        self._waiting.discard(segment_seq)
        self.in_flight.discard(segment_seq)

    def take(self, now: float) -> int | None:
        """The next one in order, which is then in flight; None while there is none, or enough are in flight."""
        while self._delayed and self._delayed[0][0] <= now:
            heapq.heappush(self._ready, self._sign * heapq.heappop(self._delayed)[1])
        while self._ready and len(self.in_flight) < self.config.in_flight_max:
            segment_seq = self._sign * heapq.heappop(self._ready)
            if segment_seq in self._waiting:
                self._waiting.remove(segment_seq)
                self.in_flight.add(segment_seq)
                return segment_seq
        return None

    def delay(self, segment_seq: int, until: float) -> None:
        """Back from flight, not before `until`."""
        if segment_seq in self.in_flight:
            self.in_flight.remove(segment_seq)
            self._waiting.add(segment_seq)
            heapq.heappush(self._delayed, (until, segment_seq))

    def next_due(self) -> float | None:
        """When a delayed one becomes ready."""
        while self._delayed and self._delayed[0][1] not in self._waiting:
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None
