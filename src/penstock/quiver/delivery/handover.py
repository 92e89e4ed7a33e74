"""Delivers a full segment from memory, so that one whose subscribers keep up is written once, into the log, and not twice.

```
seal in ack.log ─▶ delivered ─▶ the last outcome in ack.log ─▶ the log forgets its bundles
                       └▶ time is up, or its memory is needed: written as a file, like any other
```
The seal says which bundles the segment has. A start that finds it without files cuts the same segment from the log,
under the same number, so that what was acknowledged of it stays acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.clock import Deadline
from penstock.errors import PenstockError
from penstock.observability import names
from penstock.quiver.acks.ack_log import AckLog
from penstock.quiver.acks.ack_state import SealRecord
from penstock.quiver.delivery.subscribers import Subscribers
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.segment.open_segment import OpenSegment
from penstock.quiver.segment.segment_store import HeldSegment

__all__ = ["Handover"]


class Handover:
    """One segment at a time. `seconds` is how long it may stay unwritten; 0: not at all.

    `seconds_left` tells how soon its memory is needed (0 or less: now), and `changed` is notified when that or an
    outcome may have changed.
    """

    def __init__(
        self,
        log: AckLog,
        subscribers: Subscribers,
        doors: Doors,
        changed: WakeUp,
        *,
        seconds: float,
        seconds_left: Callable[[], float],
    ) -> None:
        self._log = log
        self._subscribers = subscribers
        self._doors = doors
        self._changed = changed
        self._seconds = seconds
        self._seconds_left = seconds_left
        self.held: HeldSegment | None = None

    def get(self, segment_seq: int) -> HeldSegment | None:
        """The segment, if it is in memory."""
        return self.held if self.held is not None and self.held.meta.segment_seq == segment_seq else None

    def meta(self, segment_seq: int) -> SegmentMeta | None:
        held = self.get(segment_seq)
        return None if held is None else held.meta

    async def settle(self, segment: OpenSegment, segment_seq: int) -> bool:
        """Whether every subscriber has settled it: then it is gone. Else it has to be written, and stays until then."""
        if not self._seconds or not self._are_ready():
            return False
        # Before anybody can hear of it.
        self.hold(segment, segment_seq)
        try:
            await self._log.append(SealRecord(segment_seq, segment.first_bundle, segment.last_bundle))
        except PenstockError:
            # A start may find the seal or not: the segment gets its files under this number in any case.
            return False
        self._subscribers.publish(segment_seq)
        if not await self._is_settled(segment_seq):
            return False
        self._subscribers.forget(segment_seq)
        self.held = None
        self._doors.observer.count(names.QUIVER_GC_EVICTIONS, reason="unwritten")
        return True

    def hold(self, segment: OpenSegment, segment_seq: int) -> None:
        """Have it in memory for whoever asks, until it is written or settled."""
        self.held = HeldSegment(segment, segment_seq)

    def written(self, segment_seq: int) -> None:
        """It has files now, and leaves memory."""
        if self.get(segment_seq) is not None:
            self.held = None

    def _are_ready(self) -> bool:
        """Whether every subscriber is at work or waits for it: whoever is behind would only hold up the writing."""
        subscriptions = self._log.state.subscriptions
        return bool(subscriptions) and all(self._subscribers.keeps_up(name) for name in subscriptions)

    async def _is_settled(self, segment_seq: int) -> bool:
        deadline = Deadline(self._doors.clock, self._seconds)
        while segment_seq not in self._log.state.reclaimed:
            left = min(deadline.remaining, self._seconds_left())
            if left <= 0:
                return False
            await self._changed.wait(left)
        return True
