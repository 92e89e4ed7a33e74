"""Closed batches on their way into the queue: encoded and uploaded side by side, enqueued in order.

```
closed ──encode──▶ ──upload──▶ waits for those before it ──one write for the whole group──▶ enqueued
                      │ given up                               │ queue full, or unproved
                      ▼                                        ▼                    │ given up
              its own callers get the error          the group's callers get it     ▼
              and the others go on                   and the others go on        HALTED: all get it
```
A batch keeps its bytes until it is enqueued, so that one that a collector may have deleted is uploaded
anew under a new name: one that grew too old for the grace, by the clocks of this machine or, when the
fence has moved since it was named, by the store's own stamps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, takewhile
from typing import Final

from penstock.buffer.config import ProducerConfig
from penstock.buffer.format.batch import RecordBlock
from penstock.buffer.format.manifest import DescriptorDraft, Manifest
from penstock.buffer.ownership import Ownership
from penstock.buffer.producing.accumulator import OpenBatch
from penstock.buffer.producing.handle import BatchOutcome
from penstock.buffer.producing.upload import BatchPlacement, Uploader
from penstock.buffer.queue import Enqueue, GrownTooOld, manifest_register
from penstock.clock import Clock
from penstock.errors import AtCapacity, DeadlineExceeded, OutcomeUnknown, PenstockError, Unavailable
from penstock.ids import Entropy
from penstock.objects import Body, ObjectStore
from penstock.observability import Observer, names

__all__ = ["Pipeline"]

# Times that a batch may be found too old or in doubt before it is given up: the store is too slow to serve.
_RENEWALS_MAX: Final = 5

# The fixed fields of an entry in the manifest.
_ENTRY_BYTES: Final = 18


class Pipeline:
    """Takes closed batches in the order of their inputs and settles each of them, exactly once."""

    def __init__(
        self,
        store: ObjectStore,
        config: ProducerConfig,
        *,
        released: Callable[[int], None],
        failed: Callable[[BatchOutcome, int, PenstockError], None],
        halted: Callable[[PenstockError], None],
        clock: Clock,
        entropy: Entropy,
        observer: Observer,
    ) -> None:
        self._config = config
        self._released = released
        self._tell_failed = failed
        self._tell_halted = halted
        self._clock = clock
        self._observer = observer
        self._uploader = Uploader(store, config, clock=clock, entropy=entropy, observer=observer)
        self._register = manifest_register(
            store,
            config.manifest_path,
            role="producer",
            deadline_seconds=config.manifest_deadline_seconds,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        self._entropy = entropy
        self._ownership = Ownership(store, config.data_path_prefix, config.manifest_path)
        self._first_look = asyncio.Lock()
        self._looked = False
        self._batches: deque[_Closed] = deque()
        self._committer: asyncio.Task[None] | None = None
        self.halted: PenstockError | None = None

    def __len__(self) -> int:
        """Batches closed and not yet settled."""
        return len(self._batches)

    @property
    def conflict_rate(self) -> float:
        return self._register.conflict_rate

    @property
    def outcomes(self) -> list[BatchOutcome]:
        """Of the batches not yet settled, in order."""
        return [batch.outcome for batch in self._batches]

    def submit(self, batch: OpenBatch) -> None:
        """Take a batch that gets no more inputs."""
        closed = _Closed(batch)
        self._batches.append(closed)
        closed.task = asyncio.create_task(self._upload(closed), name="buffer upload")
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit(), name="buffer committer")

    async def claim(self) -> None:
        """Mark the folder as this queue's, or refuse another's; nothing is enqueued before that."""
        await self._ownership.claim(
            deadline_seconds=self._config.manifest_deadline_seconds,
            clock=self._clock,
            entropy=self._entropy,
            observer=self._observer,
        )

    async def close(self) -> None:
        """Release the register. For a pipeline that has settled everything."""
        await self._register.close()

    # Side by side: encode and upload ------------------------------------------------------------------

    async def _upload(self, batch: _Closed) -> None:
        try:
            with self._observer.span(names.BUFFER_UPLOAD, records=batch.count):
                if batch.body is None:
                    batch.body = await self._uploader.encode(batch.block)
                    self._release_parts(batch)
                await self._look()
                batch.placement, batch.doubtful = await self._uploader.upload(batch.body), False
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to the callers of this batch
            batch.failure = _as_ours(error)
        finally:
            batch.ready.set()

    async def _look(self) -> None:
        """See the fence before the first object is named. Tried once: a manifest that cannot be read fails later."""
        async with self._first_look:
            if not self._looked:
                self._looked = True
                with suppress(PenstockError):
                    self._uploader.fence = (await self._register.read()).fence

    # In order: enqueue ---------------------------------------------------------------------------------

    async def _commit(self) -> None:
        """Runs while there are batches. A failure nobody foresaw must not leave callers waiting: it halts."""
        group: list[_Closed] = []
        try:
            while self._batches:
                await self._batches[0].ready.wait()
                group = self._next_group()
                await self.claim()
                await self._enqueue(group)
        except Exception as error:  # noqa: BLE001  see above
            self._halt(_as_ours(error), group)
        finally:
            self._committer = None

    def _next_group(self) -> list[_Closed]:
        """The batches at the head whose uploads are over, without those that failed, as far as one write takes them."""
        over = list(takewhile(lambda batch: batch.ready.is_set(), self._batches))
        group = over[: self._config.manifest_append_batches]
        for batch in group:
            if batch.failure is not None:
                self._give_up(batch, batch.failure)
        sound = [batch for batch in group if batch.failure is None]
        totals = accumulate(batch.entry_size for batch in sound)
        # Together they must fit an empty queue as surely as the first of them does alone.
        return [batch for batch, total in zip(sound, totals, strict=True) if batch is sound[0] or self._shares(total)]

    def _shares(self, entry_bytes: int) -> bool:
        return entry_bytes <= self._config.append_bytes

    async def _enqueue(self, group: list[_Closed]) -> None:
        for _ in range(_RENEWALS_MAX):
            group = await self._renewed(group)
            if not group:
                return
            try:
                first = await self._append(group)
            except GrownTooOld:
                await self._settle_doubts(group)
                continue
            except _NotEnqueued as refusal:
                self._fail(group, refusal.error)
            else:
                self._succeed(group, first)
            return
        why = (
            f"{_RENEWALS_MAX} times, half the collector's grace of {self._config.collector_grace_seconds:g} s "
            "had passed before it was, or the fence had moved"
        )
        self._fail(group, DeadlineExceeded("batch was not enqueued", why, "check the store, or lengthen the grace"))

    async def _append(self, group: list[_Closed]) -> int:
        """One write of the manifest; the sequence of the group's first batch."""

        def too_old(manifest: Manifest) -> bool:
            self._uploader.fence = manifest.fence
            return any(self._uploader.too_old(batch.placed) or not self._vouched(batch, manifest) for batch in group)

        drafts = [DescriptorDraft(batch.placed.location, batch.metadata) for batch in group]
        change = Enqueue(drafts, bytes_max=self._config.manifest_bytes_max, too_old=too_old)
        try:
            with self._observer.span(names.BUFFER_ENQUEUE, batches=len(group)):
                await self._register.update(change, landed=change.landed)
        except AtCapacity as error:
            raise _NotEnqueued(error) from error
        except OutcomeUnknown as error:
            if not change.unproved:
                raise
            # No write of it is under way any more, so going on cannot enqueue anything twice or out of order.
            self._observer.event(names.BUFFER_UNPROVED, batches=len(group), first_sequence=change.first)
            raise _NotEnqueued(error) from error
        return change.first

    async def _renewed(self, group: list[_Closed]) -> list[_Closed]:
        """The group with every batch that may be gone uploaded anew, without those that could not be."""
        aged = [batch for batch in group if batch.doubtful or self._uploader.too_old(batch.placed)]
        self._observer.count(names.BUFFER_REUPLOADS, len(aged))
        await asyncio.gather(*(self._upload(batch) for batch in aged))
        for batch in aged:
            if batch.failure is not None:
                self._give_up(batch, batch.failure)
        return [batch for batch in group if batch.failure is None]

    def _vouched(self, batch: _Closed, manifest: Manifest) -> bool:
        return self._uploader.vouched(batch.placed, manifest.fence, self._register.written_ms(manifest))

    async def _settle_doubts(self, group: list[_Closed]) -> None:
        """The fence moved, so ask the store what is there and since when; what it does not vouch for stays in doubt."""
        manifest = await self._register.read()
        self._uploader.fence = manifest.fence
        unsure = [batch for batch in group if not self._vouched(batch, manifest)]
        stamped = await asyncio.gather(*(self._uploader.stamped(batch.placed) for batch in unsure))
        for batch, placement in zip(unsure, stamped, strict=True):
            batch.placement = placement or batch.placement
            batch.doubtful = placement is None or not self._vouched(batch, manifest)

    # Settling: every batch passes here once -----------------------------------------------------------

    def _succeed(self, group: list[_Closed], first: int) -> None:
        now = self._clock.monotonic()
        for offset, batch in enumerate(group):
            self._observer.count(names.BUFFER_RECORDS, batch.count)
            self._observer.observe(names.BUFFER_DURABLE_SECONDS, now - batch.opened_at)
            self._settle(batch, "enqueued")
            batch.outcome.enqueued(first + offset)

    def _give_up(self, batch: _Closed, error: PenstockError) -> None:
        self._observer.event(names.BUFFER_GIVEN_UP, records=batch.count, error=str(error))
        self._fail([batch], error)

    def _fail(self, group: list[_Closed], error: PenstockError) -> None:
        for batch in group:
            self._settle(batch, "unknown" if isinstance(error, OutcomeUnknown) else "failed")
            self._tell_failed(batch.outcome, batch.count, error)

    def _halt(self, error: PenstockError, group: list[_Closed]) -> None:
        """The write that was given up ends its group; what lies behind it was never tried, and that is certain."""
        self._observer.event(names.BUFFER_HALTED, batches=len(self._batches), error=str(error))
        self.halted = error
        behind = Unavailable("batch was not enqueued", f"the producer halted before it: {error}", "produce it again")
        behind.__cause__ = error
        for batch in list(self._batches):
            if batch.task is not None:
                batch.task.cancel()
            self._fail([batch], error if batch in group else behind)
        self._tell_halted(behind)

    def _settle(self, batch: _Closed, outcome: str) -> None:
        self._batches.remove(batch)
        self._observer.count(names.BUFFER_BATCHES, outcome=outcome)
        held, batch.held = batch.held, 0
        # Let go of the bytes now: the bound on them must not depend on who else still knows this batch.
        batch.block, batch.body = RecordBlock(), None
        self._released(held)

    def _release_parts(self, batch: _Closed) -> None:
        """The records are in the body now. Of a batch that was settled meanwhile, nothing is left to release."""
        half = batch.held // 2
        batch.held -= half
        self._released(half)


class _NotEnqueued(Exception):
    """A refusal that concerns one group and leaves the pipeline sound."""

    def __init__(self, error: PenstockError) -> None:
        self.error = error


class _Closed:
    """A closed batch and how far it has come."""

    def __init__(self, batch: OpenBatch) -> None:
        self.block = batch.block
        self.count = batch.block.count
        self.metadata = tuple(batch.metadata)
        self.metadata_size = batch.metadata_size
        # What it takes from the producer's bound: its records, and until it is encoded the room for their copy.
        self.held = 2 * batch.size
        self.opened_at = batch.opened_at
        self.outcome = batch.outcome
        self.body: Body | None = None
        self.placement: BatchPlacement | None = None
        self.failure: PenstockError | None = None
        # A collector may have deleted its object.
        self.doubtful = False
        self.ready = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def entry_size(self) -> int:
        """About what its entry takes in the manifest."""
        return _ENTRY_BYTES + len(self.placed.location) + self.metadata_size

    @property
    def placed(self) -> BatchPlacement:
        assert self.placement is not None, "asked before its upload was over"
        return self.placement


def _as_ours(error: Exception) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    ours = PenstockError("batch was not enqueued", f"{type(error).__name__}: {error}")
    ours.__cause__ = error
    return ours
