"""Removes what retention says, in the one order that survives a crash at any point.

The outcome of each subscriber that had not settled a segment, then the fact that the segment goes and the numbers that
must go on behind it, are durable in `ack.log` before a file is touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Final

from penstock.observability import names
from penstock.quiver.acks.ack_log import AckLog
from penstock.quiver.acks.ack_state import Outcome, OutcomeRecord, Reclaimed
from penstock.quiver.config import RetentionConfig
from penstock.quiver.delivery.subscribers import Subscribers
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.retention.ages import Ages
from penstock.quiver.retention.plan import RetentionPlan, SegmentStanding, plan_retention
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.segment.segment_store import SegmentStore

__all__ = ["Sweeper"]

# Of the segments whose date is corrected in one go: each is a small file and a sync.
_REDATED_MAX: Final = 64


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
        ages: Ages,
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
        self._ages = ages
        # Held while segments are removed.
        self.turn = asyncio.Lock()
        # Removed for everybody, and still on the disk.
        self._leftovers: list[SegmentMeta] = []

    async def sweep(self, *, settled_only: bool = False) -> RetentionPlan:
        """Remove what may go now. What fails to go is tried again with the next sweep.

        Only segments that wait for nobody are looked at, unless others may have to go because they are old or a cap is
        passed: it then costs the same however many wait. `settled_only`: nor are others in that case.
        """
        async with self.turn:
            now_ms, bytes_over, segments_over = self._doors.clock.now_ms(), self._bytes_over(), self._segments_over()
            is_short = bytes_over > 0 or self._config.segment_count_cap is not None
            is_full = is_short or self._ages.oldest_ms < now_ms - self._config.max_retain_ms
            plan = plan_retention(
                self._standings(settled_only or not is_full),
                self._config,
                now_ms=now_ms,
                bytes_over=bytes_over,
                segments_over=segments_over,
            )
            if plan.segment_seqs:
                await self._remove(plan)
            elif self._leftovers:
                await self._unlink([])
            return plan

    async def redate(self) -> None:
        """Correct dates that the clock was wrong about on the disk, some at a time.

        Not those of segments that somebody has had: what was made of them may carry the date.
        """
        async with self.turn:
            if not self._ages.may_be_wrong:
                return
            untouched = (meta for meta in self._segments.values() if not self._was_delivered(meta.segment_seq))
            metas = self._ages.redated(untouched, _REDATED_MAX)
            if not metas:
                return
            try:
                await self._doors.offload(self._shelf.redate, metas)
            except OSError as error:
                # Their old dates are as good as before; the next round tries again.
                self._doors.observer.event(names.QUIVER_SEGMENT_FAILED, instance=self._doors.instance, error=str(error))
                return
            for meta in metas:
                self._segments[meta.segment_seq] = meta

    def _was_delivered(self, segment_seq: int) -> bool:
        known = self._log.state.subscriptions.values()
        return self._subscribers.is_read(segment_seq) or any(segment_seq in one.attempts for one in known)

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
                self._ages.ingested_ms(meta),
                is_processed=state.is_processed(number),
                is_rejected=not state.outstanding[number] and state.is_rejected(number),
                is_read=self._subscribers.is_read(number),
            )
            for number in numbers
            for meta in [self._segments[number]]
        ]

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
            self._ages.forget(meta.segment_seq)
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
