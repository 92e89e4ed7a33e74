"""A cell: one object seen through a format, read with its version and written on condition.

The thin shell around `attempt.py`: it turns what the store raises into answers, what a re-read shows
into sights, and goes on until the outcome of a write is certain. Bodies that cannot be decoded are
refused with the key and the store in the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

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
from penstock.ids import Entropy
from penstock.objects.port import Object, ObjectStore, check_key
from penstock.objects.register.attempt import Attempt, Move, Sight, WriteReply, agreed
from penstock.objects.register.contention import Contention
from penstock.objects.register.draft import GroupDraft, KnownValue
from penstock.objects.register.format import RegisterFormat, Token
from penstock.objects.retry import DEFAULT_RETRY
from penstock.observability import Observer, names

__all__ = ["Cell", "Sealed"]

T = TypeVar("T")

_RESTORE: Final = "restore the object from a good copy; it was left as it is"
_UPGRADE: Final = "upgrade this reader, or check the key; the object was left as it is"


@dataclass(frozen=True, slots=True)
class Sealed(Generic[T]):
    """A draft made ready to write: stamped, and encoded once for all its repeats."""

    draft: GroupDraft[T]
    token: Token
    value: T
    body: bytes


class Cell(Generic[T]):
    """The store's side of a register.

    `calls` counts the requests begun, which orders what is known by age.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        format: RegisterFormat[T],
        *,
        name: str,
        attempt_seconds: float,
        contention: Contention,
        clock: Clock,
        entropy: Entropy,
        observer: Observer,
    ) -> None:
        self._store = store
        self._key = check_key(key)
        self._format = format
        self._name = name
        self._attempt_seconds = attempt_seconds
        self._contention = contention
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        # Reads that are answered say nothing about writes that are not.
        self._reading = _Trouble()
        self._writing = _Trouble()
        self.calls = 0

    def __str__(self) -> str:
        return f"register {self._key!r} in {self._store.url}"

    @property
    def fault(self) -> str:
        """What the store last failed with, as long as it has not answered the same verb since."""
        return next((trouble.last for trouble in (self._writing, self._reading) if trouble.in_a_row), "")

    async def fetch(
        self, go_on: Callable[[], None], last: KnownValue[T] | None = None, *, durable: bool = False
    ) -> KnownValue[T]:
        """The current value; of one that is still as it was `last`, nothing is read but its version.

        A value that is visible may be lost again with the power; one that is `durable` may not. Faults that a
        retry may cure are retried until `go_on` raises.
        """
        while True:
            self.calls += 1
            call, began = self.calls, self._clock.monotonic()
            try:
                async with asyncio.timeout(self._attempt_seconds):
                    found = await self._get(last, durable=durable)
                    if found is None:
                        assert last is not None
                        last = await self._stamped(last)
            except NotFound:
                self._answered(self._reading, began)
                return KnownValue(self._format.empty(), None, call, durable)
            except (Unavailable, OutcomeUnknown, TimeoutError) as error:
                self._failed(self._reading, error)
                await self._rest(self._reading)
                go_on()
            else:
                self._answered(self._reading, began)
                if found is None:
                    assert last is not None
                    return KnownValue(last.value, last.version, call, last.durable, last.written_ms)
                return KnownValue(self._decode(found.data), found.meta.version, call, durable, found.meta.modified_ms)

    async def _get(self, last: KnownValue[T] | None, *, durable: bool) -> Object | None:
        if durable:
            return await self._store.get_durable(self._key)
        if last is None or last.version is None:
            return await self._store.get(self._key)
        return await self._store.get_if_changed(self._key, version=last.version)

    async def _stamped(self, known: KnownValue[T]) -> KnownValue[T]:
        """With the store's own stamp, which the answer to a write may not have given; a head moves no body."""
        if known.written_ms is not None:
            return known
        meta = await self._store.head(self._key)
        return replace(known, written_ms=meta.modified_ms) if meta.version == known.version else known

    async def settle(self, sealed: Sealed[T], go_on: Callable[[], None]) -> tuple[Move, KnownValue[T] | None]:
        """Write until the outcome is certain: DONE or REBASE, and what is known of the object by then.

        `OutcomeUnknown` when it can no longer become certain. While the draft is left exposed, a write
        of it may have landed or still land, whatever else is raised.
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
                if move is Move.CONFIRM:
                    seen = await self.fetch(go_on, durable=True)
                    attempt, move = attempt.after_confirmation(self._sight(sealed, seen))
                sealed.draft.expose(attempt.outstanding)
                if move is Move.UNPROVED:
                    raise self._unproved()
                if answer is WriteReply.UNSENT or move is Move.REPEAT:
                    await self._rest(self._writing)
                    go_on()
                if move is not Move.REPEAT:
                    resolved = "landed" if move is Move.DONE and answer is not WriteReply.LANDED else "dead"
                    self._count(move, answer, sealed)
                    return move, seen
        finally:
            if lost:
                self._observer.count(names.REGISTER_UNKNOWN, register=self._name, resolved=resolved)

    async def _put(self, sealed: Sealed[T], attempt: Attempt) -> tuple[WriteReply, KnownValue[T] | None]:
        self.calls += 1
        call, began = self.calls, self._clock.monotonic()
        sealed.draft.expose(True)
        try:
            async with asyncio.timeout(self._attempt_seconds):
                meta = await self._store.put_if(self._key, sealed.body, version=sealed.draft.base.version)
        except Conflict:
            self._answered(self._writing, began)
            return WriteReply.CONFLICT, None
        except Unavailable as error:
            self._failed(self._writing, error)
            return WriteReply.UNSENT, sealed.draft.base
        except OutcomeUnknown as error:
            self._failed(self._writing, error)
            return WriteReply.LOST, None
        except PenstockError:
            # A definite refusal of this call; it says nothing of an earlier one.
            sealed.draft.expose(attempt.outstanding)
            raise
        except TimeoutError as error:
            self._failed(self._writing, error)
            return WriteReply.LOST, None
        self._answered(self._writing, began)
        return WriteReply.LANDED, KnownValue(sealed.value, meta.version, call, durable=True)

    def _sight(self, sealed: Sealed[T], seen: KnownValue[T]) -> Sight:
        if seen.version == sealed.draft.base.version:
            return Sight.SAME
        return agreed(
            self._format.landed(seen.value, sealed.token) if caller.landed is None else caller.landed(seen.value)
            for caller in sealed.draft.writers
        )

    def _count(self, move: Move, answer: WriteReply, sealed: Sealed[T]) -> None:
        if move is Move.DONE:
            self._contention.landed()
            self._observer.count(names.REGISTER_COMMITS, register=self._name)
            self._observer.observe(names.REGISTER_GROUP_SIZE, len(sealed.draft.writers), register=self._name)
        elif answer is not WriteReply.UNSENT:
            self._contention.lost()
            self._observer.count(names.REGISTER_CONFLICTS, register=self._name)

    def _failed(self, trouble: _Trouble, error: Exception) -> None:
        trouble.in_a_row += 1
        trouble.last = str(error) or f"no answer within {self._attempt_seconds:g} s"

    def _answered(self, trouble: _Trouble, began: float) -> None:
        trouble.in_a_row = 0
        self._contention.answered(self._clock.monotonic() - began)

    async def _rest(self, trouble: _Trouble) -> None:
        """Leave a store in trouble alone for a while, longer each time."""
        await self._clock.sleep(DEFAULT_RETRY.pause_seconds(max(0, trouble.in_a_row - 1), self._entropy))

    def _unproved(self) -> OutcomeUnknown:
        why = "its answer was lost, others wrote since, and the object no longer shows whether it landed"
        return OutcomeUnknown(f"a write to {self} cannot be proved", why, "read it, then decide")

    def _decode(self, body: bytes) -> T:
        try:
            return self._format.decode(body)
        except PenstockError as error:
            is_newer = isinstance(error, Unsupported)
            kind, remedy = (Unsupported, _UPGRADE) if is_newer else (Corrupt, _RESTORE)
            raise kind(f"{self} cannot be decoded", str(error), remedy) from error
        except Exception as error:
            raise Corrupt(f"{self} cannot be decoded", f"{type(error).__name__}: {error}", _RESTORE) from error


@dataclass(slots=True)
class _Trouble:
    """The faults of one verb since it was last answered."""

    in_a_row: int = 0
    last: str = ""
