"""What every subscriber has done, as a state machine that `ack.log` replays. Pure.

For each subscriber a high-water mark and the acknowledgements above it; for each segment the subscribers that it still
waits for; and the marks from which numbers go on when all files are gone. Every change is a record, and applying a
record twice changes nothing: a start may replay more than it must.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import msgspec

from penstock.quiver.acks.marks import MarkSet

__all__ = [
    "AckState",
    "Checkpoint",
    "Outcome",
    "OutcomeRecord",
    "Reclaimed",
    "SealRecord",
    "SubscriberRecord",
    "Subscription",
]


class Outcome(IntEnum):
    """What became of a segment at one subscriber. All but NACK settle it."""

    ACK = 1
    NACK = 2
    REJECTED = 3  # refused for good: a dead letter
    DROPPED = 4  # removed at the cap before it was processed
    EXPIRED = 5  # removed because of its age
    LOST = 6  # damaged, or gone
    REPLAYED = 7  # to be delivered once more


_SETTLING: Final = frozenset({Outcome.ACK, Outcome.REJECTED, Outcome.DROPPED, Outcome.EXPIRED, Outcome.LOST})


class OutcomeRecord(msgspec.Struct, array_like=True, frozen=True):
    """One line of `ack.log`."""

    segment_seq: int
    subscriber: str
    outcome: Outcome
    time_ms: int
    reason: str = ""


class SubscriberRecord(msgspec.Struct, array_like=True, frozen=True):
    """A subscriber that came, paused or went."""

    subscriber: str
    is_registered: bool
    is_active: bool
    time_ms: int
    # Where a new one begins: everything up to here counts as done.
    mark: int


class Reclaimed(msgspec.Struct, array_like=True, frozen=True):
    """Segments whose files are about to go, and the numbers that must never be given again."""

    segment_seqs: list[int]
    next_segment_seq: int
    finalised_through: int


class SealRecord(msgspec.Struct, array_like=True, frozen=True):
    """A segment that is delivered before it has files: a start cuts it from the log at the same bundles."""

    segment_seq: int
    first_bundle: int
    last_bundle: int


class SubscriberPart(msgspec.Struct, array_like=True, frozen=True):
    subscriber: str
    is_active: bool
    seen_ms: int
    mark: int
    gaps: list[int]
    attempts: list[tuple[int, int]]
    rejected: list[tuple[int, str]]


class Checkpoint(msgspec.Struct, array_like=True, frozen=True):
    """The whole state: records before it need not be read."""

    next_segment_seq: int
    finalised_through: int
    reclaimed_mark: int
    reclaimed_gaps: list[int]
    subscribers: list[SubscriberPart]


@dataclass(slots=True)
class Subscription:
    name: str
    done: MarkSet
    is_active: bool = True
    seen_ms: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    rejected: dict[int, str] = field(default_factory=dict)


class AckState:
    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        # Segments that have files or a seal, and for each the subscribers that have not settled it.
        self.outstanding: dict[int, set[str]] = {}
        # Those of them that wait for nobody.
        self.settled: set[int] = set()
        # Segments that are delivered from memory: the log has their bundles.
        self.seals: dict[int, SealRecord] = {}
        self.next_segment_seq = 1
        self.finalised_through = 0
        self.reclaimed = MarkSet()

    # Records --------------------------------------------------------------------------------------

    def settle(self, record: OutcomeRecord) -> bool:
        """Apply one outcome; whether it settled something that was not settled before."""
        self.next_segment_seq = max(self.next_segment_seq, record.segment_seq + 1)
        subscription = self.subscriptions.get(record.subscriber)
        if subscription is None:
            return False
        subscription.seen_ms = max(subscription.seen_ms, record.time_ms)
        if record.outcome is Outcome.REPLAYED:
            return self._replay(subscription, record.segment_seq)
        if record.segment_seq in subscription.done:
            return False
        if record.outcome not in _SETTLING:
            attempts = subscription.attempts.get(record.segment_seq, 0)
            subscription.attempts[record.segment_seq] = attempts + 1
            return False
        subscription.done.add(record.segment_seq)
        subscription.attempts.pop(record.segment_seq, None)
        if record.outcome is Outcome.REJECTED:
            subscription.rejected[record.segment_seq] = record.reason
        self._stop_waiting(record.segment_seq, record.subscriber)
        self._let_go(record.segment_seq)
        return True

    def change(self, record: SubscriberRecord) -> None:
        if not record.is_registered:
            self.subscriptions.pop(record.subscriber, None)
            for segment_seq in self.outstanding:
                self._stop_waiting(segment_seq, record.subscriber)
            for segment_seq in list(self.seals):
                self._let_go(segment_seq)
            return
        known = self.subscriptions.get(record.subscriber)
        if known is None:
            known = self.subscriptions[record.subscriber] = Subscription(record.subscriber, MarkSet(record.mark))
            # Gone between the moment it chose its mark and this one.
            for segment_seq in _between(record.mark + 1, self.reclaimed, self.next_segment_seq):
                known.done.add(segment_seq)
            for segment_seq, waiting in self.outstanding.items():
                if segment_seq not in known.done:
                    waiting.add(record.subscriber)
                    self.settled.discard(segment_seq)
        known.is_active = record.is_active
        known.seen_ms = max(known.seen_ms, record.time_ms)

    def reclaim(self, record: Reclaimed) -> None:
        self.next_segment_seq = max(self.next_segment_seq, record.next_segment_seq)
        self.finalised_through = max(self.finalised_through, record.finalised_through)
        for segment_seq in record.segment_seqs:
            self.reclaimed.add(segment_seq)
            self.forget(segment_seq)
            self.seals.pop(segment_seq, None)
            for subscription in self.subscriptions.values():
                # Whoever waits for it still came after the outcomes of all others: it cannot come any more.
                subscription.done.add(segment_seq)
                subscription.rejected.pop(segment_seq, None)
                subscription.attempts.pop(segment_seq, None)

    def seal(self, record: SealRecord) -> None:
        """A segment is delivered from memory; one whose files were durable, or that is gone, is not any more."""
        self.next_segment_seq = max(self.next_segment_seq, record.segment_seq + 1)
        if record.segment_seq not in self.outstanding and record.segment_seq not in self.reclaimed:
            self.seals[record.segment_seq] = record
            self._await_all(record.segment_seq)

    # Segments -------------------------------------------------------------------------------------

    def publish(self, segment_seq: int, last_bundle: int) -> None:
        """A segment's files are durable: it waits for every subscriber that has not settled it."""
        self.next_segment_seq = max(self.next_segment_seq, segment_seq + 1)
        self.finalised_through = max(self.finalised_through, last_bundle)
        self.seals.pop(segment_seq, None)
        self._await_all(segment_seq)

    def drop_stale_seals(self) -> None:
        """At a start: a segment whose bundles the log has let go of had files. Without them it is missing."""
        for seal in [seal for seal in self.seals.values() if seal.last_bundle <= self.finalised_through]:
            del self.seals[seal.segment_seq]
            self.forget(seal.segment_seq)

    def _let_go(self, segment_seq: int) -> None:
        """A segment that has only a seal is gone with its last outcome: there is nothing else to remove."""
        seal = self.seals.get(segment_seq)
        if seal is not None and self.is_processed(segment_seq):
            self.reclaim(Reclaimed([segment_seq], self.next_segment_seq, seal.last_bundle))

    def _await_all(self, segment_seq: int) -> None:
        self.outstanding[segment_seq] = {
            name for name, subscription in self.subscriptions.items() if segment_seq not in subscription.done
        }
        if not self.outstanding[segment_seq]:
            self.settled.add(segment_seq)

    def _stop_waiting(self, segment_seq: int, subscriber: str) -> None:
        waiting = self.outstanding.get(segment_seq)
        if waiting is not None:
            waiting.discard(subscriber)
            if not waiting:
                self.settled.add(segment_seq)

    def forget(self, segment_seq: int) -> None:
        """It is not there any more."""
        self.outstanding.pop(segment_seq, None)
        self.settled.discard(segment_seq)

    def is_processed(self, segment_seq: int) -> bool:
        """Whether nobody waits for it any more. Without subscribers it waits for the first one."""
        return bool(self.subscriptions) and not self.outstanding[segment_seq] and not self.is_rejected(segment_seq)

    def is_rejected(self, segment_seq: int) -> bool:
        """Whether it is somebody's dead letter."""
        return any(segment_seq in subscription.rejected for subscription in self.subscriptions.values())

    def missing(self) -> list[tuple[int, str]]:
        """Segments that a subscriber waits for and that have no files: they would hold up its mark for ever."""
        return [
            (segment_seq, name)
            for name, subscription in self.subscriptions.items()
            for segment_seq in range(subscription.done.mark + 1, self.next_segment_seq)
            if segment_seq not in subscription.done and segment_seq not in self.outstanding
        ]

    def start_mark(self, *, from_newest: bool) -> int:
        """The mark of a subscriber that registers now."""
        if from_newest or not self.outstanding:
            return self.next_segment_seq - 1
        return min(self.outstanding) - 1

    def lag(self, name: str) -> int:
        """Segments that wait for a subscriber."""
        return sum(name in waiting for waiting in self.outstanding.values())

    def lags(self) -> dict[str, int]:
        """The same for all: of hundreds of subscribers, each is asked for its mark and not for every segment."""
        numbers = sorted(self.outstanding)
        return {
            name: len(numbers)
            - bisect_right(numbers, known.done.mark)
            - sum(number in self.outstanding for number in known.done.gaps)
            for name, known in self.subscriptions.items()
        }

    # Checkpoints ----------------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            self.next_segment_seq,
            self.finalised_through,
            self.reclaimed.mark,
            sorted(self.reclaimed.gaps),
            [_part(subscription) for subscription in self.subscriptions.values()],
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Begin from a checkpoint, with what it knows of subscribers in place of all that was known."""
        self.next_segment_seq = max(self.next_segment_seq, checkpoint.next_segment_seq)
        self.finalised_through = max(self.finalised_through, checkpoint.finalised_through)
        self.reclaimed = MarkSet(checkpoint.reclaimed_mark, checkpoint.reclaimed_gaps)
        self.subscriptions = {part.subscriber: _subscription(part) for part in checkpoint.subscribers}

    def _replay(self, subscription: Subscription, segment_seq: int) -> bool:
        if segment_seq not in self.outstanding:
            return False
        subscription.done.discard(segment_seq)
        subscription.rejected.pop(segment_seq, None)
        self.outstanding[segment_seq].add(subscription.name)
        self.settled.discard(segment_seq)
        return True


def _between(start: int, done: MarkSet, end: int) -> Iterable[int]:
    return (number for number in range(start, end) if number in done)


def _part(subscription: Subscription) -> SubscriberPart:
    return SubscriberPart(
        subscription.name,
        subscription.is_active,
        subscription.seen_ms,
        subscription.done.mark,
        sorted(subscription.done.gaps),
        sorted(subscription.attempts.items()),
        sorted(subscription.rejected.items()),
    )


def _subscription(part: SubscriberPart) -> Subscription:
    return Subscription(
        part.subscriber,
        MarkSet(part.mark, part.gaps),
        part.is_active,
        part.seen_ms,
        dict(part.attempts),
        dict(part.rejected),
    )
