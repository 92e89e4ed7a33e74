"""Exactly once through the real key-value port: counts and the source's position in one write batch.

Counting is the hardest case, because doing it twice shows. The store dies under the coordinator and is opened
again in a repeat; the process is killed and the next one reads the position and goes on from there.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from penstock.coordinator import Coordinator, CoordinatorConfig, Epochs, Flushed
from penstock.errors import Fenced, OutcomeUnknown, PenstockError, Unavailable
from penstock.keyvalue import MemoryKeyValue, MemoryVolume, Snapshot, WriteBatch
from penstock.testing import Simulation, simulate

WORDS = [f"word {number * number % 7}" for number in range(60)]
POSITION = b"position"


class Tally:
    """Counts by word, up to a position of the source."""

    def __init__(self, word: str = "", position: int = 0) -> None:
        self.counts: Counter[str] = Counter([word] if word else [])
        self.position = position
        self.size_bytes = 100

    def merge(self, later: Tally) -> None:
        self.counts += later.counts
        self.position = later.position


class TallyHandler:
    """Reads, adds and writes back. What makes a repeat harmless is the position that lands with the counts."""

    def __init__(self, volume: MemoryVolume) -> None:
        self._volume = volume
        self._dead = False
        self.store = self._open()

    def _open(self) -> MemoryKeyValue:
        return MemoryKeyValue(self._volume, flush_interval_ms=50)

    async def position(self) -> int:
        return int(await self.store.get(POSITION) or b"0")

    def empty(self) -> Tally:
        return Tally()

    async def flush(self, delta: Tally, snapshot: Snapshot, epochs: Epochs) -> Flushed[Snapshot]:
        if epochs.repeat:
            if self._dead:
                self.store, self._dead = self._open(), False
            if await self.position() >= delta.position:
                return Flushed(await self.store.snapshot(), self.store.flush)
        batch = WriteBatch().put(POSITION, b"%d" % delta.position)
        for word, count in delta.counts.items():
            key = word.encode()
            batch.put(key, b"%d" % (int(await self.store.get(key) or b"0") + count))
        handle = await self.store.write(batch)
        return Flushed(await self.store.snapshot(), handle.durable)

    def kill(self) -> None:
        """Lose the store's memory while the coordinator goes on."""
        self.store.crash()
        self._dead = True


async def copy(simulation: Simulation, volume: MemoryVolume, life: int) -> None:
    """One life of a process that copies the source into the store."""
    handler, entropy = TallyHandler(volume), simulation.entropy.fork(f"life {life}")
    coordinator = Coordinator(
        handler,
        await handler.store.snapshot(),
        CoordinatorConfig(max_pending_writes=4, max_buffered_writes=16, retry_deadline_seconds=5),
        clock=simulation.clock,
        entropy=entropy,
    )
    for position in range(await handler.position() + 1, len(WORDS) + 1):
        await coordinator.write(Tally(WORDS[position - 1], position))
        await simulation.clock.sleep(entropy.uniform(0, 0.03))
        if entropy.chance(0.05):
            handler.kill()
    await coordinator.shutdown()


def test_every_word_is_counted_exactly_once_through_deaths_of_the_store_and_crashes_of_the_process() -> None:
    async def main(simulation: Simulation) -> None:
        volume = MemoryVolume()
        for number in range(4):
            process = simulation.start(f"copier {number}", copy(simulation, volume, number))
            if number < 3:
                await simulation.clock.sleep(simulation.entropy.uniform(0, 1))
                simulation.crash(process)
            await process.join()
        store = MemoryKeyValue(volume)
        counts = {word: int(await store.get(word.encode()) or b"0") for word in WORDS}
        assert counts == Counter(WORDS)

    for seed in range(60):
        simulate(main, seed)


@pytest.mark.parametrize("landed", [False, True])
def test_a_lost_answer_from_the_store_is_no_second_count(landed: bool) -> None:
    async def main(simulation: Simulation) -> None:
        volume = MemoryVolume()
        handler = TallyHandler(volume)
        coordinator = Coordinator(handler, await handler.store.snapshot(), clock=simulation.clock)
        volume.fail(OutcomeUnknown("lost") if landed else Unavailable("busy"), landed=landed)
        writing = asyncio.create_task(coordinator.write_durable(Tally("once", 1)))
        await simulation.clock.sleep(3)
        assert not writing.done() or landed
        volume.heal()
        await writing
        assert await MemoryKeyValue(volume).get(b"once") == b"1"

    for seed in range(20):
        simulate(main, seed)


def test_a_second_writer_fences_the_first_whose_callers_are_all_told() -> None:
    async def main(simulation: Simulation) -> None:
        volume = MemoryVolume()
        handler = TallyHandler(volume)
        coordinator = Coordinator(handler, await handler.store.snapshot(), clock=simulation.clock)
        TallyHandler(volume)
        for call in (
            coordinator.write_durable(Tally("late", 1)),
            coordinator.write(Tally("later", 2)),
            coordinator.flush(),
        ):
            with pytest.raises(Fenced):
                await call
        with pytest.raises(PenstockError):
            await coordinator.shutdown()
        assert await MemoryKeyValue(volume).get(b"late") is None

    for seed in range(20):
        simulate(main, seed)
