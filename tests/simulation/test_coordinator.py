"""The coordinator in bad weather: one seed decides faults, delays, cancellations, crashes and their order.

A world is a vault and a few lives of a writing process. In each life a pump copies rows of a source, clients
write rows of their own, and everyone may be slow, impatient or cancelled; the life ends in a shutdown, an
abort or a crash, and the next one reads the stored position and goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.coordinator.vault import Row, Rows, Session, Vault, Weather, drawer_of, on_the_tick

from penstock.coordinator import Coordinator, CoordinatorConfig, Mark, State, Watermarks, WriteHandle
from penstock.errors import AtCapacity, PenstockError
from penstock.testing import SeededEntropy, Simulation, simulate

SOURCE_ROWS = 16
LIVES_MAX = 3

ROW_BYTES = 10
LARGEST_ROW = 3

# In fair weather what somebody asks or waits for is done within this time, pauses included; the timer may take longer.
PROMPT_SECONDS = 8.0


class Life:
    """One process with a coordinator, those who use it, and the promises it is held to."""

    def __init__(self, simulation: Simulation, vault: Vault, number: int, *, last: bool) -> None:
        self.clock = simulation.clock
        self.entropy = simulation.entropy.fork(f"life {number}")
        self.number = number
        self.last = last
        self.before = vault.rows()
        self.accepted: dict[int, Row] = {}
        self.bytes: dict[int, int] = {}
        # When each write that waited its turn was called, by epoch.
        self.calls = 0
        self.called: dict[int, int] = {}
        self.marks = Watermarks()
        self.waiters: list[asyncio.Task[None]] = []
        self.session: Session
        self.coordinator: Coordinator[Rows, tuple[Row, ...]]
        self._vault = vault

    async def run(self) -> None:
        weather = Weather() if self.last else Weather.drawn(self.entropy)
        self.session = self._vault.open(self.clock, self.entropy.fork("vault"), weather)
        self.coordinator = Coordinator(
            self.session,
            tuple(self.before),
            self._config(),
            clock=self.clock,
            entropy=self.entropy.fork("coordinator"),
        )
        pump = asyncio.create_task(self._pump())
        clients = [asyncio.create_task(self._client(number)) for number in (1, 2, 3)]
        others = [asyncio.create_task(other) for other in (self._mend(), self._pause(), self._follow())]
        if self.last:
            await asyncio.gather(pump, *clients)
            await asyncio.gather(*self.waiters)
        else:
            await self.clock.sleep(self.entropy.uniform(0, 3))
        await self._end()
        await asyncio.gather(pump, *clients, *others, *self.waiters)
        if self.coordinator.watermarks.durable == len(self.accepted):
            room = self.coordinator._machine.room
            assert (room.bytes, room.writes, room.waiting) == (0, 0, 0), "room leaked"

    # users ----------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        """Copy the source from the stored position on: a row that was not taken is simply written again."""
        for number in range(self.session.position + 1, SOURCE_ROWS + 1):
            while await self._write(("source", number), position=number) is None:
                if self.closing:
                    return
                await self._idle(0.2)
            await self._idle(0.05)

    async def _client(self, number: int) -> None:
        for count in range(self.entropy.below(10)):
            handle = await self._write((f"client {number} of life {self.number}", count))
            if handle is not None:
                self.waiters.append(asyncio.create_task(self._wait(handle)))
            await self._idle(self.entropy.choice([0.0, 0.02, 0.3]))

    async def _write(self, row: Row, position: int = 0) -> WriteHandle | None:
        """Write in one of the ways there are; None if the write was not accepted."""
        delta = Rows(row, position=position, size_bytes=ROW_BYTES * (1 + self.entropy.below(LARGEST_ROW)))
        timeout = self.entropy.choice([None, None, 0.02, 0.2])
        writing = asyncio.create_task(self._accept(delta, row, timeout, tries=self.entropy.chance(0.2)))
        if self.entropy.chance(0.3):
            await self._idle(0.1)
            writing.cancel()
        await asyncio.wait([writing])
        if writing.cancelled():
            return None
        if isinstance(error := writing.exception(), AtCapacity):
            assert error.rejected is delta
        assert error is None or isinstance(error, PenstockError), error
        return None if error else writing.result()

    async def _accept(self, delta: Rows, row: Row, timeout: float | None, *, tries: bool) -> WriteHandle:
        began = self.clock.monotonic()
        call = self.calls = self.calls + 1
        if self.entropy.chance(0.2):
            # As after a tight loop of writes: this one lets others run.
            self.coordinator._streak = 1 << 20
        write = self.coordinator.try_write(delta) if tries else await self.coordinator.write(delta, timeout)
        if not tries:
            self.called[write.epoch] = call
        # No await since the write was accepted, so nobody can look in between.
        assert not self.closing, "accepted after the shutdown"
        assert self.coordinator.state is not State.FAILED, "accepted after a failure"
        assert write.epoch == len(self.accepted) + 1
        assert not self.last or self.clock.monotonic() - began < PROMPT_SECONDS, "nothing made room"
        self.accepted[write.epoch] = row
        self.bytes[write.epoch] = delta.size_bytes
        # The caller's delta is the caller's again.
        delta.rows.clear()
        delta.drawers.clear()
        self.look()
        return write

    async def _wait(self, handle: WriteHandle) -> None:
        began = self.clock.monotonic()
        mark, asks = self.entropy.choice([Mark.FLUSHED, Mark.DURABLE]), self.entropy.chance(0.5)
        reached = self.coordinator.flush(handle.epoch, mark) if asks else handle.wait(mark)
        waiting = asyncio.create_task(reached)
        if self.entropy.chance(0.2):
            await self._idle(0.5)
            waiting.cancel()
        await asyncio.wait([waiting])
        if waiting.cancelled() or isinstance(waiting.exception(), PenstockError):
            return
        waiting.result()
        assert not self.last or self.clock.monotonic() - began < PROMPT_SECONDS, "a flush was not begun"
        self.look()
        row = self.accepted[handle.epoch]
        assert row in self.coordinator.current.snapshot
        if mark is Mark.DURABLE:
            assert row in self._vault.rows(), "reported durable, and not on disk"

    async def _mend(self) -> None:
        while not self.closing:
            await self._idle(1.0)
            if self.coordinator.state is State.FAILED:
                await _error_of(self.coordinator.retry)

    async def _pause(self) -> None:
        for _ in range(self.entropy.below(3)):
            await self._idle(1.0)
            await self.coordinator.pause()
            await self._idle(0.5)
            self.coordinator.resume()

    async def _follow(self) -> None:
        """Snapshots only grow, and each is exactly what it says it covers."""
        seen = -1
        async for published in self.coordinator.subscribe():
            assert published.epoch > seen
            assert list(published.snapshot) == self._written(published.epoch)
            seen = published.epoch
            await self._idle(0.2)

    async def _end(self) -> None:
        if not self.last and self.entropy.chance(0.2):
            self.coordinator.abort()
        ending = asyncio.create_task(_error_of(self.coordinator.shutdown))
        if self.entropy.chance(0.2):
            await self._idle(0.2)
            ending.cancel()
        for _ in range(20):
            await asyncio.wait([ending])
            if not ending.cancelled() and (ending.result() is None or self.coordinator.state is not State.FAILED):
                break
            await _error_of(self.coordinator.retry)
            ending = asyncio.create_task(_error_of(self.coordinator.shutdown))
        self.coordinator.abort()
        self.look()

    @property
    def closing(self) -> bool:
        return self.coordinator._machine.closing

    async def _idle(self, seconds_max: float) -> None:
        await self.clock.sleep(on_the_tick(self.entropy.uniform(0, seconds_max)))

    # promises -------------------------------------------------------------------------------------

    def look(self) -> None:
        """What must hold at any moment."""
        coordinator, marks = self.coordinator, self.coordinator.watermarks
        assert marks.durable <= marks.flushed <= marks.applied == len(self.accepted)
        assert all(new >= old for new, old in zip(marks, self.marks, strict=True))
        self.marks = marks
        assert coordinator.state is not State.FAILED or coordinator._machine.room.waiting == 0, "a writer waits in vain"
        config = coordinator._machine.config
        assert (
            sum(self.bytes[each] for each in range(marks.durable + 1, marks.applied + 1)) <= config.max_buffered_bytes
        )
        assert marks.applied - marks.durable <= config.max_buffered_writes
        # Not always: a view freezes what is pending, and flushes of a single open delta must be met too.
        if self.entropy.chance(0.7):
            return
        view = coordinator.view()
        seen = [*view.snapshot, *(row for delta in view.deltas for row in delta.rows)]
        assert view.epoch == marks.applied
        assert seen == self._written(view.epoch), "a view is not what was accepted"

    def audit(self) -> None:
        """What this life left on disk: its writes in their order, none twice, and all that it vouched for."""
        assert self.session.violations == []
        durable = self.coordinator.watermarks.durable
        left = self._vault.rows()[len(self.before) :]
        written = [self.accepted[epoch] for epoch in range(1, len(self.accepted) + 1)]
        assert left == written[: len(left)], "writes lost, doubled or out of order"
        assert len(left) >= durable, "reported durable, and lost"
        calls = [self.called[epoch] for epoch in sorted(self.called)]
        assert calls == sorted(calls), "a write passed one that was called earlier"
        epochs = {row: epoch for epoch, row in self.accepted.items()}
        drawers = self._vault.drawers()
        for epoch in range(1, durable + 1):
            newest = drawers[drawer_of(self.accepted[epoch])]
            assert epochs.get(newest, 0) >= epoch, "an earlier write lies on top of a later one"

    def _written(self, epoch: int) -> list[Row]:
        return self.before + [self.accepted[each] for each in range(1, epoch + 1)]

    def _config(self) -> CoordinatorConfig:
        pending = 1 + self.entropy.below(5)
        buffered = pending + self.entropy.below(6)
        return CoordinatorConfig(
            flush_interval_seconds=self.entropy.choice([0.1, 1.0, 30.0]),
            commit_delay_seconds=self.entropy.choice([0.01, 0.1, 1.0]),
            max_pending_writes=pending,
            max_buffered_writes=buffered,
            max_pending_bytes=ROW_BYTES * pending,
            max_buffered_bytes=ROW_BYTES * max(LARGEST_ROW, pending + self.entropy.below(6)),
            max_unsettled_flushes=1 + self.entropy.below(3),
            retry_deadline_seconds=self.entropy.choice([0.05, 1.0, 10.0]),
            retry_pause_seconds=0.05,
        )


async def _error_of(call: Callable[[], Awaitable[Any]]) -> PenstockError | None:
    try:
        await call()
    except PenstockError as error:
        return error
    return None


async def world(simulation: Simulation) -> object:
    entropy: SeededEntropy = simulation.entropy.fork("world")
    vault = Vault()
    lives = 1 + entropy.below(LIVES_MAX)
    for number in range(1, lives + 1):
        life = Life(simulation, vault, number, last=number == lives)
        process = simulation.start(f"life {number}", life.run())
        if not life.last and entropy.chance(0.7):
            await simulation.clock.sleep(entropy.uniform(0, 4))
            simulation.crash(process)
        await process.join()
        life.session.crash()
        life.audit()
    rows = vault.rows()
    assert [number for name, number in rows if name == "source"] == list(range(1, SOURCE_ROWS + 1))
    assert len(set(rows)) == len(rows)
    return simulation.fingerprint, rows


@pytest.mark.simulation(seeds=2000)
def test_nothing_durable_is_lost_no_mark_goes_back_and_everyone_is_answered(seed: int) -> object:
    """Every waiter is answered: a life that ends gathers them all, and one that hangs is a deadlock."""
    return simulate(world, seed, stall_seconds_max=0.02)
