"""When upkeep is done: in the pauses between writes, a bounded step at a time, each of them a write of its own.

The keeper waits until nobody has written for a while and everything is durable, asks the coordinator for one step
and looks again. Steps take their place in the one order of all writes: whatever is promised of a flush holds for
them, and a write that arrives during one waits for that one at most.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from penstock.blocks.read.snapshot import StoreSnapshot
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.coordinator import Coordinator, Delta, Mark
from penstock.errors import DeadlineExceeded, PenstockError

__all__ = ["KeptState", "UpkeepKeeper", "UpkeepPlan"]


class KeptState(Protocol):
    """A part of the store that upkeep works on, one at a time."""

    @property
    def name(self) -> Any: ...

    @property
    def head(self) -> Any: ...


D = TypeVar("D", bound=Delta)
S = TypeVar("S", bound=KeptState)
D_co = TypeVar("D_co", bound=Delta, covariant=True)
S_contra = TypeVar("S_contra", bound=KeptState, contravariant=True)


class UpkeepPlan(Protocol[D_co, S_contra]):
    """The store's part: which step is due."""

    def next_step(self, state: S_contra, /) -> D_co | None:
        """The write that does the next step on a state; None if none is due."""
        ...

    def shape(self, state: S_contra, /) -> object:
        """What a step changes if it leads anywhere."""
        ...


class UpkeepKeeper(Generic[D, S]):
    """Does the upkeep of the states in use. Belongs to one event loop."""

    def __init__(
        self,
        coordinator: Coordinator[D, StoreSnapshot[Any, Any, S]],
        plan: UpkeepPlan[D, S],
        pause_seconds: float,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._coordinator = coordinator
        self._plan = plan
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._watch: asyncio.Task[None] | None = None
        self._closed = False
        # Heads of states whose last step led nowhere, because a block is damaged or rows cannot be told apart: they are
        # left alone until they are written to.
        self._given_up: dict[Hashable, Any] = {}

    def notice(self, state: S) -> None:
        """A state was written to or opened: if it needs upkeep, wait for a pause."""
        waiting = self._watch is not None and not self._watch.done()
        if self._closed:
            # The last flush of a store comes after its upkeep has ended.
            return
        if not waiting and math.isfinite(self._pause_seconds) and self._step_of(state) is not None:
            self._watch = asyncio.create_task(self._await_pauses())

    async def tend(self) -> None:
        """Do all upkeep that is due, now, and return when it is durable."""
        while (step := self._next()) is not None:
            # Steps build on each other in memory: waiting for each on the disk would make small ones very slow.
            await self._do(*step, Mark.FLUSHED)
        await self._coordinator.flush()

    async def close(self) -> None:
        """Wait for no more pauses. A step that the coordinator has accepted is still done."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    async def _await_pauses(self) -> None:
        # A store that takes no more writes tells its callers why; its upkeep goes on with their next one.
        with suppress(PenstockError):
            marks = self._coordinator.watermarks
            while True:
                await self._clock.sleep(self._pause_seconds)
                before, marks = marks, self._coordinator.watermarks
                if not before.applied == marks.applied == marks.durable:
                    continue
                if (step := self._next()) is None:
                    return
                await self._do_patiently(*step)
                marks = self._coordinator.watermarks

    async def _do_patiently(self, state: S, delta: D) -> None:
        """A step, however long the store is away meanwhile: whoever writes next must not find it given up for that."""
        try:
            await self._do(state, delta)
        except PenstockError:
            if not self._waits_alone():
                raise
        while self._waits_alone():
            with suppress(PenstockError):
                await self._coordinator.retry()

    def _waits_alone(self) -> bool:
        """Whether the coordinator gave a step up after transient errors, and holds nothing else."""
        marks = self._coordinator.watermarks
        return isinstance(self._coordinator.failure, DeadlineExceeded) and marks.applied == marks.durable + 1

    def _next(self) -> tuple[S, D] | None:
        """The state that a step is due for, and the step."""
        for state in self._coordinator.current.snapshot.states.values():
            if (delta := self._step_of(state)) is not None:
                return state, delta
        return None

    def _step_of(self, state: S) -> D | None:
        return None if self._given_up.get(state.name) == state.head else self._plan.next_step(state)

    async def _do(self, state: S, delta: D, until: Mark = Mark.DURABLE) -> None:
        before = self._plan.shape(state)
        handle = await self._coordinator.write(delta)
        await self._coordinator.flush(handle.epoch, until)
        after = self._coordinator.current.snapshot.states.get(state.name)
        if after is not None and self._plan.shape(after) == before:
            self._given_up[state.name] = after.head
        else:
            self._given_up.pop(state.name, None)
