"""A cell: one object seen through a format, read with its version and written on condition.

The thin shell around `attempt.py`: it turns what the store raises into answers, what a re-read shows
into sights, and goes on until the outcome of a write is certain. `Corrupt` and `Unsupported` bodies
are refused with the key and the store in the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.clock import Clock
from penstock.errors import (
    Conflict,
    Corrupt,
    NotFound,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
    Unsupported,
)
from penstock.objects.attempt import Answer, Attempt, Move, Sight, agreed
from penstock.objects.contention import Contention
from penstock.objects.draft import Draft, Known
from penstock.objects.format import Format, Token
from penstock.objects.port import ObjectStore, check_key
from penstock.observability import Observer, names

__all__ = ["Cell", "Sealed"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sealed(Generic[T]):
    """A draft made ready to write: stamped, and encoded once for all its repeats."""

    draft: Draft[T]
    token: Token
    value: T
    body: bytes


class Cell(Generic[T]):
    """The store's side of a register."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        format: Format[T],
        *,
        name: str,
        attempt_seconds: float,
        contention: Contention,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._store = store
        self._key = check_key(key)
        self._format = format
        self._name = name
        self._attempt_seconds = attempt_seconds
        self._contention = contention
        self._clock = clock
        self._observer = observer
        self.calls = 0

    def __str__(self) -> str:
        return f"register {self._key!r} in {self._store.url}"

    async def fetch(self, go_on: Callable[[], None]) -> Known[T]:
        """The current value. Faults that a retry may cure are retried until `go_on` raises."""
        while True:
            self.calls += 1
            call = self.calls
            try:
                async with asyncio.timeout(self._attempt_seconds):
                    found = await self._store.get(self._key)
            except NotFound:
                return Known(self._format.empty(), None, call)
            except (Unavailable, TimeoutError):
                await self.pause()
                go_on()
            else:
                return Known(self._decode(found.data), found.meta.version, call)

    async def settle(self, sealed: Sealed[T], go_on: Callable[[], None]) -> tuple[Move, Known[T] | None]:
        """Write until the outcome is certain: DONE or REBASE, with what is known of the object by then.

        `OutcomeUnknown` when it can no longer become certain. While the draft is exposed, a write of
        it may still land, whatever else is raised.
        """
        attempt, lost, resolved = Attempt(), False, "unproved"
        try:
            while True:
                answer, seen = await self._put(sealed, attempt)
                attempt, move = attempt.after_write(answer)
                lost = lost or attempt.outstanding
                if move is Move.REREAD:
                    seen = await self.fetch(go_on)
                    attempt, move = attempt.after_read(self._sight(sealed, seen))
                sealed.draft.expose(attempt.outstanding)
                if move is Move.UNPROVED:
                    raise self._unproved()
                if move is not Move.REPEAT:
                    resolved = "landed" if move is Move.DONE and answer is not Answer.LANDED else "dead"
                    return move, seen
                await self.pause()
        finally:
            if lost:
                self._observer.count(names.REGISTER_UNKNOWN, register=self._name, resolved=resolved)

    async def pause(self) -> None:
        await self._clock.sleep(self._contention.pause())

    async def _put(self, sealed: Sealed[T], attempt: Attempt) -> tuple[Answer, Known[T] | None]:
        self.calls += 1
        call = self.calls
        sealed.draft.expose(True)
        try:
            async with asyncio.timeout(self._attempt_seconds):
                meta = await self._store.put_if(self._key, sealed.body, version=sealed.draft.base.version)
        except Conflict:
            self._contention.lost_to_another()
            self._observer.count(names.REGISTER_CONFLICTS, register=self._name)
            return Answer.CONFLICT, None
        except Unavailable:
            return Answer.UNSENT, sealed.draft.base
        except OutcomeUnknown:
            return Answer.LOST, None
        except PenstockError:
            # A definite refusal of this call; it says nothing of an earlier one.
            sealed.draft.expose(attempt.outstanding)
            raise
        except TimeoutError:
            return Answer.LOST, None
        self._contention.landed()
        self._observer.count(names.REGISTER_COMMITS, register=self._name)
        self._observer.observe(names.REGISTER_GROUP_SIZE, len(sealed.draft.writers), register=self._name)
        return Answer.LANDED, Known(sealed.value, meta.version, call)

    def _sight(self, sealed: Sealed[T], seen: Known[T]) -> Sight:
        if seen.version == sealed.draft.base.version:
            return Sight.SAME
        return agreed(
            self._format.landed(seen.value, sealed.token) if caller.landed is None else caller.landed(seen.value)
            for caller in sealed.draft.writers
        )

    def _unproved(self) -> OutcomeUnknown:
        why = "its answer was lost, others wrote since, and the object no longer shows whether it landed"
        return OutcomeUnknown(f"a write to {self} cannot be proved", why, "read it, then decide")

    def _decode(self, body: bytes) -> T:
        try:
            return self._format.decode(body)
        except PenstockError as error:
            kind = Unsupported if isinstance(error, Unsupported) else Corrupt
            raise kind(f"{self} cannot be decoded", str(error), error.remedy or _REMEDY) from error
        except Exception as error:
            raise Corrupt(f"{self} cannot be decoded", f"{type(error).__name__}: {error}", _REMEDY) from error


_REMEDY = "restore the object from a good copy; it was left as it is"
