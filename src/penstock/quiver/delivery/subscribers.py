"""Subscribers of one instance: who is registered, what each gets next, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from penstock.clock import Deadline
from penstock.errors import Closed, Corrupt, InvalidInput, NotFound
from penstock.observability import names
from penstock.quiver.acks.ack_log import AckLog
from penstock.quiver.acks.ack_state import AckState, Outcome, OutcomeRecord, SubscriberRecord, Subscription
from penstock.quiver.config import SubscriberConfig, check_subscriber
from penstock.quiver.delivery.delivery import Delivery
from penstock.quiver.delivery.dispatch import Dispatch, retry_seconds
from penstock.quiver.doors import Doors, WakeUp
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.setting_values import patience

__all__ = ["Subscribers"]


class Subscribers:
    """`meta` knows every segment that is there; `reader` opens one, and `lost` is awaited with one that cannot be read.

    `settled` is called whenever a segment waits for one subscriber less.
    """

    def __init__(
        self,
        log: AckLog,
        meta: Callable[[int], SegmentMeta],
        doors: Doors,
        changed: WakeUp,
        *,
        reader: Callable[[SegmentMeta], Awaitable[dict[str, list[pa.Table]]]],
        lost: Callable[[SegmentMeta, str], Awaitable[None]],
        settled: Callable[[], None],
    ) -> None:
        self._log = log
        self._meta = meta
        self._doors = doors
        self._changed = changed
        self._reader = reader
        self._lost = lost
        self._settled = settled
        self._dispatches: dict[str, Dispatch] = {}
        # On the clock that nobody sets: one that is set must not make orphans of all. Before a start nobody could ask.
        self._opened_at = doors.clock.monotonic()
        self._asked_at: dict[str, float] = {}
        # How many wait for a subscriber's next segment at this moment.
        self._asking: Counter[str] = Counter()
        self._closed = False

    @property
    def _state(self) -> AckState:
        return self._log.state

    async def register(self, name: str, config: SubscriberConfig | None = None) -> None:
        """Take a subscriber in, or take an old one up again where it was."""
        config = config if config is not None else SubscriberConfig()
        if not isinstance(config, SubscriberConfig):
            raise InvalidInput(f"the settings {config!r} are not for a subscriber", "a SubscriberConfig is needed")
        known = self._state.subscriptions.get(check_subscriber(name))
        if known is None or not known.is_active:
            mark = self._state.start_mark(from_newest=config.from_newest)
            await self._log.append(SubscriberRecord(name, True, True, self._doors.clock.now_ms(), mark))
        old = self._dispatches.get(name)
        dispatch = Dispatch(config)
        dispatch.in_flight = old.in_flight if old else set()
        for segment_seq, waiting in self._state.outstanding.items():
            if name in waiting:
                dispatch.add(segment_seq)
        self._dispatches[name] = dispatch
        self._asked_at[name] = self._doors.clock.monotonic()
        self._changed.notify()

    async def deactivate(self, name: str) -> None:
        """Deliver nothing more, and keep everything for it until it registers again."""
        known = self._known(name)
        await self._log.append(SubscriberRecord(name, True, False, self._doors.clock.now_ms(), known.done.mark))
        self._dispatches.pop(name, None)
        self._changed.notify()

    async def unregister(self, name: str) -> None:
        """Forget it for good: no segment waits for it any more."""
        self._known(name)
        await self._log.append(SubscriberRecord(name, False, False, self._doors.clock.now_ms(), 0))
        self._dispatches.pop(name, None)
        self._changed.notify()
        self._settled()

    async def next(self, name: str, timeout: float | None = None) -> Delivery | None:
        """The next segment; None when there is none within `timeout` seconds."""
        patience("timeout", timeout)
        self._known(name)
        deadline = None if timeout is None else Deadline(self._doors.clock, timeout)
        self._asking[name] += 1
        try:
            return await self._next(name, deadline)
        finally:
            self._asked_at[name] = self._doors.clock.monotonic()
            self._asking -= Counter([name])

    async def _next(self, name: str, deadline: Deadline | None) -> Delivery | None:
        while True:
            if self._closed:
                raise Closed("the store is closed", "close() was called", "open it again")
            dispatch = self._dispatch(name)
            segment_seq = dispatch.take(self._doors.clock.monotonic())
            if segment_seq is not None:
                return self._delivery(name, segment_seq)
            if deadline is not None and deadline.passed:
                return None
            await self._changed.wait(self._pause(dispatch, deadline))

    def publish(self, segment_seq: int) -> None:
        """Tell those that wait for a new segment."""
        for name in self._state.outstanding[segment_seq]:
            if name in self._dispatches:
                self._dispatches[name].add(segment_seq)
        self._changed.notify()

    def forget(self, segment_seq: int) -> None:
        for dispatch in self._dispatches.values():
            dispatch.discard(segment_seq)

    def is_read(self, segment_seq: int) -> bool:
        return any(segment_seq in dispatch.in_flight for dispatch in self._dispatches.values())

    def orphans(self, seconds: float) -> list[str]:
        """Subscribers that nobody has asked for, for so long, while the store was open."""
        before = self._doors.clock.monotonic() - seconds
        return [
            name
            for name in self._state.subscriptions
            if self._asked_at.get(name, self._opened_at) < before and not self.is_served(name)
        ]

    def is_served(self, name: str) -> bool:
        """Whether somebody waits for its next segment, or has one."""
        return name in self._asking or (name in self._dispatches and bool(self._dispatches[name].in_flight))

    def keeps_up(self, name: str) -> bool:
        """Whether somebody serves it who has no more than one segment to do."""
        return self.is_served(name) and name in self._dispatches and self._dispatches[name].backlog <= 1

    def dead_letters(self, name: str) -> list[int]:
        """The segments that it has refused for good, oldest first."""
        return sorted(self._known(name).rejected)

    async def replay(self, name: str, segment_seqs: list[int]) -> list[int]:
        """Deliver segments once more that are still there, dead letters above all; returns which."""
        self._known(name)
        found = [number for number in dict.fromkeys(segment_seqs) if number in self._state.outstanding]
        now_ms = self._doors.clock.now_ms()
        await self._log.settle([OutcomeRecord(number, name, Outcome.REPLAYED, now_ms) for number in found])
        # Some may have gone while that was written.
        found = [number for number in found if number in self._state.outstanding]
        if name in self._dispatches:
            for number in found:
                self._dispatches[name].add(number)
        self._changed.notify()
        return found

    def close(self) -> None:
        self._closed = True
        self._changed.notify()

    # What a delivery reports ----------------------------------------------------------------------

    async def read(self, meta: SegmentMeta) -> dict[str, list[pa.Table]]:
        try:
            return await self._reader(meta)
        except Corrupt as error:
            await self._lost(meta, str(error))
            raise

    async def ack(self, delivery: Delivery) -> None:
        await self._settle(delivery, Outcome.ACK, "")

    async def nack(self, delivery: Delivery, reason: str, *, permanent: bool) -> None:
        name, number = delivery.subscriber, delivery.segment_seq
        dispatch = self._dispatches.get(name)
        attempts_max = dispatch.config.attempts_max if dispatch else 0
        if permanent or 0 < attempts_max <= delivery.attempt:
            await self._settle(delivery, Outcome.REJECTED, reason)
            self._doors.observer.event(
                names.QUIVER_DEAD_LETTER, instance=self._doors.instance, subscriber=name, segment=number, reason=reason
            )
            return
        await self._write(delivery, Outcome.NACK, reason)
        if dispatch is not None:
            pause = retry_seconds(dispatch.config, delivery.attempt, self._doors.entropy)
            dispatch.delay(number, self._doors.clock.monotonic() + pause)
        self._changed.notify()

    async def defer(self, delivery: Delivery, delay: float) -> None:
        dispatch = self._dispatches.get(delivery.subscriber)
        if dispatch is not None:
            dispatch.delay(delivery.segment_seq, self._doors.clock.monotonic() + delay)
        self._changed.notify()

    async def _settle(self, delivery: Delivery, outcome: Outcome, reason: str) -> None:
        await self._write(delivery, outcome, reason)
        dispatch = self._dispatches.get(delivery.subscriber)
        if dispatch is not None:
            dispatch.discard(delivery.segment_seq)
        self._changed.notify()
        self._settled()

    async def _write(self, delivery: Delivery, outcome: Outcome, reason: str) -> None:
        record = OutcomeRecord(
            delivery.segment_seq, delivery.subscriber, outcome, self._doors.clock.now_ms(), reason[:1000]
        )
        try:
            await self._log.settle([record])
        except BaseException:
            # Nobody knows whether it was written: it is offered again, soon.
            await self.defer(delivery, 0.0)
            raise
        self._doors.observer.count(names.QUIVER_OUTCOMES, subscriber=delivery.subscriber, outcome=outcome.name.lower())

    def _delivery(self, name: str, segment_seq: int) -> Delivery:
        attempts = self._state.subscriptions[name].attempts.get(segment_seq, 0)
        return Delivery(self, name, self._meta(segment_seq), attempts + 1)

    def _pause(self, dispatch: Dispatch, deadline: Deadline | None) -> float | None:
        due = dispatch.next_due()
        pauses = [] if due is None else [max(0.001, due - self._doors.clock.monotonic())]
        if deadline is not None:
            pauses.append(deadline.remaining)
        return min(pauses, default=None)

    def _dispatch(self, name: str) -> Dispatch:
        self._known(name)
        dispatch = self._dispatches.get(name)
        if dispatch is None:
            raise NotFound(
                f"subscriber {name!r} is not active", "it was deactivated, or not registered since the store was opened"
            )
        return dispatch

    def _known(self, name: Any) -> Subscription:
        known = self._state.subscriptions.get(name) if isinstance(name, str) else None
        if known is None:
            raise NotFound(f"no subscriber {name!r} is registered", "it never was, or was unregistered", "register it")
        return known
