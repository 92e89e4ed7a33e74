"""Enqueue a group of batches once, however often it is tried: the manifest is searched for its mark at every attempt.

For senders that can be killed between the write of the manifest and their own note of it, and that keep such a note
(`intend`) before the write. The mark is the metadata of the group's last batch, which leaves the queue last. An
earlier attempt can only lie at or behind the sequence that was noted for it: as long as nothing from there on has left
the queue, the manifest proves whether it landed. Once a consumer has gone past, it cannot, and `Unproved` says so;
but if this sender is the queue's only producer, the count of sequences given out proves it for ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.buffer.config import ProducerConfig
from penstock.buffer.format.batch import RecordBlock
from penstock.buffer.format.manifest import DescriptorDraft, Manifest, MetadataRange
from penstock.buffer.ownership import Ownership
from penstock.buffer.producing.upload import BatchPlacement, Uploader
from penstock.buffer.queue import Enqueue, GrownTooOld, manifest_register
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import DeadlineExceeded, InvalidInput, OutcomeUnknown
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects import Body, ObjectStore
from penstock.observability import SILENT, Observer, names

__all__ = ["OnceProducer", "OnceReceipt", "Unproved"]

# Groups that may each outlive their fence or half the grace before one is given up: the store is too slow to serve.
_RENEWALS_MAX: Final = 5

# Batches of a group, each as its records and its metadata; made anew for every upload.
Batches: TypeAlias = Callable[[], AsyncIterator[tuple[Sequence[Body], bytes]]]


class Unproved(OutcomeUnknown):
    """An earlier attempt may have been enqueued and consumed since: the manifest cannot tell any more."""

    usual_remedy = "look into the sink, or send it again to a consumer that knows repeats"


@dataclass(frozen=True, slots=True)
class OnceReceipt:
    """The sequence of the group's last batch; `is_new` when this very call enqueued it."""

    sequence: int
    is_new: bool


class OnceProducer:
    """Sends one group at a time. `alone` promises that nothing else ever produces into this queue."""

    def __init__(
        self,
        store: ObjectStore,
        config: ProducerConfig | None = None,
        *,
        alone: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._config = config or ProducerConfig()
        self._alone = alone
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._uploader = Uploader(store, self._config, clock=clock, entropy=entropy, observer=observer)
        self._ownership = Ownership(store, self._config.data_path_prefix, self._config.manifest_path)
        self._register = manifest_register(
            store,
            self._config.manifest_path,
            role="producer",
            deadline_seconds=self._config.manifest_deadline_seconds,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )

    async def send(
        self, batches: Batches, mark: bytes, *, since: int | None, intend: Callable[[int], Awaitable[None]]
    ) -> OnceReceipt:
        """Enqueue the group, unless an attempt since the sequence `since` did; None: there was none.

        `intend` is awaited with the sequence from which on this attempt may lie, right before it: keep that, and
        give it as `since` when nobody knows how the attempt ended. That is so after `OutcomeUnknown` and after a crash;
        any other error says that nothing was enqueued.
        """
        await self._claim()
        for _ in range(_RENEWALS_MAX):
            found, start = await self._look(mark, since)
            if found is not None:
                return OnceReceipt(found, is_new=False)
            drafts, placements = await self._upload(batches)
            # Time has passed, and the write of a killed process may have landed in it.
            found, start = await self._look(mark, since)
            if found is not None:
                return OnceReceipt(found, is_new=False)
            await intend(start)
            try:
                return await self._append(drafts, placements, mark, start, is_first=since is None)
            except GrownTooOld:
                since = None if since is None else start
            except _Found as visible:
                # Read once more, as what is durable: what is only visible may be lost with the power.
                since = visible.sequence
                if await self._has_left(since):
                    return OnceReceipt(since, is_new=False)
        why = f"{_RENEWALS_MAX} times, its objects were too old by then, or the fence had moved"
        raise DeadlineExceeded("a group was not enqueued", why, "check the store, or lengthen the collector's grace")

    async def close(self) -> None:
        await self._register.close()

    async def _claim(self) -> None:
        await self._ownership.claim(
            deadline_seconds=self._config.manifest_deadline_seconds,
            clock=self._clock,
            entropy=self._entropy,
            observer=self._observer,
        )

    async def _look(self, mark: bytes, since: int | None) -> tuple[int | None, int]:
        """Where the group lies durably, if it does, and the next sequence."""
        manifest = await self._register.read(durable=since is not None)
        return self._trace(manifest, mark, since), manifest.next_sequence

    async def _has_left(self, sequence: int) -> bool:
        """Whether a consumer has taken off what was seen there: then it was durable, and is consumed."""
        return (await self._register.read(durable=True)).first_sequence > sequence

    async def _upload(self, batches: Batches) -> tuple[list[DescriptorDraft], list[BatchPlacement]]:
        """One after the other: one batch is in memory at a time."""
        drafts, placements = [], []
        async for records, payload in batches():
            block = RecordBlock()
            block.extend([bytes(record) for record in records])
            placement = await self._uploader.upload(await self._uploader.encode(block))
            drafts.append(DescriptorDraft(placement.location, [MetadataRange(0, self._clock.now_ms(), payload)]))
            placements.append(placement)
        return drafts, placements

    async def _append(
        self,
        drafts: Sequence[DescriptorDraft],
        placements: Sequence[BatchPlacement],
        mark: bytes,
        start: int,
        *,
        is_first: bool,
    ) -> OnceReceipt:
        def too_old(manifest: Manifest) -> bool:
            self._uploader.fence = manifest.fence
            written = self._register.written_ms(manifest)
            return any(
                self._uploader.too_old(one) or not self._uploader.vouched(one, manifest.fence, written)
                for one in placements
            )

        enqueue = Enqueue(drafts, bytes_max=self._config.manifest_bytes_max, too_old=too_old)

        def once(manifest: Manifest) -> Manifest:
            """Looks for the mark at every attempt: the write of a process that was killed may land late."""
            found = self._trace(manifest, mark, start, must_prove=not is_first)
            if found is not None:
                raise _Found(found)
            return enqueue(manifest)

        with self._observer.span(names.BUFFER_ENQUEUE, batches=len(drafts)):
            await self._register.update(once, landed=enqueue.landed)
        return OnceReceipt(enqueue.first + len(drafts) - 1, is_new=True)

    def _trace(self, manifest: Manifest, mark: bytes, since: int | None, *, must_prove: bool = True) -> int | None:
        """Where the group is or was queued; None when no attempt since then landed, `Unproved` when nobody can tell."""
        self._uploader.fence = manifest.fence
        if since is None:
            return None
        for entry in manifest.after(since - 1, len(manifest)):
            if entry.metadata and entry.metadata[-1].payload == mark:
                return entry.sequence
        if manifest.first_sequence <= since or not must_prove:
            return None
        if self._alone:
            return self._own(manifest, since)
        why = f"an attempt was cut off, and the consumer has gone past {since} since"
        raise Unproved("whether a group was enqueued is not known", why)

    def _own(self, manifest: Manifest, since: int) -> int:
        """Entries from there on have left the queue, and only this sender can have put them there."""
        if manifest.first_sequence < manifest.next_sequence:
            raise InvalidInput(
                "another producer writes to a queue that should have a single sender",
                f"sequence {manifest.first_sequence} is not its own, and it gave out {since}",
                "give the sender its own queue, or do not declare it the only one",
            )
        return manifest.next_sequence - 1


class _Found(Exception):
    """It is in the queue already, as far as can be seen."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
