"""When upkeep is done: in the pauses between writes, a bounded step at a time, each of them a write of its own."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.coordinator import Coordinator, Mark
from penstock.errors import PenstockError
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.format.keys import BUCKET_MS
from penstock.timeseries.format.state import TenantHead, TenantState
from penstock.timeseries.operations import Expire, Fold, Operation, SampleChange, SeriesDelta
from penstock.timeseries.read.states import SeriesSnapshot
from penstock.timeseries.upkeep.expire import is_expired
from penstock.timeseries.upkeep.fold import due_hours

__all__ = ["SeriesKeeper", "retained_from"]


def retained_from(config: TimeSeriesConfig, now_ms: int) -> int | None:
    """The first hour that retention keeps; None if it keeps all."""
    if math.isinf(config.retention_seconds):
        return None
    return (now_ms - int(1000 * config.retention_seconds)) // BUCKET_MS


class SeriesKeeper:
    """Sees to the upkeep of the tenants in use. Belongs to one event loop."""

    def __init__(
        self,
        coordinator: Coordinator[SeriesDelta, SeriesSnapshot],
        config: TimeSeriesConfig,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._coordinator = coordinator
        self._config = config
        self._clock = clock
        self._watch: asyncio.Task[None] | None = None
        # Heads of tenants whose last step led nowhere: they are left alone until they are written to.
        self._given_up: dict[str, TenantHead] = {}

    def notice(self, state: TenantState) -> None:
        """A tenant was written to: if it needs upkeep, wait for a pause."""
        waiting = self._watch is not None and not self._watch.done()
        if not waiting and math.isfinite(self._config.upkeep_pause_seconds) and self._next_of(state) is not None:
            self._watch = asyncio.create_task(self._await_pauses())

    async def tend(self) -> None:
        """Do all upkeep that is due, now, and return when it is durable."""
        while (step := self._next()) is not None:
            await self._step(*step, Mark.FLUSHED)
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
                if (step := self._next()) is None:
                    return
                await self._step(*step)
                marks = self._coordinator.watermarks

    def _next(self) -> tuple[TenantState, Operation] | None:
        for state in self._coordinator.current.snapshot.states.values():
            if (operation := self._next_of(state)) is not None:
                return state, operation
        return None

    def _next_of(self, state: TenantState) -> Operation | None:
        """The step that is due for a tenant, if any."""
        if self._given_up.get(state.name) == state.head:
            return None
        now_ms = self._clock.now_ms()
        before = retained_from(self._config, now_ms)
        if before is not None and is_expired(state, before):
            return Expire(state.name, before)
        return Fold(state.name) if due_hours(state, self._config, now_ms) else None

    async def _step(self, state: TenantState, operation: Operation, until: Mark = Mark.DURABLE) -> None:
        before = _shape(state)
        handle = await self._coordinator.write(SeriesDelta([SampleChange((operation,))]))
        await self._coordinator.flush(handle.epoch, until)
        after = self._coordinator.current.snapshot.states.get(state.name)
        if after is not None and _shape(after) == before:
            self._given_up[state.name] = after.head
        else:
            self._given_up.pop(state.name, None)


def _shape(state: TenantState) -> object:
    """What a step changes if it leads anywhere."""
    return {shelf: directory.fragments["serial"].tobytes() for shelf, directory in state.directories.items()}
