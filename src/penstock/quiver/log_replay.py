"""A start reads the log: bundles that are in no segment yet go into memory again.

Segments that were delivered before they had files are cut again at the same bundles, under their old numbers, so that
what was acknowledged of them stays acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.errors import Corrupt
from penstock.quiver.acks.ack_log import AckLog
from penstock.quiver.acks.ack_state import AckState, Outcome, OutcomeRecord, Reclaimed, SealRecord
from penstock.quiver.bundles.payload import decode_call
from penstock.quiver.delivery.handover import Handover
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.log.frames import Frame
from penstock.quiver.opening import Findings
from penstock.quiver.segment.finaliser import Finaliser

__all__ = ["LogReplay"]


class LogReplay:
    """What it finds is told in `findings`. `changed` is notified when a segment has left memory."""

    def __init__(
        self,
        ack_log: AckLog,
        finaliser: Finaliser,
        handover: Handover,
        doors: Doors,
        changed: WakeUp,
        findings: Findings,
    ) -> None:
        self._ack_log = ack_log
        self._finaliser = finaliser
        self._handover = handover
        self._doors = doors
        self._changed = changed
        self._findings = findings

    @property
    def _state(self) -> AckState:
        return self._ack_log.state

    async def settle_missing(self) -> None:
        """Segments that are gone without a word would hold up marks for ever."""
        missing = self._state.missing()
        now_ms = self._doors.clock.now_ms()
        self._findings.lost_segments = sorted({number for number, _ in missing})
        await self._ack_log.settle(
            [OutcomeRecord(number, name, Outcome.LOST, now_ms, "its files are gone") for number, name in missing]
        )

    async def read(self, frames: Iterable[Frame], oldest_ms: int) -> None:
        """Take in the frames of the log, but for what came in before `oldest_ms`."""
        seals = deque(self._state.seals[number] for number in sorted(self._state.seals))
        for frame in frames:
            while seals and frame.sequence > seals[0].last_bundle:
                await self._cut_again(seals.popleft())
            if seals:
                await self._keep_apart(seals[0])
            self._take(frame, oldest_ms, in_seal=bool(seals))
            while self._finaliser.is_behind and self._finaliser.failure is None:
                await self._changed.wait()
        for seal in seals:
            await self._cut_again(seal)

    def _take(self, frame: Frame, oldest_ms: int, *, in_seal: bool) -> None:
        try:
            ingestion_ms, bundles, shared = decode_call(frame.payload)
        except Corrupt:
            self._findings.lost_bundles.append((frame.sequence, frame.sequence + frame.count))
            return
        if ingestion_ms < oldest_ms:
            self._findings.expired_bundles += len(bundles)
            return
        done = max(0, self._state.finalised_through + 1 - frame.sequence)
        take = self._finaliser.collect if in_seal else self._finaliser.add
        take(bundles[done:], frame.sequence + done, ingestion_ms, None if done else shared)
        self._findings.replayed_bundles += len(bundles) - done

    async def _keep_apart(self, seal: SealRecord) -> None:
        """What is open is of a segment that was damaged: it must not get into the next one."""
        if self._finaliser.open.bundles and self._finaliser.open.last_bundle < seal.first_bundle:
            self._finaliser.seal("replay")
            while self._finaliser.sealed is not None and self._finaliser.failure is None:
                await self._changed.wait()

    async def _cut_again(self, seal: SealRecord) -> None:
        """What is open now are the bundles of a segment that was delivered before the end: it keeps its number."""
        number = seal.segment_seq
        if self._finaliser.open.bundles:
            # Subscribers wait for it, and may ask before it is written.
            self._handover.hold(self._finaliser.open, number)
            self._finaliser.seal("replay", number)
            return
        now_ms, reason = self._doors.clock.now_ms(), "the log has none of its bundles any more"
        waiting = sorted(self._state.outstanding[number])
        self._findings.lost_segments.append(number)
        await self._ack_log.settle([OutcomeRecord(number, name, Outcome.LOST, now_ms, reason) for name in waiting])
        through = max(seal.last_bundle, self._state.finalised_through)
        await self._ack_log.append(Reclaimed([number], self._state.next_segment_seq, through))
