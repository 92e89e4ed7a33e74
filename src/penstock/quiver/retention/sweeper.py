"""Removes what retention says, in the one order that survives a crash at any point.

The outcome of each subscriber that had not settled a segment, then the fact that the segment goes and the numbers that
must go on behind it, are durable in `ack.log` before a file is touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping

from penstock.observability import names
from penstock.quiver.acks.ack_log import AckLog
from penstock.quiver.acks.ack_state import Outcome, OutcomeRecord, Reclaimed
from penstock.quiver.config import RetentionConfig
from penstock.quiver.delivery.subscribers import Subscribers
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.retention.plan import RetentionPlan, SegmentStanding, plan_retention
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.segment.segment_store import SegmentStore

__all__ = ["Sweeper"]


class Sweeper:
    def __init__(
        self,
        config: RetentionConfig,
        log: AckLog,
        shelf: SegmentStore,
        segments: MutableMapping[int, SegmentMeta],
        subscribers: Subscribers,
        doors: Doors,
        changed: WakeUp,
        *,
        bytes_over: Callable[[], int],
        segments_over: Callable[[], int],
    ) -> None:
        self._config = config
        self._log = log
        self._shelf = shelf
        self._segments = segments
        self._subscribers = subscribers
        self._doors = doors
        self._changed = changed
        self._bytes_over = bytes_over
        self._segments_over = segments_over
        # Held while segments are removed.
        self.turn = asyncio.Lock()
        # When segments of this life came, on the clock that nobody sets.
        self._came_at: dict[int, float] = {}
        # Removed for everybody, and still on the disk.
        self._leftovers: list[SegmentMeta] = []

    def publish(self, segment_seq: int) -> None:
        """A segment is there, and begins to age."""
        self._came_at[segment_seq] = self._doors.clock.monotonic()

    async def sweep(self, *, settled_only: bool = False) -> RetentionPlan:
        """Remove what may go now. What fails to go is tried again with the next sweep.

        `settled_only` looks at segments that wait for nobody: an outcome then costs the same however many others wait.
        """
        async with self.turn:
            plan = plan_retention(
                self._standings(settled_only),
                self._config,
                now_ms=self._doors.clock.now_ms(),
                bytes_over=self._bytes_over(),
                segments_over=self._segments_over(),
            )
            if plan.segment_seqs:
                await self._remove(plan)
            elif self._leftovers:
                await self._unlink([])
            return plan

    async def lose(self, meta: SegmentMeta, reason: str) -> None:
        """A segment cannot be read: everybody who waits for it is told, and its files are set aside."""
        async with self.turn:
            if meta.segment_seq not in self._segments:
                return
            await self._record({meta.segment_seq: Outcome.LOST}, reason)
            await self._doors.offload(self._shelf.set_aside, meta.segment_seq)
            self._forget([meta])
            self._doors.observer.event(
                names.QUIVER_DAMAGE, instance=self._doors.instance, segment=meta.segment_seq, reason=reason
            )
            self._count_loss("damage", [meta])

    def _standings(self, settled_only: bool) -> list[SegmentStanding]:
        state = self._log.state
        numbers = [number for number in state.settled if number in self._segments] if settled_only else self._segments
        return [
            SegmentStanding(
                number,
                meta.bytes,
                self._ingested_ms(meta),
                is_processed=state.is_processed(number),
                is_rejected=not state.outstanding[number] and state.is_rejected(number),
                is_read=self._subscribers.is_read(number),
            )
            for number in numbers
            for meta in [self._segments[number]]
        ]

    def _ingested_ms(self, meta: SegmentMeta) -> int:
        """When it came, by today's clock: one that was set forward since does not make everything old."""
        came_at = self._came_at.get(meta.segment_seq)
        if came_at is None:
            return meta.ingestion_ms[1]
        elapsed_ms = round((self._doors.clock.monotonic() - came_at) * 1000)
        return max(meta.ingestion_ms[1], self._doors.clock.now_ms() - elapsed_ms)

    async def _remove(self, plan: RetentionPlan) -> None:
        metas = [self._segments[number] for number in plan.segment_seqs]
        outcomes = dict.fromkeys(plan.expired, Outcome.EXPIRED) | dict.fromkeys(plan.dropped, Outcome.DROPPED)
        unresolved = [self._segments[number] for number in plan.expired if self._log.state.outstanding[number]]
        dropped = [self._segments[number] for number in plan.dropped]
        await self._record(dict.fromkeys(plan.segment_seqs, Outcome.ACK) | outcomes, "")
        # Gone for every caller before the first file goes: what fails to go is tried again, at the latest by a start.
        self._forget(metas)
        await self._unlink(metas)
        self._count_evictions(plan)
        self._count_loss("expired", unresolved)
        self._count_loss("size", dropped)
        self._changed.notify()

    async def _unlink(self, metas: list[SegmentMeta]) -> None:
        self._leftovers += metas
        try:
            await self._doors.offload(self._shelf.remove, self._leftovers)
            self._leftovers = []
        except OSError as error:
            self._doors.observer.event(names.QUIVER_REMOVAL_FAILED, instance=self._doors.instance, error=str(error))

    async def _record(self, removed: dict[int, Outcome], reason: str) -> None:
        """Synthetic outcomes for whoever still waits, then the removal itself."""
        state, now_ms = self._log.state, self._doors.clock.now_ms()
        records = [
            OutcomeRecord(number, name, outcome, now_ms, reason)
            for number, outcome in sorted(removed.items())
            for name in sorted(state.outstanding[number])
        ]
        await self._log.settle(records)
        for record in records:
            self._doors.observer.count(
                names.QUIVER_OUTCOMES, subscriber=record.subscriber, outcome=record.outcome.name.lower()
            )
            if record.outcome is Outcome.DROPPED:
                self._doors.observer.count(names.QUIVER_SUBSCRIBER_DROPPED, subscriber=record.subscriber)
        through = max(self._segments[number].last_bundle for number in removed)
        await self._log.append(
            Reclaimed(sorted(removed), state.next_segment_seq, max(through, state.finalised_through))
        )

    def _forget(self, metas: list[SegmentMeta]) -> None:
        for meta in metas:
            del self._segments[meta.segment_seq]
            self._came_at.pop(meta.segment_seq, None)
            self._subscribers.forget(meta.segment_seq)

    def _count_evictions(self, plan: RetentionPlan) -> None:
        by_reason = {
            "time": plan.expired,
            "size": [*plan.evicted, *plan.dropped, *plan.rejected],
            "processed": plan.processed,
        }
        for reason, numbers in by_reason.items():
            if numbers:
                self._doors.observer.count(names.QUIVER_GC_EVICTIONS, len(numbers), reason=reason)
        if plan.evicted or plan.dropped or plan.rejected:
            self._doors.observer.count(names.QUIVER_SIZE_EMERGENCIES)

    def _count_loss(self, reason: str, metas: list[SegmentMeta]) -> None:
        """In segments, bundles, rows and bytes, apart from what was only reclaimed."""
        observer = self._doors.observer
        for meta in metas:
            observer.count(names.QUIVER_SEGMENTS_DROPPED, reason=reason)
            observer.count(names.QUIVER_BUNDLES_LOST, meta.bundles, reason=reason)
            observer.count(names.QUIVER_ROWS_LOST, meta.rows, reason=reason)
            observer.count(names.QUIVER_BYTES_LOST, meta.bytes, reason=reason)
