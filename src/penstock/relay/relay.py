"""A relay: takes a quiver's segments one by one, oldest first, and brings each to one target until it is there.

```
next ─▶ outlet.send ──delivered──▶ ack ─▶ next
            │ refused for good ──▶ dead letter ─▶ next
            ▼ a fault that may pass
          pause (doubles, with jitter, or as long as the target said), then the same segment again
```
It never gives up by itself: hours without its target cost one attempt a minute, and no memory. A segment is
acknowledged only once the outlet says that it is durable on the other side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.observability import SILENT, Observer, names
from penstock.quiver import Delivery, Quiver, SubscriberConfig
from penstock.relay.config import RelayConfig
from penstock.relay.outlets.outlet import Delivered, NotYet, Outlet, RetryLater, SendAnswer, Undeliverable

__all__ = ["Relay", "pause_seconds"]

T = TypeVar("T")

# One at a time: the order in which segments are sent is the order of their numbers.
_SERVED: Final = SubscriberConfig(in_flight_max=1)
_DOUBLINGS_MAX: Final = 30


def pause_seconds(config: RelayConfig, failures: int, entropy: Entropy) -> float:
    """The pause after so many faults in a row."""
    longest = config.retry_seconds_first * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
    return min(longest, config.retry_seconds_max) * entropy.uniform(0.5, 1.0)


class Relay:
    """One subscriber of one quiver, and its outlet, which the caller closes."""

    def __init__(
        self,
        store: Quiver,
        subscriber: str,
        outlet: Outlet,
        config: RelayConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self.subscriber = subscriber
        self._store = store
        self._outlet = outlet
        self._config = config or RelayConfig()
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._stopping = asyncio.Event()
        self._failures = 0
        self._failing_since = 0.0

    async def run(self, *, until_empty: bool = False) -> None:
        """Carry segments until `stop`, or until none waits any more."""
        await self._store.register(self.subscriber, _SERVED)
        while not self._stopping.is_set() and not (until_empty and not self._store.state.lag(self.subscriber)):
            delivery = await self._unless_stopped(self._store.next(self.subscriber))
            if delivery is not None:
                await self._carry(delivery)

    def stop(self) -> None:
        """Let what is being sent come to an answer, and end. From the loop's own thread."""
        self._stopping.set()

    def _waits(self, segment_seq: int) -> bool:
        return self.subscriber in self._store.state.outstanding.get(segment_seq, ())

    async def _carry(self, delivery: Delivery) -> None:
        """Until the segment is settled, or has to wait for its turn."""
        began = self._clock.monotonic()
        while isinstance(answer := await self._send(delivery), RetryLater):
            if not self._waits(delivery.segment_seq):
                # It could not be read, and the quiver has set it aside: nobody waits for it any more.
                self._count(delivery, "lost")
                return
            await self._rest(delivery, answer)
            if self._stopping.is_set():
                await delivery.defer(0.0)
                return
        self._tell_resumed()
        try:
            await self._settle(delivery, answer)
        except PenstockError as error:
            # The acknowledgement may not be written: the quiver offers the segment again, and the outlet knows it.
            await self._rest(delivery, RetryLater(str(error)))
            return
        self._observer.observe(names.RELAY_SEGMENT_SECONDS, self._clock.monotonic() - began, subscriber=self.subscriber)

    async def _send(self, delivery: Delivery) -> SendAnswer:
        try:
            return await self._outlet.send(delivery)
        except PenstockError as error:
            return RetryLater(str(error))

    async def _settle(self, delivery: Delivery, answer: SendAnswer) -> None:
        if isinstance(answer, NotYet):
            await delivery.defer(self._config.retry_seconds_first)
            return
        if isinstance(answer, Undeliverable):
            await delivery.nack(answer.reason, permanent=True)
            self._count(delivery, "refused")
        elif isinstance(answer, Delivered):
            await delivery.ack()
            self._count(delivery, "sent" if answer.is_new else "found")
        await self._outlet.settled(delivery)

    def _count(self, delivery: Delivery, outcome: str) -> None:
        self._observer.count(names.RELAY_SEGMENTS, subscriber=self.subscriber, outcome=outcome)
        self._observer.count(names.RELAY_ROWS, delivery.meta.rows, subscriber=self.subscriber, outcome=outcome)
        self._observer.count(names.RELAY_BYTES, delivery.meta.bytes, subscriber=self.subscriber, outcome=outcome)

    async def _rest(self, delivery: Delivery, answer: RetryLater) -> None:
        self._failures += 1
        if self._failures == 1:
            self._failing_since = self._clock.monotonic()
            self._observer.event(
                names.RELAY_STALLED, subscriber=self.subscriber, segment=delivery.segment_seq, reason=answer.reason
            )
        self._observer.count(names.RELAY_RETRIES, subscriber=self.subscriber)
        stalled = self._clock.monotonic() - self._failing_since
        self._observer.gauge(names.RELAY_STALLED_SECONDS, stalled, subscriber=self.subscriber)
        own = pause_seconds(self._config, self._failures, self._entropy)
        pause = own if answer.after_seconds is None else max(own, answer.after_seconds)
        await self._unless_stopped(self._clock.sleep(pause))

    def _tell_resumed(self) -> None:
        if self._failures:
            seconds = self._clock.monotonic() - self._failing_since
            self._observer.event(
                names.RELAY_RESUMED, subscriber=self.subscriber, attempts=self._failures, seconds=round(seconds, 3)
            )
            self._observer.gauge(names.RELAY_STALLED_SECONDS, 0.0, subscriber=self.subscriber)
        self._failures = 0

    async def _unless_stopped(self, work: Awaitable[T]) -> T | None:
        """Wait for this, but no longer than until `stop`."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        return None if task.cancelled() else task.result()
