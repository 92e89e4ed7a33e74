"""Segments into the queue, each exactly once, also across crashes.

```
cut into parts ─▶ upload each ─▶ journal: "segment 57, from sequence 341 on" ─▶ one write of the manifest ─▶ acknowledge
```
All parts of a segment enter the queue in one write, so it is there whole or not at all. The next attempt after a crash
finds the note in the journal, and looks into the manifest before it sends anything: docs/rooms/relay.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.buffer import OnceProducer, ProducerConfig, Unproved
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.disk import Disk, RealDisk, explain
from penstock.errors import OutcomeUnknown, PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.loops import Offload, Threads
from penstock.objects import Body, ObjectStore
from penstock.observability import SILENT, Observer, names
from penstock.relay.config import QueueOutletConfig, RowCompression, UnprovedPolicy
from penstock.relay.outlets.journal import Intent, JournalState, SendJournal
from penstock.relay.outlets.outlet import Delivered, NotYet, SegmentRows, SendAnswer, Undeliverable
from penstock.relay.outlets.parts import TableSlice, split_segment
from penstock.relay.outlets.stamp import IpcCompression, RelayStamp, encode_part

__all__ = ["QueueOutlet"]

T = TypeVar("T")


class QueueOutlet:
    """`journal` is a durable file next to the quiver; `is_waiting` returns whether a segment still waits.

    One outlet, one relay: two on one journal would not know of each other.
    """

    def __init__(
        self,
        store: ObjectStore,
        journal: str,
        config: QueueOutletConfig | None = None,
        producer: ProducerConfig | None = None,
        *,
        is_waiting: Callable[[int], bool],
        instance: int = 0,
        disk: Disk | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        offload: Offload | None = None,
        observer: Observer = SILENT,
    ) -> None:
        self._config = config or QueueOutletConfig()
        self._instance = instance
        self._is_waiting = is_waiting
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._journal = SendJournal(disk or RealDisk(), journal)
        self._threads = None if offload else Threads(1, "penstock-relay", "the relay")
        self._offload: Offload = offload or self._threads  # type: ignore[assignment]
        self._producer = OnceProducer(
            store, producer, alone=self._config.alone, clock=clock, entropy=entropy, observer=observer
        )
        self._state: JournalState | None = None
        # Whether the attempt of the open intent may have landed; what failed for certain has not.
        self._is_doubtful = True

    async def send(self, delivery: SegmentRows) -> SendAnswer:
        state = self._state or await self._open()
        intent = state.intent
        if intent is not None and intent.segment_seq != delivery.segment_seq:
            if self._is_waiting(intent.segment_seq):
                # Consumers know repeats by the order of ordinals: what is in doubt goes first.
                return NotYet()
            intent = None
        ordinal = intent.ordinal if intent else state.ordinal + 1
        part_bytes = intent.part_bytes if intent else self._config.part_bytes
        since = intent.since if intent and self._is_doubtful else None
        sending = _Sending(self, delivery, ordinal, part_bytes)
        try:
            return await self._attempt(sending, since)
        except Unproved as error:
            self._observer.event(
                names.RELAY_UNPROVED, segment=delivery.segment_seq, policy=self._config.unproved.value, error=str(error)
            )
            self._observer.count(names.RELAY_UNPROVED_SEGMENTS, policy=self._config.unproved.value)
            if self._config.unproved is UnprovedPolicy.SET_ASIDE:
                return Undeliverable(str(error))
        return await self._attempt(sending, None)

    async def has_begun(self, segment_seq: int) -> bool:
        """Whether some of this segment may have been sent, and it is not settled."""
        intent = (self._state or await self._open()).intent
        return intent is not None and intent.segment_seq == segment_seq

    async def settled(self, delivery: SegmentRows) -> None:
        """It will not come again, unless somebody asks for it: then it is to be sent once more."""
        state = self._state
        if state is not None and state.intent is not None and state.intent.segment_seq == delivery.segment_seq:
            await self._write(msgspec.structs.replace(state, intent=None))

    async def close(self) -> None:
        await self._producer.close()
        if self._threads is not None:
            self._threads.close()

    async def _attempt(self, sending: _Sending, since: int | None) -> SendAnswer:
        parts, self._is_doubtful = await sending.cut(), True

        async def intend(start: int) -> None:
            intent = Intent(sending.delivery.segment_seq, sending.ordinal, start, sending.part_bytes)
            assert self._state is not None
            await self._write(msgspec.structs.replace(self._state, ordinal=sending.ordinal, intent=intent))

        try:
            receipt = await self._producer.send(
                sending.batches, sending.stamp(len(parts)).encode(), since=since, intend=intend
            )
        except PenstockError as error:
            # Any other error says that this attempt enqueued nothing. An earlier one is as doubtful as it was.
            self._is_doubtful = since is not None or isinstance(error, OutcomeUnknown)
            raise
        return Delivered(receipt.is_new)

    async def _open(self) -> JournalState:
        state = await self._on_disk(
            "the relay's journal cannot be read", self._journal.open, self._clock, self._entropy
        )
        if self._journal.was_lost:
            self._observer.event(names.RELAY_JOURNAL_LOST, relay=state.relay)
        self._state, self._is_doubtful = state, True
        return state

    async def _write(self, state: JournalState) -> None:
        await self._on_disk("the relay's journal cannot be written", self._journal.write, state)
        self._state = state

    async def _on_disk(self, what: str, work: Callable[..., T], *args: Any) -> T:
        try:
            return await self._offload(work, *args)
        except OSError as error:
            raise explain(what, error) from error

    def relay_stamp(self, delivery: SegmentRows, ordinal: int, part: int, parts: int) -> RelayStamp:
        assert self._state is not None
        meta = delivery.meta
        return RelayStamp(self._state.relay, ordinal, self._instance, meta.segment_seq, part, parts, meta.signals)

    async def encode(self, slices: Sequence[TableSlice]) -> list[bytes]:
        compression: IpcCompression | None = None if self._config.compression is RowCompression.NONE else "zstd"
        return await self._offload(encode_part, [(one.slot, one.table) for one in slices], compression)


class _Sending:
    """One segment on its way: its parts, cut the same at every attempt, one in memory at a time."""

    def __init__(self, outlet: QueueOutlet, delivery: SegmentRows, ordinal: int, part_bytes: int) -> None:
        self._outlet = outlet
        self.delivery = delivery
        self.ordinal = ordinal
        self.part_bytes = part_bytes
        self._parts: list[list[TableSlice]] | None = None

    async def cut(self) -> list[list[TableSlice]]:
        if self._parts is None:
            self._parts = split_segment(await self.delivery.read(), self.part_bytes)
        return self._parts

    def stamp(self, part: int) -> RelayStamp:
        assert self._parts is not None
        return self._outlet.relay_stamp(self.delivery, self.ordinal, part, len(self._parts))

    async def batches(self) -> AsyncIterator[tuple[Sequence[Body], bytes]]:
        for number, slices in enumerate(await self.cut(), start=1):
            yield await self._outlet.encode(slices), self.stamp(number).encode()
