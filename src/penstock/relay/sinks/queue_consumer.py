"""A consumer of a queue that feeds a store, without Spark: it goes on until it is told to stop, or the queue is empty.

The queue has one consumer and the store one writer: a second one of either takes over, and the first ends as `Fenced`.
Faults that may pass are waited out, with growing pauses; after each, the store's own position says where to go on.
"""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.buffer import ConsumerConfig, Runner, RunnerConfig
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import OutcomeUnknown, Unavailable
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects import ObjectStore
from penstock.observability import SILENT, Observer, names
from penstock.relay.config import RelayConfig
from penstock.relay.relay import pause_seconds
from penstock.relay.sinks.store_sink import StoreSink

__all__ = ["QueueConsumer"]


class QueueConsumer:
    """One queue and one sink. `name` labels its metrics."""

    def __init__(
        self,
        name: str,
        queue: ObjectStore,
        sink: StoreSink[Any],
        config: RelayConfig | None = None,
        consumer: ConsumerConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._name = name
        self._config = config or RelayConfig()
        limits = RunnerConfig(in_flight_bytes_max=self._config.consumer_bytes_max)
        self._runner = Runner(queue, sink, limits, consumer, clock=clock, entropy=entropy, observer=observer)
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._stopping = asyncio.Event()

    async def run(self, *, until_empty: bool = False) -> None:
        """Feed the store. Everything that was taken by the time of an error is in it."""
        failures, failing_since = 0, 0.0
        while not self._stopping.is_set():
            try:
                await self._runner.run(until_empty=until_empty)
            except (Unavailable, OutcomeUnknown) as error:
                failures += 1
                if failures == 1:
                    failing_since = self._clock.monotonic()
                    self._observer.event(names.RELAY_STALLED, subscriber=self._name, reason=str(error))
                stalled = self._clock.monotonic() - failing_since
                self._observer.count(names.RELAY_RETRIES, subscriber=self._name)
                self._observer.gauge(names.RELAY_STALLED_SECONDS, stalled, subscriber=self._name)
                await self._rest(pause_seconds(self._config, failures, self._entropy))
            else:
                break
        self._observer.gauge(names.RELAY_STALLED_SECONDS, 0.0, subscriber=self._name)

    def stop(self) -> None:
        """Let what is under way be stored, and end. From the loop's own thread."""
        self._stopping.set()
        self._runner.stop()

    async def _rest(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([sleeping, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (sleeping, stopping):
            task.cancel()
        await asyncio.wait([sleeping, stopping])
