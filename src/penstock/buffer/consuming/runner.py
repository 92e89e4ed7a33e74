"""A pipelined consumer, ready to run: one owner of the queue, several fetches at once, one sink fed in order.

```
next_descriptors ─▶ fetch ─▶┐
   (the owner)      fetch ─▶├─▶ runs of neighbours, in order ─▶ sink.store ─▶ ack_through
                    fetch ─▶┘        bounded in bytes           (durable)     (the contiguous mark)
```
Fetches end in any order; the sink gets neighbours that are ready together, in the order of the queue, and
stores them with the last sequence in one transaction. Every run begins behind `sink.position()`, so a run
that ended in an error or a crash is simply followed by another, and each record is in the sink once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from penstock.buffer.config import ConsumerConfig, RunnerConfig
from penstock.buffer.consuming.consumer import Consumer
from penstock.buffer.consuming.fetch import UNREADABLE, ConsumedBatch, FetchHandle
from penstock.buffer.consuming.in_flight import InFlight, Slot
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput, PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects import ObjectStore
from penstock.observability import SILENT, Observer

__all__ = ["Runner", "Sink"]


class Sink(Protocol):
    """Where batches go. Both calls are the caller's to make durable; neither is made while the other is under way."""

    async def position(self) -> int | None:
        """The last sequence stored; None when nothing was, or when the sink keeps none (then: at least once)."""
        ...

    async def store(self, batches: Sequence[ConsumedBatch]) -> None:
        """Store all records and the last batch's sequence, in one transaction; durable when this returns.

        A batch at or below the position is ignored: a predecessor may have stored it after it was asked.
        """
        ...


class Runner:
    """Feeds one sink from one queue. `run` may be called again after it ended, however it ended."""

    def __init__(
        self,
        store: ObjectStore,
        sink: Sink,
        config: RunnerConfig | None = None,
        consumer_config: ConsumerConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._store = store
        self._sink = sink
        self._config = config or RunnerConfig()
        self._consumer_config = consumer_config or ConsumerConfig()
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._running = False
        self._stopped = asyncio.Event()

    async def run(self, *, until_empty: bool = False) -> None:
        """Take the fence and feed the sink until `stop` is called, or once the queue is empty.

        Raises whatever a fetch, the sink or the queue raised: `Fenced` when another consumer has started,
        and the batch's own error when it cannot be read and the policy is to halt. Everything that was
        stored by then is in the sink, and another run goes on behind it.
        """
        if self._running:
            raise InvalidInput("the runner is already running", "a queue has one runner at a time", "make another one")
        self._running = True
        try:
            if not self._stopped.is_set():
                await self._run(until_empty)
        finally:
            self._running = False
            self._stopped.clear()

    def stop(self) -> None:
        """Read no further; `run` returns once what is under way is stored and acknowledged.

        Between runs, or before a run has taken its first step, it stops the next one: that returns at once.
        """
        self._stopped.set()

    async def _run(self, until_empty: bool) -> None:
        position = await self._sink.position()
        async with Consumer(
            self._store,
            self._consumer_config,
            position,
            clock=self._clock,
            entropy=self._entropy,
            observer=self._observer,
        ) as consumer:
            flights = InFlight(self._config.fetch_concurrency, self._config.in_flight_bytes_max)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._read_ahead(consumer, flights, group, until_empty))
                    group.create_task(self._deliver(consumer, flights))
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None
            await consumer.flush()

    # The owner: reads ahead, as far as there is room ----------------------------------------------------

    async def _read_ahead(
        self, consumer: Consumer, flights: InFlight, group: asyncio.TaskGroup, until_empty: bool
    ) -> None:
        handle = consumer.fetch_handle()
        while not self._stopped.is_set():
            descriptors = await consumer.next_descriptors(self._config.read_ahead_batches)
            if not descriptors and until_empty:
                break
            if not descriptors:
                await self._pause()
            for descriptor in descriptors:
                slot = await flights.admit(descriptor)
                if self._stopped.is_set():
                    # Handed out and not acknowledged: the next run gets it.
                    flights.withdraw(slot)
                    break
                group.create_task(self._fetch(handle, flights, slot))
        await flights.end()

    async def _fetch(self, handle: FetchHandle, flights: InFlight, slot: Slot) -> None:
        try:
            found: ConsumedBatch | PenstockError = await handle.fetch(slot.descriptor)
        except UNREADABLE as error:
            # Judged when its turn comes: what lies before it must be stored first.
            found = error
        await flights.fetched(slot, found)

    async def _pause(self) -> None:
        """Until something may have been produced, or `stop` is called."""
        sleep = asyncio.create_task(self._clock.sleep(self._consumer_config.poll_seconds))
        stop = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait((sleep, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleep, stop):
                task.cancel()
            # Not awaited one by one: that would take a cancellation of this task for theirs.
            await asyncio.wait((sleep, stop))

    # The sink's side: in order ---------------------------------------------------------------------------

    async def _deliver(self, consumer: Consumer, flights: InFlight) -> None:
        while slots := await flights.ready():
            for is_batch, several in groupby(slots, key=lambda slot: isinstance(slot.found, ConsumedBatch)):
                if is_batch:
                    await self._store_run(consumer, [slot.found for slot in several])  # type: ignore[misc]
                else:
                    for slot in several:
                        assert isinstance(slot.found, PenstockError)
                        await consumer.set_aside(slot.descriptor, slot.found)
            await flights.release(len(slots))

    async def _store_run(self, consumer: Consumer, batches: list[ConsumedBatch]) -> None:
        await self._sink.store(batches)
        await consumer.ack_through(batches[-1].sequence, at_once=False)
