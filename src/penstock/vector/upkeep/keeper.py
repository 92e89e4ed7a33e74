"""When upkeep is done: in the pauses between writes, a bounded step at a time, each of them a write of its own.

The keeper waits until nobody has written for a while and everything is durable, asks the coordinator for one step
and looks again. Steps take their place in the one order of all writes: whatever is promised of a flush holds for
them, and a write that arrives during one waits for that one at most. A writer that never pauses is not kept waiting:
its flushes do what can wait no longer (`upkeep.PATIENCE`).
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.coordinator import Coordinator, Mark
from penstock.errors import DeadlineExceeded, PenstockError
from penstock.vector.config import VectorConfig
from penstock.vector.format.keys import CollectionName
from penstock.vector.format.state import CollectionState, Head
from penstock.vector.operations import Change, CollectionSpec, Tend, VectorDelta
from penstock.vector.read.records import VectorSnapshot
from penstock.vector.upkeep.steps import is_due

__all__ = ["Keeper"]


class Keeper:
    """Sees to the upkeep of the collections in use. Belongs to one event loop."""

    def __init__(
        self,
        coordinator: Coordinator[VectorDelta, VectorSnapshot],
        config: VectorConfig,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._coordinator = coordinator
        self._config = config
        self._clock = clock
        self._watch: asyncio.Task[None] | None = None
        # Heads of collections whose last step led nowhere, because a block is damaged or rows cannot be told apart:
        # they are left alone until they are written to.
        self._given_up: dict[CollectionName, Head] = {}

    def notice(self, state: CollectionState) -> None:
        """A collection was written to or opened: if it needs upkeep, wait for a pause."""
        waiting = self._watch is not None and not self._watch.done()
        if not waiting and math.isfinite(self._config.upkeep_pause_seconds) and self._is_due(state):
            self._watch = asyncio.create_task(self._await_pauses())

    async def tend(self) -> None:
        """Do all upkeep that is due, now, and return when it is durable."""
        while (state := self._next()) is not None:
            # Steps build on each other in memory: waiting for each on the disk would make small ones very slow.
            await self._step(state, Mark.FLUSHED)
        await self._coordinator.flush()

    async def close(self) -> None:
        """Wait for no more pauses. A step that the coordinator has accepted is still done."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    async def _await_pauses(self) -> None:
        # A store that takes no more writes tells its callers why; its upkeep goes on with their next one.
        with suppress(PenstockError):
            marks = self._coordinator.watermarks
            while True:
                await self._clock.sleep(self._config.upkeep_pause_seconds)
                before, marks = marks, self._coordinator.watermarks
                if not before.applied == marks.applied == marks.durable:
                    continue
                if (state := self._next()) is None:
                    return
                await self._step_patiently(state)
                marks = self._coordinator.watermarks

    async def _step_patiently(self, state: CollectionState) -> None:
        """A step, however long the store is away meanwhile: whoever writes next must not find it given up for that."""
        try:
            await self._step(state)
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

    def _next(self) -> CollectionState | None:
        """The collection that a step is due for, if any."""
        states = self._coordinator.current.snapshot.states
        return next((state for state in states.values() if self._is_due(state)), None)

    def _is_due(self, state: CollectionState) -> bool:
        return self._given_up.get(state.name) != state.head and is_due(state, self._config)

    async def _step(self, state: CollectionState, until: Mark = Mark.DURABLE) -> None:
        spec = CollectionSpec(state.name, state.dimensions, state.metric, state.analysis)
        handle = await self._coordinator.write(VectorDelta([Change(((spec, Tend()),))]))
        await self._coordinator.flush(handle.epoch, until)
        after = self._coordinator.current.snapshot.states.get(state.name)
        if after is not None and _shape(after) == _shape(state):
            self._given_up[state.name] = after.head
        else:
            self._given_up.pop(state.name, None)


def _shape(state: CollectionState) -> object:
    """What a step changes if it leads anywhere; commits, blocks and the numbers of lists change in any case."""
    return msgspec.structs.replace(state.head, commit=0, next_serial=0, next_list=0), sorted(state.list_rows.tolist())
