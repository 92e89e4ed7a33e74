"""Drafts: the changes of several callers applied to one base, which then land together or not at all.

Pure but for answering the callers. A conclusion that needs no write (nothing to change, or a change
that refuses) is given only when the base was looked up after the caller asked: a cached base may be
old, and a refusal caused by a neighbour's change holds only once that neighbour's change has landed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Caller", "GroupDraft", "KnownValue", "drafted"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownValue(Generic[T]):
    """A value, its version (None: no object yet), and the number of the store call that told of it.

    One that is not `durable` was only seen, and a power loss may take it back.
    `written_ms`: the store's own stamp; None where a write told of it, since not every store gives one back.
    """

    value: T
    version: str | None
    call: int
    durable: bool = False
    written_ms: int | None = None


@dataclass(slots=True, eq=False)
class Caller(Generic[T]):
    """One waiting change, asked for at `asked` seconds, when `since` store calls had been begun."""

    change: Callable[[T], T]
    landed: Callable[[T], bool | None] | None
    asked: float
    since: int
    takes_fence: bool = False
    # A write with this change was sent, and may have landed or still land.
    exposed: bool = False
    future: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def waits(self) -> bool:
        return not self.future.done()

    def answer(self, result: T | Exception) -> None:
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)

    def leave(self) -> None:
        """Stop waiting. An answer that came too late to be heard is not an unheard error."""
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()


@dataclass(frozen=True, slots=True)
class GroupDraft(Generic[T]):
    """What a group of callers makes of a base. `writers` changed the value, `refused` raised, the rest did nothing."""

    base: KnownValue[T]
    value: T
    writers: tuple[Caller[T], ...]
    idle: tuple[Caller[T], ...]
    refused: tuple[tuple[Caller[T], Exception], ...]

    def expose(self, exposed: bool) -> None:
        for caller in self.writers:
            caller.exposed = exposed

    def deliver(self, value: T) -> None:
        """Answer everybody, now that the draft has landed."""
        for caller in (*self.writers, *self.idle):
            caller.answer(value)
        for caller, error in self.refused:
            caller.answer(error)

    def conclude(self) -> None:
        """Answer those whose conclusion needs no write, as far as the base is younger than their question.

        That nothing is left to do says that it has been done, so it must last; a refusal promises nothing.
        """
        for caller in self.idle:
            if self.base.durable and caller.since < self.base.call:
                caller.answer(self.value)
        for caller, error in self.refused:
            if caller.since < self.base.call:
                caller.answer(error)


def drafted(
    base: KnownValue[T], callers: Iterable[Caller[T]], check: Callable[[T], object] | None = None
) -> GroupDraft[T]:
    """Apply the changes in order. With `check`, a change whose result fails it is refused like one that raises."""
    value = base.value
    writers: list[Caller[T]] = []
    idle: list[Caller[T]] = []
    refused: list[tuple[Caller[T], Exception]] = []
    for caller in callers:
        try:
            after = caller.change(value)
            if check is not None and after is not value:
                check(after)
        except Exception as error:  # noqa: BLE001  whatever a change raises belongs to its caller
            refused.append((caller, error))
            continue
        (idle if after is value else writers).append(caller)
        value = after
    return GroupDraft(base, value, tuple(writers), tuple(idle), tuple(refused))
