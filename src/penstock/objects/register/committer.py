"""The writing half of a register: one task that takes in waiting changes and commits them in groups.

The task lives only while somebody waits, and belongs to the register: a caller that is cancelled
leaves its change to the write under way, if there is one, and disturbs nobody else. Every change is
answered once, whatever happens: with a value, with its own error, or with `OutcomeUnknown` when a
write with it was sent and nothing certain followed.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from penstock.clock import Clock
from penstock.errors import AtCapacity, Closed, Fenced, OutcomeUnknown, PenstockError
from penstock.objects.register.attempt import Move
from penstock.objects.register.cell import Cell, Sealed
from penstock.objects.register.contention import Contention
from penstock.objects.register.draft import Caller, GroupDraft, KnownValue, drafted
from penstock.objects.register.format import RegisterFormat, Token

__all__ = ["Committer"]

T = TypeVar("T")


class Committer(Generic[T]):
    """Takes changes in with `submit`, and answers each through its future.

    `fence` is the one held, if any. `known` is the value last seen: it may be old, which costs a conflict.
    """

    def __init__(
        self,
        cell: Cell[T],
        format: RegisterFormat[T],
        *,
        writer_id: str,
        waiting_max: int,
        cached: bool,
        contention: Contention,
        clock: Clock,
    ) -> None:
        self.fence: int | None = None
        # Fences that this register set out to hold next: an answer may be lost, and then the object tells.
        self.renewals: set[int] = set()
        self.known: KnownValue[T] | None = None
        self._cell = cell
        self._format = format
        self._writer_id = writer_id
        self._attempt_number = 0
        self._waiting_max = waiting_max
        self._cached = cached
        self._contention = contention
        self._clock = clock
        self._waiting: deque[Caller[T]] = deque()
        self._group: list[Caller[T]] = []
        self._writer: asyncio.Task[None] | None = None

    def submit(self, caller: Caller[T]) -> None:
        waiting = len(self._group) + len(self._waiting)
        if waiting >= self._waiting_max:
            why = f"{waiting} changes already wait for a write to land"
            raise AtCapacity(f"{self._cell} accepts no more changes", why, "slow down and try again", caller.change)
        self._waiting.append(caller)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name=f"writer of {self._cell}")

    async def stop(self) -> None:
        """End the task. Whoever waits is answered: `Closed`, or `OutcomeUnknown` if a write was sent."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait((self._writer,))
            # A task that is cancelled before its first step never comes to its own `except`.
            self._dismiss()

    def check_fence(self, value: T, held: int | None) -> None:
        current = self._format.fence(value)
        if current in self.renewals:
            self._hold(current)
        elif held is not None and current != held:
            why = f"this one holds fence {held}, and the object is at fence {current}"
            raise Fenced(f"{self._cell} was taken over", why, "stop: the newer holder continues from here")

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
        self._fail(
            (*self._group, *self._waiting),
            Closed(f"{self._cell} was closed", "close() was called before this change was sent"),
        )
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
            own = OutcomeUnknown(f"it is not known whether {self._cell} was updated", why, "read it, then decide")
        elif isinstance(error, PenstockError):
            own = copy.copy(error)
        if own is not error:
            own.__cause__ = error
        return own

    # One group, from the first try to the last -------------------------------------------------------

    async def _commit(self) -> None:
        base = await self._begin()
        while True:
            self._gather()
            sealed = self._seal(base)
            if sealed is not None:
                move, self.known = await self._cell.settle(sealed, self._check_wanted)
                if self.known is not None and move is Move.DONE:
                    self._land(sealed.draft, self.known.value)
                    return
                if self.known is not None:
                    base = self.known
                    continue
                await self._pause()
            # Whoever is left after a draft without a write asked while its base was being read, or was only
            # told what is visible: look again, at what is durable.
            self._gather()
            base = await self._look(durable=sealed is None)

    async def _begin(self) -> KnownValue[T]:
        """The base of a first try: the value last seen, or after letting older changes pass, the current one."""
        self._gather()
        last = self.known
        if not self._contention.calm:
            await self._pause()
        elif self._cached and last is not None and self.fence in (None, self._format.fence(last.value)):
            # A read that began before this register took the fence may have left a value with the old one.
            return last
        base = await self._look()
        if last is not None and last.version == base.version:
            self._contention.undisturbed()
        return base

    async def _look(self, *, durable: bool = False) -> KnownValue[T]:
        self.known = known = await self._cell.fetch(self._check_wanted, self.known, durable=durable)
        return known

    async def _pause(self) -> None:
        # The first is the oldest: what it has waited counts for the whole group.
        await self._clock.sleep(self._contention.pause(self._clock.monotonic() - self._group[0].asked))

    def _gather(self) -> None:
        """Take in everybody who waits by now, and let go of those who left. A fence is taken alone."""
        while self._waiting and not (self._group and (self._group[0].takes_fence or self._waiting[0].takes_fence)):
            self._group.append(self._waiting.popleft())
        self._group = [caller for caller in self._group if caller.waits]
        self._check_wanted()

    def _check_wanted(self) -> None:
        if not any(caller.waits for caller in self._group):
            raise _Abandoned

    def _seal(self, base: KnownValue[T]) -> Sealed[T] | None:
        """The group's changes as bytes to put in the place of `base`; None when there is nothing to write."""
        if not self._group[0].takes_fence:
            self.check_fence(base.value, self.fence)
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

    def _land(self, draft: GroupDraft[T], value: T) -> None:
        if draft.writers[0].takes_fence:
            # Held even if the caller has left by now: it is ours, and nobody else's.
            self._hold(self._format.fence(value))
        draft.deliver(value)

    def _hold(self, fence: int) -> None:
        self.fence = fence
        self.renewals.clear()


class _Abandoned(Exception):
    """Nobody waits any more for what was being done."""
