"""The parts of one instance, wired together: what happens to a bundle once it is durable, and to a segment once it is.

```
log ─▶ open segment ─▶ handover ─▶ subscribers        (settled in memory)
                    └▶ shelf ─▶ subscribers ─▶ sweeper  (a file, until it may go)
```
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from penstock.observability import names
from penstock.quiver.acks.ack_log import AckLog
from penstock.quiver.acks.ack_state import AckState
from penstock.quiver.config import Durability, QuiverConfig
from penstock.quiver.delivery.handover import Handover
from penstock.quiver.delivery.held_or_stored import SegmentReader
from penstock.quiver.delivery.subscribers import Subscribers
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.layout import Layout
from penstock.quiver.log_replay import LogReplay
from penstock.quiver.opening import Findings, OpenedInstance
from penstock.quiver.retention.admission import Admission
from penstock.quiver.retention.ages import Ages
from penstock.quiver.retention.budget import SharedUsage
from penstock.quiver.retention.sweeper import Sweeper
from penstock.quiver.segment.finaliser import Finaliser
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.segment.index import SegmentIndex
from penstock.quiver.segment.open_segment import OpenSegment
from penstock.quiver.segment.segment_store import MemorySegments, SegmentStore
from penstock.quiver.upkeep import StoreUpkeep
from penstock.quiver.wal.calls import CallFrame
from penstock.quiver.wal.wal import Wal

__all__ = ["StoreParts"]


class StoreParts:
    """Without an opened instance nothing is ever written."""

    def __init__(
        self, config: QuiverConfig, doors: Doors, opened: OpenedInstance | None, layout: Layout, findings: Findings
    ) -> None:
        self._config = config
        self._findings = findings
        self._doors = doors
        self._changed = WakeUp(doors.clock)
        # Something for the upkeep to do.
        self._wake = WakeUp(doors.clock)
        self.segments = SegmentIndex(opened.segments.values() if opened else ())
        self.shelf: SegmentStore = opened.shelf if opened else MemorySegments()
        self.ack_log = AckLog(
            opened.ack.state if opened else AckState(),
            opened.ack_log if opened else None,
            offload=doors.offload,
            clock=doors.clock,
            checkpoint_records=config.checkpoint_records,
            next_record=opened.ack.next_record if opened else 1,
        )
        self.finaliser = Finaliser(
            self.shelf,
            config.segment,
            doors,
            self._changed,
            number=self._next_segment,
            publish=self._publish,
            hand_over=self._settle_in_memory,
            begun=self._wake.notify,
        )
        self.wal = Wal(
            opened.wal_log if opened else None,
            doors,
            durability=config.durability,
            interval=config.wal.flush_interval,
            persists=config.durability is not Durability.SEGMENT_ONLY,
            next_record=max(opened.wal.next_record, self._state.finalised_through + 1) if opened else 1,
            durable_before=opened.wal.durable_before if opened else 1,
            accept=self._accept,
        )
        self.subscribers = Subscribers(
            self.ack_log,
            self._meta,
            doors,
            self._changed,
            reader=self._read,
            lost=self._lose,
            settled=self._wake.notify,
        )
        # Only what the log has may wait for its files; and what is to stay once it is processed needs them.
        is_allowed = self.wal.is_durable and not config.retention.steady_state_headroom
        self.handover = Handover(
            self.ack_log,
            self.subscribers,
            doors,
            self._changed,
            seconds=config.segment.memory_delivery_seconds if is_allowed else 0.0,
            seconds_left=self.finaliser.memory_seconds_left,
        )
        self.reader = SegmentReader(self.shelf, self.segments, self.handover, doors)
        self.usage = SharedUsage(doors.disk, layout.path, layout.instance) if opened else None
        self.admission = Admission(
            config,
            self.wal,
            self.finaliser,
            self.usage,
            doors,
            self._changed,
            stored=lambda: self.upkeep.stored_bytes,
            segments=self.segments,
            sweep=self.sweep,
        )
        self.ages = Ages(doors.clock, self.segments.values(), self.wal.next_record)
        self.sweeper = Sweeper(
            config.retention,
            self.ack_log,
            self.shelf,
            self.segments,
            self.subscribers,
            doors,
            self._changed,
            bytes_over=self.admission.bytes_over,
            segments_over=self.admission.segments_over,
            ages=self.ages,
        )
        self.upkeep = StoreUpkeep(
            config,
            doors,
            self._changed,
            self._wake,
            ack_log=self.ack_log,
            wal=self.wal,
            segments=self.segments,
            finaliser=self.finaliser,
            subscribers=self.subscribers,
            admission=self.admission,
            sweeper=self.sweeper,
        )

    @property
    def _state(self) -> AckState:
        return self.ack_log.state

    async def sweep(self) -> None:
        """Remove what retention says, now."""
        await self.upkeep.sweep()

    def _accept(self, frames: Sequence[CallFrame], bundle_seq: int) -> None:
        """Durable: into the open segment. Frame by frame, as a start reads them."""
        for frame in frames:
            self.finaliser.add(frame.bundles, bundle_seq, frame.ingestion_ms, frame.shared)
            bundle_seq += len(frame.bundles)

    async def start(self, opened: OpenedInstance | None) -> None:
        if opened is not None:
            await self.ack_log.checkpoint()
            await self._prepare_spare(opened)
            replay = LogReplay(self.ack_log, self.finaliser, self.handover, self._doors, self._changed, self._findings)
            await replay.settle_missing()
            await replay.read(opened.wal.frames, self._doors.clock.now_ms() - self._config.retention.max_retain_ms)
            await self._release_wal()
        await self.admission.publish()
        lost = sum(end - first for first, end in self._findings.lost_bundles)
        self._doors.observer.event(
            names.QUIVER_OPENED,
            instance=self._doors.instance,
            segments=len(self.segments),
            replayed=self._findings.replayed_bundles,
            lost=lost,
            set_aside=len(self._findings.set_aside),
        )
        for reason, bundles in (("damage", lost), ("expired", self._findings.expired_bundles)):
            if bundles:
                self._doors.observer.count(names.QUIVER_BUNDLES_LOST, bundles, reason=reason)
        for place in self._findings.set_aside:
            self._doors.observer.event(names.QUIVER_DAMAGE, instance=self._doors.instance, place=place)

    async def _prepare_spare(self, opened: OpenedInstance) -> None:
        """Acknowledging must work on a full disk; on one that is full already, the store opens without a spare."""
        with suppress(OSError):
            await self._doors.offload(opened.ack_log.prepare_spare)

    def _next_segment(self) -> int:
        return self._state.next_segment_seq

    async def _settle_in_memory(self, segment: OpenSegment, segment_seq: int) -> bool:
        is_settled = await self.handover.settle(segment, segment_seq)
        if is_settled:
            await self._release_wal()
            await self.admission.publish()
        return is_settled

    def _meta(self, segment_seq: int) -> SegmentMeta:
        return self.handover.meta(segment_seq) or self.segments[segment_seq]

    async def _publish(self, meta: SegmentMeta, came_at: float) -> None:
        """Durable: the log may forget its bundles, and subscribers hear of it."""
        self.segments[meta.segment_seq] = meta
        self.handover.written(meta.segment_seq)
        self._state.publish(meta.segment_seq, meta.last_bundle)
        self.ages.came(meta, came_at)
        self.subscribers.publish(meta.segment_seq)
        await self._release_wal()
        await self.admission.publish()

    async def _release_wal(self) -> None:
        try:
            await self.wal.release(self._state.finalised_through)
        except OSError as error:
            self._doors.observer.event(names.QUIVER_REMOVAL_FAILED, instance=self._doors.instance, error=str(error))

    async def _read(self, meta: SegmentMeta) -> dict[str, list[pa.Table]]:
        return await self.reader.read(meta)

    async def _lose(self, meta: SegmentMeta, reason: str) -> None:
        self._findings.lost_segments.append(meta.segment_seq)
        await self.sweeper.lose(meta, reason)
