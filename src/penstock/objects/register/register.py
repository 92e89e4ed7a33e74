"""A register: one object under compare-and-swap, with a fence, shared by any number of processes.

`update` applies a pure change and writes on the condition that nobody wrote in between, again and
again until it succeeds or its deadline passes. A change is applied exactly once even when the answer
to a write was lost: the body carries a proof, and reading it again decides (`attempt.py`). Changes
that wait while a write is under way share the next one (`committer.py`).

The object must never be deleted while registers use it: a version that comes back ends every proof.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed, DeadlineExceeded, InvalidInput, OutcomeUnknown, PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy, ulid
from penstock.objects.port import ObjectStore
from penstock.objects.register.cell import Cell
from penstock.objects.register.committer import Committer
from penstock.objects.register.contention import Contention
from penstock.objects.register.draft import Caller
from penstock.objects.register.format import RegisterFormat, Token
from penstock.observability import SILENT, Observer

__all__ = ["Register", "RegisterFormat", "RegisterPolicy", "Token"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RegisterPolicy:
    """Time limits and retries of a register."""

    # Time limit of a call with its retries, in seconds, not counting time in which the process was stopped. The
    # slowest of 50 contending writers needs a sixth of it.
    deadline_seconds: float = 30.0
    # Time after which a store call without an answer counts as lost, in seconds. It leaves time to read again
    # before the deadline.
    attempt_seconds: float = 10.0
    # Maximum changes that wait in one process. More means a stalled store.
    waiting_max: int = 1024
    # Longest pause between two attempts, in seconds, however many writers there are.
    window_seconds_max: float = 5.0
    # Whether to start from the value last seen instead of reading it, while nobody else seems to write. This
    # saves a quarter of an update's time; a stale value costs one conflict.
    cached: bool = True

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "attempt_seconds", "waiting_max", "window_seconds_max"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"register policy {name} = {getattr(self, name)}", "it must be above zero")


# Of 64 bits: four billion renewals until a fence begins anew, and as many takeovers until one meets another.
_RENEWAL_BYTES: Final = 4

# How closely it is counted for how long this process ran while it waited.
_STEP_SECONDS: Final = 1.0

DEFAULT_POLICY: Final = RegisterPolicy()


class Register(Generic[T]):
    """One object under compare-and-swap. Belongs to one event loop; any number of its tasks may share it."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        format: RegisterFormat[T],
        *,
        name: str = "register",
        policy: RegisterPolicy = DEFAULT_POLICY,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._format = format
        self._policy = policy
        self._clock = clock
        self._entropy = entropy
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
        self._committer = Committer(
            self._cell,
            format,
            # Unique to this instance: two registers of one process never take each other's commit for their own.
            writer_id=ulid(clock.now_ms(), entropy),
            waiting_max=policy.waiting_max,
            cached=policy.cached,
            contention=self._contention,
            clock=clock,
        )
        self._closed = False

    def __str__(self) -> str:
        return str(self._cell)

    @property
    def fence(self) -> int | None:
        """The fence this register holds, or None before `acquire_fence`."""
        return self._committer.fence

    @property
    def conflict_rate(self) -> float:
        """Writes that lost to another writer, per write, so far."""
        return self._contention.rate

    def written_ms(self, value: T) -> int | None:
        """When `value` was written, by the store's clock; None unless it is the very value that was read last.

        For a change that has to know how old its base is: asked from inside of it.
        """
        known = self._committer.known
        return known.written_ms if known is not None and known.value is value else None

    async def read(self, *, durable: bool = False) -> T:
        """The current value. `Fenced` once another register has taken the fence this one holds.

        In a directory a value can be seen before it is durable. Whoever decides by it whether something was
        done, as after an `OutcomeUnknown`, asks for one that is `durable`; that may take a write.
        """
        self._check_open()
        held = self.fence
        try:
            async with asyncio.timeout(self._policy.deadline_seconds):
                known = await self._cell.fetch(lambda: None, self._committer.known, durable=durable)
        except TimeoutError as error:
            raise DeadlineExceeded(f"{self} was not read", self._out_of_time(), "try again later") from error
        # A fence taken by this register while the read was under way is no take-over.
        if self._format.fence(known.value) != self.fence:
            self._committer.check_fence(known.value, held)
        self._committer.known = known
        return known.value

    async def update(
        self,
        change: Callable[[T], T],
        *,
        landed: Callable[[T], bool | None] | None = None,
        asked: float | None = None,
    ) -> T:
        """Apply `change` once, and return a value that is known to include it.

        `change` must be pure: it may run several times, each time on a newer value, and the last run is
        the one that counted. Returning the very object it was given writes nothing; raising fails this
        caller alone. `landed` replaces the format's proof for this change: given a newer value, was the
        last run written? None: this value can no longer tell. `asked` is when the caller began to ask, by the clock,
        if that was earlier: a change that had to be prepared anew keeps its turn and its deadline.

        `DeadlineExceeded`: surely not applied. `OutcomeUnknown`: it may have been, or may still be.
        """
        return await self._submit(change, landed, asked)

    async def acquire_fence(self) -> int:
        """Take the fence from whoever holds it: their later reads and updates raise `Fenced`.

        A take-over whose answer was lost is never claimed, because another register may have written
        the very same number: the fence is raised once more instead.
        """
        form = self._format

        def raised(value: T) -> T:
            return form.with_fence(value, form.next_fence(form.fence(value)))

        return form.fence(await self._submit(raised, lambda _: False, None, takes_fence=True))

    async def renew_fence(self) -> T:
        """Raise the fence that this register holds and keep holding it; the value with it. `Fenced` if it was taken.

        The object has other bytes afterwards, so a write that began before can no longer land. The
        new fence lies a random distance ahead: whoever takes over adds one, so after a lost answer
        nobody's fence is mistaken for this one.
        """
        form, committer = self._format, self._committer
        if self.fence is None:
            raise InvalidInput(f"{self} has no fence to renew", "it was not acquired", "call acquire_fence first")

        def raised(value: T) -> T:
            committer.check_fence(value, self.fence)
            step = int.from_bytes(self._entropy.token(_RENEWAL_BYTES), "little")
            fence = form.next_fence(form.fence(value) + 1 + step)
            committer.renewals.add(fence)
            return form.with_fence(value, fence)

        return await self._submit(raised, lambda value: form.fence(value) in committer.renewals, None, takes_fence=True)

    async def close(self) -> None:
        """Stop. Changes not yet sent fail with `Closed`, those being written with `OutcomeUnknown`. Idempotent."""
        self._closed = True
        await self._committer.stop()

    async def _submit(
        self,
        change: Callable[[T], T],
        landed: Callable[[T], bool | None] | None,
        asked: float | None,
        *,
        takes_fence: bool = False,
    ) -> T:
        self._check_open()
        now = self._clock.monotonic()
        began = now if asked is None else asked
        caller = Caller(change, landed, began, self._cell.calls, takes_fence)
        self._committer.submit(caller)
        try:
            await _answered(caller, began + self._policy.deadline_seconds - now)
            if caller.waits:
                raise self._expired(caller)
            return caller.future.result()
        finally:
            caller.leave()

    def _expired(self, caller: Caller[T]) -> PenstockError:
        if caller.exposed:
            why = f"{self._out_of_time()}; a write that was sent may have landed or still land"
            return OutcomeUnknown(f"it is not known whether {self} was updated", why, "read it, then decide")
        return DeadlineExceeded(f"{self} was not updated", self._out_of_time(), "try again later")

    def _out_of_time(self) -> str:
        reason = self._cell.fault or f"{self._contention.rate:.0%} of its writes so far lost to other writers"
        return f"not done within {self._policy.deadline_seconds:g} s: {reason}"

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self} is closed", "close() was called")


async def _answered(caller: Caller[T], seconds: float) -> None:
    """Wait for the answer, for so many seconds in which this process ran.

    One that was stopped, or frozen with its container, wakes up behind all its deadlines. The store had no chance to
    answer meanwhile, so the time counts step by step, and a step counts the same however late its end is noticed.
    """
    while caller.waits and seconds > 0:
        step = min(seconds, _STEP_SECONDS)
        await asyncio.wait((caller.future,), timeout=step)
        seconds -= step
