"""The one consumer of a queue: hands batches out in order, and takes them off once they are acknowledged.

Starting takes the fence: an older consumer then fails with `Fenced` at its next read or acknowledgement,
and has changed nothing since. Acknowledge a batch only when the sink holds it durably; a sink that
stores each batch together with its sequence, and a consumer started with that sequence as `last_acked`,
give exactly-once delivery. Every call that fails leaves the consumer as it was, so it may be made again.
One consumer belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Final

from penstock.buffer.collector import Collector
from penstock.buffer.config import ConsumerConfig, DeadLetterPolicy
from penstock.buffer.consuming.cursor import Cursor, whole_number
from penstock.buffer.consuming.dead_letter import DeadLetters
from penstock.buffer.consuming.fetch import UNREADABLE, ConsumedBatch, FetchHandle
from penstock.buffer.consuming.lag import Lag, lag_of
from penstock.buffer.consuming.relief import Relief
from penstock.buffer.consuming.view import ManifestView
from penstock.buffer.format.manifest import Descriptor, Manifest
from penstock.buffer.ownership import Ownership
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed, Fenced, InvalidInput, PenstockError, StorageFull
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects import ObjectStore, StoreSpec
from penstock.observability import SILENT, Observer, names

__all__ = ["Consumer"]

_GONE: Final = "go on: it was acknowledged or set aside before"


class Consumer:
    """The read side of the queue. It starts at the first call, or explicitly with `start` or `async with`."""

    def __init__(
        self,
        store: ObjectStore,
        config: ConsumerConfig | None = None,
        last_acked: int | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._config = config or ConsumerConfig()
        # Refused before anybody is fenced.
        self._last_acked = None if last_acked is None else whole_number(last_acked, "last_acked cannot be used")
        self._clock = clock
        self._observer = observer
        self._view = ManifestView(store, self._config, clock=clock, entropy=entropy, observer=observer)
        self._relief = Relief(self._config)
        self._store = store
        self._fetcher = self.fetch_handle()
        self._dead_letters = DeadLetters(store, self._config.data_path_prefix)
        self._collector = Collector(
            store, self._config.collector, clock=clock, observer=observer, renew=self._renew_fence
        )
        self._ownership = Ownership(store, self._config.data_path_prefix, self._config.manifest_path)
        self._entropy = entropy
        self._collecting: asyncio.Task[None] | None = None
        self._cursor = Cursor(self._last_acked)
        self._started = False
        self._closed = False
        # Starting, reading ahead and acknowledging each go one at a time, and not in each other's way.
        self._starting = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._acking = asyncio.Lock()

    # Life ------------------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Take the fence, drop what was acknowledged before, start collecting; the fence. Done once."""
        async with self._starting:
            self._check_open()
            if not self._started:
                await self._start()
        assert self._view.fence is not None
        return self._view.fence

    async def close(self) -> None:
        """Write what is acknowledged, and stop. A consumer that was fenced leaves that to its successor. Idempotent.

        Stops even when that write fails: what stays in the queue is handed out again, or dropped by
        the next consumer's `last_acked`.
        """
        try:
            if self._started and not self._closed:
                await self._relieve()
        except Fenced:
            pass
        finally:
            self._closed = True
            if self._collecting is not None:
                self._collecting.cancel()
                await asyncio.wait((self._collecting,))
            await self._view.close()

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Reading ---------------------------------------------------------------------------------------------

    async def next_batch(self) -> ConsumedBatch | None:
        """The next batch, or None when the queue has no more for now. Cancelling it moves nothing."""
        await self.start()
        async with self._reading:
            while descriptors := await self._ahead(1):
                try:
                    batch = await self._fetcher.fetch(descriptors[0])
                except UNREADABLE as error:
                    await self._pass_over(descriptors[0], error)
                    continue
                self._cursor.hand_out(descriptors)
                return batch
            return None

    async def __aiter__(self) -> AsyncIterator[ConsumedBatch]:
        """Every batch in turn, those not yet produced included: looks again each `poll_seconds`, until `close`.

        Each is the caller's to acknowledge. What a call raises ends the loop, and another goes on where it ended.
        """
        while not self._closed:
            batch = await self._next_unless_closed()
            if batch is not None:
                yield batch
            elif not self._closed:
                await self._clock.sleep(self._config.poll_seconds)

    async def next_descriptors(self, max: int) -> list[Descriptor]:
        """Up to `max` entries behind those already handed out, from one read of the manifest; none is fetched.

        Each is handed out once. One that gets lost holds the acknowledgements behind it until a new
        consumer starts from the last acknowledged sequence.
        """
        if whole_number(max, "next_descriptors cannot be asked", "count") < 1:
            raise InvalidInput(f"next_descriptors({max})", "it must be above zero", "ask for at least one")
        await self.start()
        async with self._reading:
            descriptors = await self._ahead(max)
            self._cursor.hand_out(descriptors)
            return descriptors

    def fetch_handle(self, spec: StoreSpec | None = None) -> FetchHandle:
        """Fetches on its own, in any task or process, also while this consumer is busy.

        In another process it opens the store by `spec`: by default its URL, with credentials from the
        environment there.
        """
        return FetchHandle(
            self._store,
            spec or StoreSpec(self._store.url),
            decoded_bytes_max=self._config.decoded_bytes_max,
            decoded_records_max=self._config.decoded_records_max,
            clock=self._clock,
            observer=self._observer,
        )

    async def fetch(self, descriptor: Descriptor) -> ConsumedBatch:
        """Fetch one batch that was handed out as a descriptor."""
        return await self._fetcher.fetch(descriptor)

    # Acknowledging ---------------------------------------------------------------------------------------

    async def ack(self, sequence: int) -> None:
        """Acknowledge the next batch, which the sink now holds durably.

        Exactly the next: the first one is the first that was handed out. Some calls write the manifest (after
        `dequeue_every_acks` batches that are `dequeue_percent` of it, and after `dequeue_every_seconds`); the
        others only compare the fence. What was not written when the process dies is handed out again, unless
        the next consumer starts with the sink's position as `last_acked`.
        """
        sequence = whole_number(sequence, "cannot acknowledge")
        await self.start()
        async with self._acking:
            await self._acknowledge(sequence, self._cursor.plan_ack(sequence), at_once=False)

    async def ack_through(self, sequence: int, *, at_once: bool = True) -> None:
        """Acknowledge everything through `sequence` in one write; not `at_once`, in the one that `ack` would make.

        It cannot know what was processed: pass the highest sequence with nothing unprocessed below
        it (`Watermark` keeps it). On any error nothing has changed, and the call may be made again.
        """
        sequence = whole_number(sequence, "cannot acknowledge through")
        await self.start()
        async with self._acking:
            await self._acknowledge(sequence, self._cursor.plan_ack_through(sequence), at_once=at_once)

    async def flush(self) -> None:
        """Take everything acknowledged off the queue now."""
        await self.start()
        await self._relieve()

    async def set_aside(self, descriptor: Descriptor, error: PenstockError) -> None:
        """Record an unreadable batch as a dead letter and go on without it, if the policy says so; else raise `error`.

        Takes exactly what this consumer handed out and has not acknowledged; it stays in the queue as long
        as something before it does. The record is durable before the entry leaves. Sequences behind it can
        then be acknowledged as if it had been.
        """
        self._check_may_pass_over(error)
        await self.start()
        async with self._acking:
            await self._check_queued(descriptor)
            self._cursor.check_pending(descriptor.sequence)
            await self._bury(descriptor, error)

    # Looking ---------------------------------------------------------------------------------------------

    async def len(self) -> int:
        """Batches queued and not acknowledged."""
        return (await self.lag()).batches

    async def lag(self) -> Lag:
        """How far behind this consumer is, in batches and in seconds."""
        await self.start()
        return lag_of(await self._read(), self._cursor.done_through, self._clock.now_ms())

    @property
    def last_acked(self) -> int | None:
        """The last sequence acknowledged here, or the one this consumer was started with."""
        return self._cursor.last_acked

    @property
    def conflict_rate(self) -> float:
        """Writes of the manifest that lost to another writer, per write, so far."""
        return self._view.conflict_rate

    # What serves the above ------------------------------------------------------------------------------

    async def _next_unless_closed(self) -> ConsumedBatch | None:
        try:
            return await self.next_batch()
        except Closed:
            # Closed while it waited; a store that was closed under it is another matter.
            if not self._closed:
                raise
            return None

    async def _start(self) -> None:
        if self._view.fence is None:
            # Looked at before anybody is fenced: a position that fits another queue must harm nobody.
            await self._check_position(await self._view.read())
            await self._claim()
            await self._view.acquire_fence()
        await self._check_position(await self._read())
        if self._last_acked is not None:
            await self._dequeue(self._last_acked)
        # Closed while this waited: nobody would end the collector that starts here.
        self._check_open()
        self._started = True
        self._observer.event(names.BUFFER_STARTED, fence=self._view.fence, last_acked=self._last_acked)
        if self._config.collect:
            self._collecting = asyncio.create_task(self._collector.run(), name="buffer collector")

    async def _claim(self) -> None:
        """Mark the folder as this queue's, or refuse another's. A full disk can still be drained without a marker."""
        with suppress(StorageFull):
            await self._ownership.claim(
                deadline_seconds=self._config.manifest_deadline_seconds,
                clock=self._clock,
                entropy=self._entropy,
                observer=self._observer,
            )

    async def _renew_fence(self) -> None:
        """Change the manifest for the collector: what it finds unneeded afterwards can no longer be enqueued."""
        # Not beside a dequeue, which compares the fence it wrote under with the one held.
        async with self._acking:
            self._check_open()
            await self._claim()
            await self._view.renew_fence()

    async def _check_position(self, manifest: Manifest) -> None:
        """Refuse a `last_acked` that this queue cannot have given, or behind which batches are gone."""
        if self._last_acked is None:
            return
        if not -1 < self._last_acked < manifest.next_sequence:
            raise InvalidInput(
                f"last_acked = {self._last_acked} is not a position of this queue",
                f"the next sequence of {self._config.manifest_path!r} is {manifest.next_sequence}",
                "check the path of the queue; nothing was changed",
            )
        first, end = self._last_acked + 1, manifest.first_sequence
        if first < end and len(await self._dead_letters.sequences(first, end)) < end - first:
            raise InvalidInput(
                f"batches behind last_acked = {self._last_acked} are gone",
                f"the queue begins at {end}: another consumer acknowledged them",
                "read the sink's position again; if it is right, start without last_acked to accept the loss",
            )

    async def _pass_over(self, descriptor: Descriptor, error: PenstockError) -> None:
        """Set aside the next batch to hand out, before it is."""
        self._check_may_pass_over(error)
        async with self._acking:
            await self._check_queued(descriptor)
            await self._bury(descriptor, error)

    def _check_may_pass_over(self, error: PenstockError) -> None:
        if self._config.dead_letter is DeadLetterPolicy.HALT or not isinstance(error, UNREADABLE):
            raise error

    async def _check_queued(self, descriptor: Descriptor) -> None:
        """Still queued, and still ours to judge: a successor may have consumed and collected it long ago."""
        manifest = await self._read()
        if manifest.location_of(descriptor.sequence) != descriptor.location:
            raise InvalidInput(f"batch {descriptor.sequence} cannot be set aside", "it is not in the queue", _GONE)

    async def _bury(self, descriptor: Descriptor, error: PenstockError) -> None:
        letter = await self._dead_letters.record(descriptor, error, self._clock.now_ms())
        through = self._cursor.plan_set_aside(descriptor.sequence)
        now = self._clock.monotonic()
        if through is None:
            # It leaves with those before it.
            self._cursor.set_aside(descriptor.sequence)
        elif self._relief.is_fair_share(self._view.seen, through) or self._relief.is_overdue(now):
            await self._dequeue(through)
            self._cursor.set_aside(descriptor.sequence)
            self._written(through)
        else:
            # A long queue of nothing but dead letters must not be copied for each of them.
            self._cursor.set_aside(descriptor.sequence)
            self._relief.put_off(now)
        self._observer.count(names.BUFFER_DEAD_LETTERS, reason=letter.reason)
        self._observer.event(
            names.BUFFER_DEAD_LETTER, sequence=letter.sequence, location=letter.location, error=letter.error
        )

    async def _acknowledge(self, sequence: int, through: int, *, at_once: bool) -> None:
        """Write first, or see that the fence is still held, and move afterwards."""
        acks, now = self._cursor.unwritten_acks + self._cursor.count_through(sequence), self._clock.monotonic()
        if at_once or self._relief.is_due(self._view.seen, through, acks, now):
            await self._dequeue(through)
            self._count_acked(sequence)
            self._written(through)
        else:
            self._check_open()
            await self._view.check_fence()
            self._count_acked(sequence)
            self._relief.put_off(now)
        self._tell_lag(self._view.seen)

    async def _ahead(self, limit: int) -> list[Descriptor]:
        self._check_open()
        found = await self._view.ahead(self._cursor.handed_out, limit)
        self._tell_lag(self._view.seen)
        if not found and self._relief.is_overdue(self._clock.monotonic()):
            # Nothing more may come to acknowledge for a long time.
            await self._relieve()
        return found

    async def _read(self) -> Manifest:
        self._check_open()
        manifest = await self._view.read()
        self._tell_lag(manifest)
        return manifest

    def _tell_lag(self, manifest: Manifest) -> None:
        lag = lag_of(manifest, self._cursor.done_through, self._clock.now_ms())
        self._observer.gauge(names.BUFFER_QUEUE_BATCHES, len(manifest))
        self._observer.gauge(names.BUFFER_LAG_BATCHES, lag.batches)
        self._observer.gauge(names.BUFFER_LAG_SECONDS, lag.seconds)

    async def _relieve(self) -> None:
        async with self._acking:
            through = self._cursor.to_dequeue
            if through is not None:
                await self._dequeue(through)
                self._written(through)

    async def _dequeue(self, through: int) -> None:
        self._check_open()
        await self._view.dequeue(through)

    def _written(self, through: int) -> None:
        self._cursor.written(through)
        self._relief.written()

    def _count_acked(self, sequence: int) -> None:
        self._observer.count(names.BUFFER_ACKS, self._cursor.acked(sequence))

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the consumer is closed", "close() was called", "make a new one")
