"""The one consumer of a queue: hands batches out in order, and takes them off once they are acknowledged.

Starting takes the fence: an older consumer then fails with `Fenced` at its next read or acknowledgement,
and has changed nothing since. Acknowledge a batch only when the sink holds it durably; a sink that
stores each batch together with its sequence, and a consumer started with that sequence as `last_acked`,
give exactly-once delivery. Every call that fails leaves the consumer as it was, so it may be made again.
One consumer belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from operator import index
from types import TracebackType
from typing import Final

from penstock.buffer.collector import Collector
from penstock.buffer.config import ConsumerConfig, DeadLetterPolicy
from penstock.buffer.cursor import Cursor
from penstock.buffer.dead_letter import DeadLetters
from penstock.buffer.fetch import UNREADABLE, ConsumedBatch, FetchHandle
from penstock.buffer.lag import Lag, lag_of
from penstock.buffer.manifest import Descriptor, Manifest
from penstock.buffer.ownership import Ownership
from penstock.buffer.queue import Dequeue, manifest_register
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
        self._last_acked = _checked_position(last_acked)
        self._clock = clock
        self._observer = observer
        self._register = manifest_register(
            store,
            self._config.manifest_path,
            role="consumer",
            deadline_seconds=self._config.manifest_deadline_seconds,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
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
        self._fenced = False
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
        assert self._register.fence is not None
        return self._register.fence

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
            await self._register.close()

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
                    await self.set_aside(descriptors[0], error)
                    continue
                self._cursor.hand_out(descriptors)
                return batch
            return None

    async def next_descriptors(self, max: int) -> list[Descriptor]:
        """Up to `max` entries behind those already handed out, from one read of the manifest; none is fetched.

        Each is handed out once. One that gets lost holds the acknowledgements behind it until a new
        consumer starts from the last acknowledged sequence.
        """
        if max < 1:
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

        Exactly the next: the first one is the first that was handed out. Every hundredth call
        (`dequeue_every_acks`) writes the manifest, the others read it, so a fence shows at once.
        """
        await self.start()
        async with self._acking:
            through = self._cursor.plan_ack(sequence)
            if self._cursor.unwritten_acks + 1 >= self._config.dequeue_every_acks:
                await self._dequeue(through)
                self._count_acked(sequence)
                self._cursor.written(through)
            else:
                await self._read()
                self._count_acked(sequence)

    async def ack_through(self, sequence: int) -> None:
        """Acknowledge everything through `sequence` in one write.

        It cannot know what was processed: pass the highest sequence with nothing unprocessed below
        it (`Watermark` keeps it). On any error nothing has changed, and the call may be made again.
        """
        await self.start()
        async with self._acking:
            through = self._cursor.plan_ack_through(sequence)
            await self._dequeue(through)
            self._count_acked(sequence)
            self._cursor.written(through)

    async def flush(self) -> None:
        """Take everything acknowledged off the queue now."""
        await self.start()
        await self._relieve()

    async def set_aside(self, descriptor: Descriptor, error: PenstockError) -> None:
        """Record an unreadable batch as a dead letter and go on without it, if the policy says so; else raise `error`.

        The record is durable before the entry leaves the queue. Sequences behind it can then be
        acknowledged as if it had been.
        """
        if self._config.dead_letter is DeadLetterPolicy.HALT or not isinstance(error, UNREADABLE):
            raise error
        await self.start()
        async with self._acking:
            # Still queued, and still ours to judge: a successor may have consumed and collected it long ago.
            manifest = await self._read()
            if manifest.location_of(descriptor.sequence) != descriptor.location:
                raise InvalidInput(f"batch {descriptor.sequence} cannot be set aside", "it is not in the queue", _GONE)
            letter = await self._dead_letters.record(descriptor, error, self._clock.now_ms())
            through = self._cursor.plan_set_aside(descriptor.sequence)
            if through is not None:
                await self._dequeue(through)
            self._cursor.set_aside(descriptor.sequence)
            if through is not None:
                self._cursor.written(through)
        self._observer.count(names.BUFFER_DEAD_LETTERS, reason=letter.reason)
        self._observer.event(
            names.BUFFER_DEAD_LETTER, sequence=letter.sequence, location=letter.location, error=letter.error
        )

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
        return self._register.conflict_rate

    # What serves the above ------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._register.fence is None:
            # Looked at before anybody is fenced: a position that fits another queue must harm nobody.
            await self._check_position(await self._register.read())
            await self._claim()
            await self._register.acquire_fence()
        await self._check_position(await self._read())
        if self._last_acked is not None:
            await self._dequeue(self._last_acked)
        self._started = True
        self._observer.event(names.BUFFER_STARTED, fence=self._register.fence, last_acked=self._last_acked)
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
            try:
                await self._register.renew_fence()
            except Fenced:
                self._tell_fenced()
                raise

    async def _check_position(self, manifest: Manifest) -> None:
        """Refuse a `last_acked` that this queue cannot have given, or behind which batches are gone."""
        if self._last_acked is None:
            return
        if not -1 < self._last_acked < manifest.next_sequence:
            raise InvalidInput(
                f"last_acked = {self._last_acked} is not of this queue",
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

    async def _ahead(self, limit: int) -> list[Descriptor]:
        manifest = await self._read()
        return manifest.after(self._cursor.handed_out, limit)

    async def _read(self) -> Manifest:
        self._check_open()
        try:
            manifest = await self._register.read()
        except Fenced:
            self._tell_fenced()
            raise
        lag = lag_of(manifest, self._cursor.done_through, self._clock.now_ms())
        self._observer.gauge(names.BUFFER_QUEUE_BATCHES, len(manifest))
        self._observer.gauge(names.BUFFER_LAG_BATCHES, lag.batches)
        self._observer.gauge(names.BUFFER_LAG_SECONDS, lag.seconds)
        return manifest

    async def _relieve(self) -> None:
        async with self._acking:
            through = self._cursor.to_dequeue
            if through is not None:
                await self._dequeue(through)
                self._cursor.written(through)

    async def _dequeue(self, through: int) -> None:
        self._check_open()
        change = Dequeue(through)
        try:
            with self._observer.span(names.BUFFER_DEQUEUE, through=through):
                manifest = await self._register.update(change, landed=change.landed)
        except Fenced:
            self._tell_fenced()
            raise
        if manifest.fence != self._register.fence:
            # It is gone, and perhaps a successor took it off: not for this one to build on.
            self._tell_fenced()
            why = f"this one holds fence {self._register.fence}, and the manifest is at fence {manifest.fence}"
            raise Fenced("the consumer was taken over", why, "stop: the newer one goes on from here")

    def _count_acked(self, sequence: int) -> None:
        self._observer.count(names.BUFFER_ACKS, self._cursor.acked(sequence))

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the consumer is closed", "close() was called", "make a new one")

    def _tell_fenced(self) -> None:
        if not self._fenced:
            self._fenced = True
            self._observer.event(names.BUFFER_FENCED, fence=self._register.fence)


def _checked_position(last_acked: int | None) -> int | None:
    """Refuse what is no sequence before anybody is fenced; a true or a fraction would take off the wrong batches."""
    if last_acked is None:
        return None
    if isinstance(last_acked, bool) or not hasattr(last_acked, "__index__"):
        why = f"it is of type {type(last_acked).__name__}, and a sequence is a whole number"
        raise InvalidInput(f"last_acked = {last_acked!r}", why, "give the sequence that the sink stored, or None")
    return index(last_acked)
