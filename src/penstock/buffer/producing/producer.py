"""A producer: takes records, gathers them into batches, and says when they are durable in the queue.

Durable means that the batch object and its manifest entry are both stored. Batches enter the queue in
the order in which their inputs were accepted. A batch closes on size, on number of inputs, on time and
on demand; a flood of inputs does not hold back the timed close. Everything accepted and not yet durable
is within the bounds of `ProducerConfig`: over them `produce` waits in line, and `try_produce` refuses.
The line has a bound too: a caller that it cannot hold is refused with its records.
A cancelled `produce` has accepted nothing. A failure that no handle raised is raised by the next `flush`
or by `close`, once. One producer belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final

from penstock.buffer.config import ProducerConfig
from penstock.buffer.producing.accumulator import Input, OpenBatch
from penstock.buffer.producing.handle import BatchOutcome, InputHandle
from penstock.buffer.producing.losses import Losses
from penstock.buffer.producing.pipeline import Pipeline
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import AtCapacity, Closed, OutcomeUnknown, PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects import Body, ObjectStore
from penstock.observability import SILENT, Observer, names

__all__ = ["Producer"]

# A caller that never waits for anything keeps the event loop from everyone else; after this long, it must.
# Short against the flush interval, long against the cost of a turn of the loop.
_TURN_SECONDS: Final = 0.005


class Producer:
    """The write side of the queue. Any number of producers, in any number of processes, share one manifest."""

    def __init__(
        self,
        store: ObjectStore,
        config: ProducerConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
        on_failure: Callable[[PenstockError, int], None] | None = None,
    ) -> None:
        """`on_failure` gets the error and the number of records of every batch that fails, or may have."""
        self._config = config or ProducerConfig()
        self._clock = clock
        self._observer = observer
        self._on_failure = on_failure
        self._losses = Losses()
        self._pipeline = Pipeline(
            store,
            self._config,
            released=self._release,
            failed=self._lose,
            halted=self._stop,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        self._open: OpenBatch | None = None
        self._held_bytes = 0
        # Callers that wait for room, first come first served: an event each, set when it is theirs to look.
        self._line: deque[asyncio.Event] = deque()
        self._waiting_bytes = 0
        self._timer: asyncio.Task[None] | None = None
        # When an input was first accepted in this turn of the loop.
        self._turn_began: float | None = None
        self._closed = False

    async def start(self) -> None:
        """Refuse a folder that belongs to another queue now, and not with the first batch. May be left out."""
        self._check_accepting()
        await self._pipeline.claim()

    async def produce(self, records: Iterable[Body], metadata: Body = b"") -> InputHandle:
        """Accept records, all into one batch; wait for room if there is none.

        `AtCapacity` with the records when those who wait already hold `max_waiting_bytes`.
        `metadata` goes with each of them to the consumer. Mutable buffers are copied at once, so
        changing them while this waits changes nothing.
        """
        self._check_accepting()
        offered = Input.of(records, metadata, self._config)
        if not self._line and self._has_room(offered) and not self._owes_a_turn():
            return self._accept(offered, "direct")
        if self._line and self._waiting_bytes + offered.size > self._config.waiting_bytes_max:
            raise self._refused(records)
        return await self._wait_in_line(offered)

    def try_produce(self, records: Iterable[Body], metadata: Body = b"") -> InputHandle:
        """Accept records now, or raise `AtCapacity` with them."""
        self._check_accepting()
        offered = Input.of(records, metadata, self._config)
        if self._line or not self._has_room(offered):
            raise self._refused(records)
        return self._accept(offered, "direct")

    async def flush(self) -> None:
        """Wait until everything accepted before this call is durable; raise the first failure among it, if any.

        A batch that failed before counts too, unless its handles or an earlier flush have raised it.
        """
        self._check_accepting()
        await self._drain()

    async def close(self) -> None:
        """Refuse new input, flush, and release everything; callers in line get `Closed`. Safe to repeat.

        Raises what a flush would raise; a producer that halted says so here too.
        """
        self._closed = True
        self._call_all()
        try:
            await self._drain()
            if self._pipeline.halted is not None:
                raise self._halted(self._pipeline.halted)
        finally:
            if self._idle and self._timer is not None:
                self._timer.cancel()
            if self._idle:
                await self._pipeline.close()

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def halted(self) -> bool:
        """Whether a write of the manifest was given up: then everything is refused, and a new producer is needed."""
        return self._pipeline.halted is not None

    @property
    def conflict_rate(self) -> float:
        """Writes of the manifest that lost to another writer, per write, so far."""
        return self._pipeline.conflict_rate

    @property
    def in_flight_bytes(self) -> int:
        """Bytes held for what is accepted and not yet durable, with room for the copy that closing a batch makes."""
        return self._held_bytes

    # Admission -----------------------------------------------------------------------------------------

    def _check_accepting(self) -> None:
        if self._pipeline.halted is not None:
            raise self._halted(self._pipeline.halted)
        if self._closed:
            raise Closed("the producer is closed", "close() was called", "make a new one")

    def _halted(self, cause: PenstockError) -> Closed:
        closed = Closed("the producer has halted", f"its pending writes were given up: {cause}", "make a new one")
        closed.__cause__ = cause
        return closed

    def _refused(self, records: Iterable[Body]) -> AtCapacity:
        self._observer.count(names.BUFFER_INPUTS, admission="refused")
        why = (
            f"{self._held_bytes} bytes in {len(self._pipeline)} batches are not durable yet, "
            f"and {len(self._line)} callers wait with {self._waiting_bytes} bytes"
        )
        return AtCapacity("the producer has no room", why, "wait for earlier handles, then try again", records)

    def _has_room(self, offered: Input) -> bool:
        """Whether this input fits now. Makes room where closing a batch is all it takes."""
        if self._open is not None and (reason := self._open.full(self._config)) and not self._seal(reason):
            return False
        if self._held_bytes + offered.held <= self._config.max_in_flight_bytes:
            return True
        # The bytes it waits for may be those of the open batch, which nothing else might close for long.
        self._seal("pressure")
        return False

    def _owes_a_turn(self) -> bool:
        now = self._clock.monotonic()
        if self._turn_began is None:
            self._turn_began = now
            asyncio.get_running_loop().call_soon(self._begin_turn)
        return now - self._turn_began > _TURN_SECONDS

    def _begin_turn(self) -> None:
        self._turn_began = None

    async def _wait_in_line(self, offered: Input) -> InputHandle:
        mine = asyncio.Event()
        self._line.append(mine)
        self._waiting_bytes += offered.size
        # Even the first in line waits one turn of the loop, so that a flood lets others run.
        asyncio.get_running_loop().call_soon(self._call_next)
        try:
            while True:
                await mine.wait()
                mine.clear()
                self._check_accepting()
                # Accepted here, with no await behind it: a cancelled caller has never been accepted.
                if self._line[0] is mine and self._has_room(offered):
                    return self._accept(offered, "waited")
        finally:
            self._line.remove(mine)
            self._waiting_bytes -= offered.size
            self._call_next()

    def _call_next(self) -> None:
        if self._line:
            self._line[0].set()

    def _call_all(self) -> None:
        for waiting in self._line:
            waiting.set()

    def _accept(self, offered: Input, admission: str) -> InputHandle:
        self._observer.count(names.BUFFER_INPUTS, admission=admission)
        if self._open is None:
            self._open = OpenBatch(self._clock.monotonic())
        batch = self._open
        batch.add(offered, self._clock.now_ms())
        self._held_bytes += offered.held
        if reason := batch.full(self._config):
            self._seal(reason)
        elif self._timer is None:
            self._timer = asyncio.create_task(self._close_on_time(), name="buffer timer")
        return InputHandle(batch.outcome)

    # Closing batches -------------------------------------------------------------------------------------

    def _seal(self, reason: str) -> bool:
        """Close the open batch if there is one; False when the pipeline has no room, and then it goes in first."""
        batch = self._open
        if batch is None:
            return True
        if len(self._pipeline) >= self._config.max_in_flight_batches:
            batch.overdue = reason
            return False
        self._open = None
        self._observer.count(names.BUFFER_FLUSHES, reason=reason)
        self._observer.count(names.BUFFER_RECORD_BYTES, len(batch.block))
        self._pipeline.submit(batch)
        self._measure()
        return True

    async def _close_on_time(self) -> None:
        """Runs while there is an open batch, and closes each at its time. One sleeper serves them all."""
        try:
            while self._open is not None and self._open.overdue is None:
                left = self._open.opened_at + self._config.flush_interval_seconds - self._clock.monotonic()
                if left > 0:
                    await self._clock.sleep(left)
                else:
                    self._seal("interval")
        finally:
            self._timer = None

    def _release(self, size: int) -> None:
        """A batch was encoded or settled: its parts or its bytes are gone, and in the second case its place is free."""
        self._held_bytes -= size
        if self._pipeline.halted is None and self._open is not None and self._open.overdue is not None:
            self._seal(self._open.overdue)
        self._measure()
        self._call_next()

    def _stop(self, error: PenstockError) -> None:
        """The pipeline has halted: what it was never given gets the same answer as what it never tried."""
        if self._open is not None:
            self._held_bytes -= 2 * self._open.size
            self._lose(self._open.outcome, self._open.block.count, error)
            self._open = None
        self._call_all()

    def _lose(self, outcome: BatchOutcome, records: int, error: PenstockError) -> None:
        """Every batch that fails passes here once: handles, flush, the metric and the callback all learn of it."""
        outcome.failed(error)
        self._losses.add(outcome)
        kind = "unknown" if isinstance(error, OutcomeUnknown) else "failed"
        self._observer.count(names.BUFFER_FAILED_INPUTS, outcome.unheard, outcome=kind)
        if self._on_failure is not None:
            # In a turn of its own: what it raises goes to the loop's handler, and holds nobody up.
            asyncio.get_running_loop().call_soon(self._on_failure, error, records)

    # Draining --------------------------------------------------------------------------------------------

    @property
    def _idle(self) -> bool:
        return self._open is None and len(self._pipeline) == 0

    async def _drain(self) -> None:
        outcomes = self._pipeline.outcomes
        if self._open is not None:
            outcomes.append(self._open.outcome)
            self._seal("demand")
        for outcome in outcomes:
            await outcome.told()
        failure = self._losses.take(outcomes)
        # A halt is told every time, and with its reason; what it ended needs no second word.
        halted_before = self._pipeline.halted is not None and not outcomes
        if failure is not None and not halted_before:
            raise failure

    def _measure(self) -> None:
        self._observer.gauge(names.BUFFER_IN_FLIGHT_BYTES, self._held_bytes)
        self._observer.gauge(names.BUFFER_IN_FLIGHT_BATCHES, len(self._pipeline))
