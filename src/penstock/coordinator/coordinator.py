"""The coordinator: orders writes, batches them, reports durability and publishes snapshots.

A thin asyncio shell around `machine.Machine`, which takes every decision: here tasks are started, futures
answered and time measured. It belongs to one event loop and shares nothing with other threads. A write
that finds room is accepted without a task switch; whoever is told that a write was accepted can rely on
it being flushed in its order, and whoever was cancelled or refused can rely on it not being taken.
The page docs/rooms/coordinator.md tells what a store must bring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.coordinator.actions import (
    Action,
    BackOff,
    Drop,
    FailWaiters,
    Grant,
    Interrupt,
    Publish,
    Refuse,
    Release,
    StartFlush,
)
from penstock.coordinator.admission import Ticket
from penstock.coordinator.alarms import ArmTimer, Timer
from penstock.coordinator.config import CoordinatorConfig
from penstock.coordinator.failure import ends_program, unsettled
from penstock.coordinator.machine import Machine, State
from penstock.coordinator.meters import Meters
from penstock.coordinator.protocols import Delta, Epochs, FlushHandler
from penstock.coordinator.snapshots import Broadcast, Published, SnapshotSubscription, View
from penstock.coordinator.watermarks import Mark, Waiters, Watermarks
from penstock.errors import AtCapacity, Closed, PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.observability import SILENT, Observer, names

__all__ = ["Coordinator", "WriteHandle"]

D = TypeVar("D", bound=Delta)
S = TypeVar("S")

# A caller that writes in a tight loop never waits while there is room; after so many writes without a turn it
# lets others run, so that flushes overlap with it. About a millisecond at full speed.
_WRITES_PER_YIELD: Final = 1024


class _Turn:
    """Lets everyone run who is ready, once: `asyncio.sleep(0)` without its three coroutines."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_TURN: Final = _Turn()


class WriteHandle:
    """An accepted write. Waiting for a mark makes a flush due within `commit_delay_seconds`."""

    __slots__ = ("_coordinator", "epoch")

    def __init__(self, coordinator: Coordinator[Any, Any], epoch: int) -> None:
        self._coordinator = coordinator
        self.epoch = epoch

    async def wait(self, mark: Mark) -> None:
        """Return when the write has reached `mark`; raise if it does not get there without a retry."""
        await self._coordinator.reached(mark, self.epoch)

    async def flushed(self) -> None:
        """Return when the write is in the published snapshot."""
        await self.wait(Mark.FLUSHED)

    async def durable(self) -> None:
        """Return when the store vouches for the write."""
        await self.wait(Mark.DURABLE)

    def __repr__(self) -> str:
        return f"WriteHandle(epoch={self.epoch})"


class Coordinator(Generic[D, S]):
    """Writes of one store. Made inside a running loop; leaving `async with` shuts it down."""

    def __init__(
        self,
        handler: FlushHandler[D, S],
        snapshot: S,
        config: CoordinatorConfig | None = None,
        *,
        name: str = "coordinator",
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._meters = Meters(observer, name)
        self._name = name
        self._loop = asyncio.get_running_loop()
        # A flush serves many callers: it must not run inside the trace or the log context of one of them.
        self._context = copy_context()
        self._machine: Machine[D, S] = Machine(config or CoordinatorConfig(), handler.empty)
        self._broadcast = Broadcast(snapshot)
        # What the handler returned last, published or not: the state that its next flush builds on.
        self._newest = snapshot
        self._waiters = {Mark.FLUSHED: Waiters(), Mark.DURABLE: Waiters()}
        self._line: dict[Ticket, asyncio.Future[PenstockError | None]] = {}
        self._carriers: dict[Epochs, asyncio.Task[None]] = {}
        self._sleepers: dict[str, asyncio.Task[None]] = {}
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._turning = False
        self._finished = False
        self._streak = 0

    # what is known --------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def config(self) -> CoordinatorConfig:
        return self._machine.config

    @property
    def watermarks(self) -> Watermarks:
        return self._machine.watermarks

    @property
    def failure(self) -> PenstockError | None:
        """Why the coordinator is in the failed state."""
        return self._machine.failure

    @property
    def current(self) -> Published[S]:
        """The published snapshot, with the epoch it covers."""
        return self._broadcast.current

    def subscribe(self) -> SnapshotSubscription[S]:
        """Snapshots from the current one on: always the newest, ending with the shutdown."""
        return self._broadcast.subscribe()

    def view(self) -> View[D, S]:
        """Everything accepted so far, flushed or not, as it stands now. It never changes afterwards."""
        return View(self._broadcast.current.snapshot, self._machine.unflushed(), self._machine.applied)

    async def reached(self, mark: Mark, epoch: int) -> None:
        """Return when everything up to `epoch` has reached `mark`.

        A flush is due at most `commit_delay_seconds` later, and serves all who began to wait by then.
        """
        if self._machine.known(epoch) > getattr(self._machine, mark):
            self._perform(self._machine.expect(epoch, self._clock.monotonic()))
            await self._reached(mark, epoch)

    async def _reached(self, mark: Mark, epoch: int) -> None:
        if epoch <= getattr(self._machine, mark):
            return
        if (failure := self._machine.failure_of(epoch)) is not None:
            raise unsettled(failure)
        await self._waiters[mark].wait(epoch)

    # writing --------------------------------------------------------------------------------------

    async def write(self, delta: D, timeout: float | None = None) -> WriteHandle:
        """Accept a write, waiting for room if need be.

        After `timeout` seconds without room the delta is given back inside `AtCapacity`. An error, a timeout
        and a cancellation alike mean that the write was not accepted.
        """
        size_bytes = delta.size_bytes
        self._streak += 1
        if self._streak > _WRITES_PER_YIELD:
            # It gets its place before it lets others run: whoever comes meanwhile comes after it.
            self._streak = 0
            epoch = self._machine.offer(delta, size_bytes, yields=True)
        else:
            epoch = self._machine.offer(delta, size_bytes)
        if self._machine.due:
            self._nudge()
        if not epoch:
            epoch = await self._write_in_turn(delta, size_bytes, timeout)
        return WriteHandle(self, epoch)

    def try_write(self, delta: D) -> WriteHandle:
        """Accept a write now, or give it back inside `AtCapacity`."""
        size_bytes = delta.size_bytes
        epoch = self._machine.offer(delta, size_bytes, now_or_never=True)
        if self._machine.due:
            self._nudge()
        if not epoch:
            raise self._at_capacity(delta, size_bytes, "there is no room for it now, or others wait already")
        return WriteHandle(self, epoch)

    async def write_durable(self, delta: D, timeout: float | None = None) -> WriteHandle:
        """Write, flush, and return when the write is durable; `timeout` bounds the wait for room alone.

        Once the write is accepted, an error or a cancellation does not take it back.
        """
        handle = await self.write(delta, timeout)
        # As `flush` would, without its checks: nothing can have happened to a write accepted in this very step.
        self._machine.ask_flush(handle.epoch)
        self._nudge()
        await self._waiters[Mark.DURABLE].wait(handle.epoch)
        return handle

    async def flush(self, epoch: int | None = None, until: Mark = Mark.DURABLE) -> int:
        """Flush everything up to `epoch`, or all accepted before this call, and wait until it is durable.

        Returns the epoch that was waited for. Nothing new to flush, or an epoch that is there already,
        returns at once.
        """
        wanted = self._machine.ask_flush(epoch)
        self._nudge()
        await self._reached(until, wanted)
        return wanted

    async def _write_in_turn(self, delta: D, size_bytes: int, timeout: float | None) -> int:
        ticket = self._machine.queue(size_bytes)
        try:
            if ticket.granted:
                await _TURN
            else:
                await self._wait_for_room(ticket, delta, timeout)
            # Behind everyone who came earlier, in whatever order the loop wakes them.
            while not self._machine.room.is_next(ticket):
                await _TURN
        except BaseException:
            self._machine.withdraw(ticket)
            self._nudge()
            raise
        # No await between the claim and the return: a caller that is cancelled was never accepted.
        try:
            return self._machine.claim(ticket, delta)
        finally:
            if self._machine.due:
                self._nudge()

    async def _wait_for_room(self, ticket: Ticket, delta: D, timeout: float | None) -> None:
        began = self._clock.monotonic()
        answer: asyncio.Future[PenstockError | None] = self._loop.create_future()
        self._line[ticket] = answer
        self._nudge()
        try:
            async with asyncio.timeout(timeout):
                refused = await answer
        except TimeoutError:
            raise self._at_capacity(delta, ticket.size_bytes, f"no room within {timeout:g} s") from None
        finally:
            del self._line[ticket]
        self._meters.waited(self._clock.monotonic() - began)
        if refused is not None:
            raise refused

    def _at_capacity(self, delta: D, size_bytes: int, why: str) -> AtCapacity:
        self._meters.rejected()
        room = self._machine.room
        return AtCapacity(
            f"a write of {size_bytes} bytes was not accepted",
            f"{why}: {room.writes} of {room.max_writes} writes and {room.bytes} of {room.max_bytes} bytes are held",
            "write again later; the delta is in `rejected`",
            rejected=delta,
        )

    # steering -------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Begin no flush until `resume`; return when none is with the handler. Writes fill the buffer meanwhile."""
        self._machine.pause()
        await self._at_rest.wait()

    def resume(self) -> None:
        self._machine.resume()
        self._nudge()

    async def retry(self) -> int:
        """Leave the failed state, hand over again what is kept, and return when all of it is durable."""
        self._machine.retry()
        return await self.flush()

    async def shutdown(self) -> None:
        """Refuse new writes, flush the accepted ones, and return when they are durable.

        Raises what a flush failed with; everything is still kept then, and `retry` or `abort` may follow.
        A cancelled caller does not stop the shutdown; a second call waits for the same end.
        """
        self._perform(self._machine.shutdown())
        await self._reached(Mark.DURABLE, self._machine.applied)
        self._finish()

    def abort(self) -> None:
        """Stop at once and flush nothing more. Whoever waits for an accepted write gets `OutcomeUnknown`."""
        if not self._finished:
            self._perform(self._machine.abort())
            self._finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.shutdown()
        except BaseException:
            self.abort()
            raise

    def _finish(self) -> None:
        self._finished = True
        for sleeper in self._sleepers.values():
            sleeper.cancel()
        self._broadcast.close()

    # the machine's hands --------------------------------------------------------------------------

    def _nudge(self) -> None:
        """Have the machine decide soon, once for everything that happens before."""
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn, context=self._context)

    def _turn(self) -> None:
        self._turning = False
        self._streak = 0
        self._perform(self._machine.turn(self._clock.monotonic()))
        self._meters.gauges(self._machine, self._waiters)

    def _perform(self, actions: list[Action[D, S]]) -> None:
        try:
            for action in actions:
                self._perform_one(action)
        finally:
            if self._machine.due:
                self._nudge()

    def _perform_one(self, action: Action[D, S]) -> None:
        match action:
            case StartFlush():
                self._start(action)
            case Publish(snapshot, epoch):
                self._broadcast.publish(snapshot, epoch)
            case Release(mark, epoch):
                self._waiters[mark].release(epoch)
            case FailWaiters(first, cause):
                self._fail_waiters(first, cause)
            case Grant(ticket):
                self._answer(ticket, None)
            case Refuse(ticket, error):
                self._answer(ticket, error)
            case ArmTimer(timer, seconds):
                self._sleep(timer, seconds, partial(self._timer_fired, timer))
            case BackOff(seconds_max, epochs, error):
                self._back_off(seconds_max, epochs, error)
            case Drop(epochs):
                self._carriers[epochs].cancel()
            case Interrupt(interruption):
                raise interruption

    def _answer(self, ticket: Ticket, error: PenstockError | None) -> None:
        answer = self._line[ticket]
        if not answer.done():
            answer.set_result(error)

    def _fail_waiters(self, first: int, cause: PenstockError) -> None:
        if not self._machine.aborted:
            self._meters.failed(first, cause)
        for waiters in self._waiters.values():
            waiters.fail(first, partial(unsettled, cause))

    def _back_off(self, seconds_max: float, epochs: Epochs, error: BaseException) -> None:
        seconds = self._entropy.uniform(0.0, seconds_max)
        self._meters.retrying(epochs, error, seconds)
        self._sleep("backoff", seconds, self._backoff_over)

    def _sleep(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        async def sleep() -> None:
            await self._clock.sleep(seconds)
            then()

        self._sleepers[name] = self._loop.create_task(sleep())

    def _timer_fired(self, timer: Timer) -> None:
        self._perform(self._machine.timer_fired(timer, self._clock.monotonic()))

    def _backoff_over(self) -> None:
        self._machine.backoff_over()
        self._nudge()

    # carrying a flush -----------------------------------------------------------------------------

    def _start(self, flush: StartFlush[D]) -> None:
        self._meters.began(flush.epochs, flush.reason)
        self._at_rest.clear()
        carrier = self._loop.create_task(self._carry(flush))
        self._carriers[flush.epochs] = carrier
        carrier.add_done_callback(partial(self._carried, flush.epochs))

    async def _carry(self, flush: StartFlush[D]) -> None:
        began = self._clock.monotonic()
        try:
            durable = await self._land(flush)
            self._meters.reached(Mark.FLUSHED, self._clock.monotonic() - began)
            if self._machine.awaits(flush.epochs):
                await durable()
                self._settle(flush, began)
        except BaseException as error:
            # Whatever a handler raises must reach everyone who waits.
            self._report_failure(flush.epochs, self._cause(flush.epochs, error))
            if ends_program(error):
                raise

    def _carried(self, epochs: Epochs, carrier: asyncio.Task[None]) -> None:
        del self._carriers[epochs]
        # An error that ended the program was told there; the task is not the place to look for it.
        if not carrier.cancelled():
            carrier.exception()

    def _cause(self, epochs: Epochs, error: BaseException) -> BaseException:
        carrier = self._carriers[epochs]
        if isinstance(error, asyncio.CancelledError) and carrier.cancelling():
            # Dropped, and the machine knows; or the loop is ending, and then nobody is left to try again.
            return Closed(f"the flush of epochs {epochs} was cancelled")
        return error

    async def _land(self, flush: StartFlush[D]) -> Callable[[], Awaitable[None]]:
        try:
            with self._observer.span(
                names.COORDINATOR_FLUSH, coordinator=self._name, first=flush.epochs.first, last=flush.epochs.last
            ):
                flushed = await self._handler.flush(flush.delta, self._newest, flush.epochs)
        finally:
            self._at_rest.set()
        self._newest = flushed.snapshot
        self._perform(self._machine.landed(flush.epochs, flushed.snapshot))
        return flushed.durable

    def _settle(self, flush: StartFlush[D], began: float) -> None:
        now = self._clock.monotonic()
        self._meters.reached(Mark.DURABLE, now - began)
        self._meters.durable(now - flush.since)
        self._perform(self._machine.settled(flush.epochs))

    def _report_failure(self, epochs: Epochs, error: BaseException) -> None:
        if self._loop.is_closed():
            # A coroutine that is collected with its loop: nobody can be told any more.
            return
        self._perform(self._machine.failed(epochs, error, self._clock.monotonic()))
