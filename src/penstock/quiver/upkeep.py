"""What a store does as time passes: old segments are sealed, retention runs, orphans go, figures are told."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.errors import PenstockError
from penstock.observability import names
from penstock.quiver.acks.ack_log import AckLog
from penstock.quiver.config import OrphanPolicy, QuiverConfig
from penstock.quiver.delivery.subscribers import Subscribers
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.retention.admission import Admission
from penstock.quiver.retention.sweeper import Sweeper
from penstock.quiver.segment.finaliser import Finaliser
from penstock.quiver.segment.index import SegmentIndex
from penstock.quiver.wal.wal import Wal

__all__ = ["StoreUpkeep"]

_HOUR_SECONDS: Final = 3600.0


class StoreUpkeep:
    """`wake` is notified when there is something to do before the next round; `changed` when segments went."""

    def __init__(
        self,
        config: QuiverConfig,
        doors: Doors,
        changed: WakeUp,
        wake: WakeUp,
        *,
        ack_log: AckLog,
        wal: Wal,
        segments: SegmentIndex,
        finaliser: Finaliser,
        subscribers: Subscribers,
        admission: Admission,
        sweeper: Sweeper,
    ) -> None:
        self._config = config
        self._doors = doors
        self._changed = changed
        self._wake = wake
        self._ack_log = ack_log
        self._wal = wal
        self._segments = segments
        self._finaliser = finaliser
        self._subscribers = subscribers
        self._admission = admission
        self._sweeper = sweeper

    @property
    def stored_bytes(self) -> int:
        """What is on the disk."""
        return self._wal.bytes + self._ack_log.bytes + self._segments.bytes

    async def run(self) -> None:
        """Until it is cancelled: segments grow old, subscribers are gone, other instances change."""
        clock, tick = self._doors.clock, self._config.maintenance_seconds
        due = clock.monotonic() + tick
        while True:
            await self._wake.wait(min(due - clock.monotonic(), self._finaliser.open_seconds_left(tick)))
            is_due = clock.monotonic() >= due
            try:
                self._finaliser.seal_if_old()
                await self.sweep(settled_only=not is_due)
                if not is_due:
                    continue
                await self._sweeper.redate()
                await self._release_orphans()
                await self._admission.publish()
            except PenstockError as error:
                self._doors.observer.event(names.QUIVER_REMOVAL_FAILED, instance=self._doors.instance, error=str(error))
            due = clock.monotonic() + tick
            self._gauge()

    async def stop(self, running: asyncio.Task[None]) -> None:
        """End `run` between two removals: one that is cut short would leave its files until the next start."""
        async with self._sweeper.turn:
            running.cancel()
            await asyncio.wait([running])

    async def sweep(self, *, settled_only: bool = False) -> None:
        """Remove what retention says, now."""
        plan = await self._sweeper.sweep(settled_only=settled_only)
        if plan.segment_seqs:
            self._changed.notify()

    async def _release_orphans(self) -> None:
        if self._config.orphan_policy is OrphanPolicy.RELEASE:
            for name in self._subscribers.orphans(self._config.orphan_after_hours * _HOUR_SECONDS):
                await self._subscribers.unregister(name)
                self._doors.observer.event(names.QUIVER_ORPHAN_RELEASED, instance=self._doors.instance, subscriber=name)

    def _gauge(self) -> None:
        observer, instance = self._doors.observer, self._doors.instance
        for kind, size in (
            ("wal", self._wal.bytes),
            ("segments", self._segments.bytes),
            ("ack_log", self._ack_log.bytes),
        ):
            observer.gauge(names.QUIVER_BYTES, size, instance=instance, kind=kind)
        observer.gauge(names.QUIVER_CORE_BYTES, self.stored_bytes, core_id=instance)
        observer.gauge(
            names.QUIVER_CORE_CAP_FRACTION, self.stored_bytes / self._config.retention.size_cap, core_id=instance
        )
        observer.gauge(names.QUIVER_OPEN_SEGMENT_BYTES, self._finaliser.bytes, instance=instance)
        observer.gauge(names.QUIVER_ACK_LOG_DEPTH, self._ack_log.depth, instance=instance)
        state = self._ack_log.state
        lags = state.lags()
        for name, known in state.subscriptions.items():
            observer.gauge(names.QUIVER_GAP_SET_SIZE, len(known.done.gaps), instance=instance, subscriber=name)
            observer.gauge(names.QUIVER_OUTSTANDING_SEGMENTS, lags[name], instance=instance, subscriber=name)
