"""A register: one object under compare-and-swap, with a fence, shared by any number of processes.

`update` applies a pure change and writes on the condition that nobody wrote in between, again and
again until it succeeds or its deadline passes. A change is applied exactly once even when the answer
to a write was lost: the body carries a proof, and reading it again decides (`attempt.py`). Changes
that wait while a write is under way share the next one (`draft.py`).

The object must never be deleted while registers use it: a version that comes back ends every proof.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import AtCapacity, Closed, DeadlineExceeded, Fenced, InvalidInput, OutcomeUnknown, PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy, ulid
from penstock.objects.attempt import Move
from penstock.objects.cell import Cell, Sealed
from penstock.objects.contention import Contention
from penstock.objects.draft import Caller, Draft, Known, drafted
from penstock.objects.format import Format, Token
from penstock.objects.port import ObjectStore
from penstock.observability import SILENT, Observer

__all__ = ["Format", "Register", "RegisterPolicy", "Token"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RegisterPolicy:
    """The bounds of a register."""

    # From the call to its end, waiting for others included.
    deadline_seconds: float = 30.0
    # One store call without an answer by then counts as lost; leaves time to read again before the deadline.
    attempt_seconds: float = 10.0
    # Changes that wait in one process. Each is a closure of some hundred bytes; more means a stalled store.
    waiting_max: int = 1024
    # The longest pause between two tries, however many writers there are; several fit the deadline.
    window_seconds_max: float = 5.0
    # Begin from the value last seen instead of reading it, as long as nobody else seems to write.
    # Saves a quarter of an update's time; a value that turns out to be old costs one conflict.
    cached: bool = True

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "attempt_seconds", "waiting_max", "window_seconds_max"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"register policy {name} = {getattr(self, name)}", "it must be above zero")


DEFAULT_POLICY: Final = RegisterPolicy()


class Register(Generic[T]):
    """One object under compare-and-swap. Belongs to one event loop; any number of its tasks may share it."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        format: Format[T],
        *,
        name: str = "register",
        policy: RegisterPolicy = DEFAULT_POLICY,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._format = format
        self._name = name
        self._policy = policy
        self._clock = clock
        self._contention = Contention(entropy, window_seconds_max=policy.window_seconds_max)
        self._cell = Cell(
            store,
            key,
            format,
            name=name,
            attempt_seconds=policy.attempt_seconds,
            contention=self._contention,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        # Unique to this instance: two registers of one process never take each other's commit for their own.
        self._writer_id = ulid(clock.now_ms(), entropy)
        self._attempt_number = 0
        self._fence: int | None = None
        self._known: Known[T] | None = None
        self._waiting: deque[Caller[T]] = deque()
        self._group: list[Caller[T]] = []
        self._writer: asyncio.Task[None] | None = None
        self._closed = False

    def __str__(self) -> str:
        return str(self._cell)

    @property
    def fence(self) -> int | None:
        """The fence this register holds, or None before `acquire_fence`."""
        return self._fence

    @property
    def conflict_rate(self) -> float:
        """Writes that lost to another writer, per write, so far."""
        return self._contention.rate

    async def read(self) -> T:
        """The current value. `Fenced` once another register has taken the fence this one holds."""
        self._check_open()
        held = self._fence
        try:
            async with asyncio.timeout(self._policy.deadline_seconds):
                known = await self._cell.fetch(lambda: None)
        except TimeoutError as error:
            raise DeadlineExceeded(f"{self} was not read", self._out_of_time(), "try again later") from error
        # A fence taken by this register while the read was under way is no take-over.
        if self._format.fence(known.value) != self._fence:
            self._check_fence(known.value, held)
        self._known = known
        return known.value

    async def update(self, change: Callable[[T], T], *, landed: Callable[[T], bool | None] | None = None) -> T:
        """Apply `change` once, and return a value that is known to include it.

        `change` must be pure: it may run several times, each time on a newer value. Returning the very
        object it was given writes nothing; raising fails this caller alone. `landed` replaces the
        format's proof for this change: is the change in this value's past?

        `DeadlineExceeded`: surely not applied. `OutcomeUnknown`: it may have been, or may still be.
        """
        return await self._submit(change, landed)

    async def acquire_fence(self) -> int:
        """Take the fence from whoever holds it: their later reads and updates raise `Fenced`.

        A take-over whose answer was lost is never claimed, because another register may have written
        the very same number: the fence is raised once more instead.
        """
        form = self._format

        def raised(value: T) -> T:
            return form.with_fence(value, form.next_fence(form.fence(value)))

        return form.fence(await self._submit(raised, lambda _: False, takes_fence=True))

    async def close(self) -> None:
        """Stop. Changes not yet sent fail with `Closed`, those being written with `OutcomeUnknown`. Idempotent."""
        self._closed = True
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait((self._writer,))
            # A task that is cancelled before its first step never comes to its own `except`.
            self._dismiss()

    # The callers' side ------------------------------------------------------------------------------

    async def _submit(
        self, change: Callable[[T], T], landed: Callable[[T], bool | None] | None, *, takes_fence: bool = False
    ) -> T:
        self._check_open()
        waiting = len(self._group) + len(self._waiting)
        if waiting >= self._policy.waiting_max:
            why = f"{waiting} changes already wait for a write to land"
            raise AtCapacity(f"{self} takes no more changes", why, "slow down and try again", change)
        caller = Caller(change, landed, self._clock.monotonic(), self._cell.calls, takes_fence)
        self._waiting.append(caller)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name=f"{self._name} writer")
        try:
            await asyncio.wait((caller.future,), timeout=self._policy.deadline_seconds)
            if caller.waits:
                raise self._expired(caller)
            return caller.future.result()
        finally:
            caller.leave()

    def _expired(self, caller: Caller[T]) -> PenstockError:
        if caller.exposed:
            why = f"{self._out_of_time()}; a write that was sent may have landed or still land"
            return OutcomeUnknown(f"whether {self} was updated is not known", why, "read it, then decide")
        return DeadlineExceeded(f"{self} was not updated", self._out_of_time(), "try again later")

    def _out_of_time(self) -> str:
        reason = self._cell.fault or f"{self._contention.rate:.0%} of its writes so far lost to other writers"
        return f"not done within {self._policy.deadline_seconds:g} s: {reason}"

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self} is closed")

    def _check_fence(self, value: T, held: int | None) -> None:
        current = self._format.fence(value)
        if held is not None and current != held:
            why = f"this one holds fence {held}, and the object is at fence {current}"
            raise Fenced(f"{self} was taken over", why, "stop: the newer holder goes on from here")

    # The writer: one task, alive only while somebody waits -------------------------------------------

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._serve()
        except asyncio.CancelledError:
            self._dismiss()
            raise
        finally:
            self._writer = None

    def _dismiss(self) -> None:
        self._fail((*self._group, *self._waiting), Closed(f"{self} was closed"))
        self._group = []
        self._waiting.clear()

    async def _serve(self) -> None:
        """Commit one group, or fail it: the next one is served whatever happens to this one."""
        try:
            await self._commit()
        except _Abandoned:
            pass
        except Exception as error:  # noqa: BLE001  every failure belongs to those who wait for it
            self._fail(self._group, error)
        self._group = []

    def _fail(self, callers: Iterable[Caller[T]], error: Exception) -> None:
        for caller in callers:
            caller.answer(self._own(error, exposed=caller.exposed))

    def _own(self, error: Exception, *, exposed: bool) -> Exception:
        """The error as one of several callers gets it: an object of its own, and never a false certainty."""
        own = error
        if exposed and not isinstance(error, OutcomeUnknown):
            why = f"a write was sent, and before its answer: {error}"
            own = OutcomeUnknown(f"whether {self} was updated is not known", why, "read it, then decide")
        elif isinstance(error, PenstockError):
            own = copy.copy(error)
        if own is not error:
            own.__cause__ = error
        return own

    async def _commit(self) -> None:
        base = await self._begin()
        while True:
            self._gather()
            sealed = self._seal(base)
            if sealed is not None:
                move, known = await self._cell.settle(sealed, self._check_wanted)
                self._known = known
                if known is not None and move is Move.DONE:
                    self._land(sealed.draft, known.value)
                    return
                if known is not None:
                    base = known
                    continue
                await self._pause()
            # Whoever is left after a draft without a write asked while its base was being read: look again.
            self._gather()
            base = await self._fetch()

    async def _begin(self) -> Known[T]:
        """The base of a first try: the value last seen, or after letting older changes pass, the current one."""
        self._gather()
        last = self._known
        if not self._contention.calm:
            await self._pause()
        elif self._policy.cached and last is not None and self._fence in (None, self._format.fence(last.value)):
            # A read that began before this register took the fence may have left a value with the old one.
            return last
        base = await self._fetch()
        if last is not None and last.version == base.version:
            self._contention.undisturbed()
        return base

    async def _fetch(self) -> Known[T]:
        self._known = await self._cell.fetch(self._check_wanted)
        return self._known

    async def _pause(self) -> None:
        # The first is the oldest: what the whole group has waited counts for it.
        age = self._clock.monotonic() - self._group[0].asked
        await self._clock.sleep(self._contention.pause(age))

    def _gather(self) -> None:
        """Take in everybody who waits by now, and let go of those who left. A fence is taken alone."""
        self._group = [caller for caller in self._group if caller.waits]
        while self._waiting and not (self._group and (self._group[0].takes_fence or self._waiting[0].takes_fence)):
            caller = self._waiting.popleft()
            if caller.waits:
                self._group.append(caller)
        self._check_wanted()

    def _check_wanted(self) -> None:
        if not any(caller.waits for caller in self._group):
            raise _Abandoned

    def _seal(self, base: Known[T]) -> Sealed[T] | None:
        """The group's changes as bytes to put in the place of `base`; None when there is nothing to write."""
        if not self._group[0].takes_fence:
            self._check_fence(base.value, self._fence)
        self._attempt_number += 1
        token = Token(self._writer_id, self._attempt_number)

        def encoded(value: T) -> tuple[T, bytes]:
            stamped = self._format.stamp(value, token)
            return stamped, self._format.encode(stamped)

        draft = drafted(base, self._group)
        try:
            if draft.writers:
                return Sealed(draft, token, *encoded(draft.value))
        except Exception:  # noqa: BLE001  met again below, where it goes to the caller whose change it is
            draft = drafted(base, self._group, check=encoded)
            if draft.writers:
                return Sealed(draft, token, *encoded(draft.value))
        draft.conclude()
        return None

    def _land(self, draft: Draft[T], value: T) -> None:
        if draft.writers[0].takes_fence:
            # Held even if the caller has left by now: it is ours, and nobody else's.
            self._fence = self._format.fence(value)
        draft.deliver(value)


class _Abandoned(Exception):
    """Nobody waits any more for what was being done."""
