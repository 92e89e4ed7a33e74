"""The time-series store in bad weather: one seed decides crashes, lost replies, slow disks, and their order.

A world is a volume and a few lives of a writing process. A pump writes numbered changes with their positions; a reader
asks all the time, and must see one moment whenever it does. Every life may end in a crash; the next one goes on from
the stored position.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.timeseries.model import TENANTS, PlainStore, change_of
from tests.timeseries.stores import HOUR, batch, everything, series

from penstock.coordinator import CoordinatorConfig
from penstock.errors import OutcomeUnknown, PenstockError, Unavailable
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.testing import SeededEntropy, Simulation, simulate
from penstock.timeseries import SeriesReads, TimeSeriesConfig, TimeSeriesReader, TimeSeriesStore

CHANGES = 12
PAIR = "pair"
LIVES = 4


def _config(entropy: SeededEntropy) -> TimeSeriesConfig:
    return TimeSeriesConfig(
        cache_bytes=entropy.choice([1000, 1 << 20]),
        upkeep_pause_seconds=entropy.choice([0.05, 1.0]),
        fold_delay_seconds=0,
        coordinator=CoordinatorConfig(
            flush_interval_seconds=entropy.choice([0.02, 0.3]),
            commit_delay_seconds=0.01,
            retry_deadline_seconds=entropy.choice([0.1, 5.0]),
            retry_pause_seconds=0.02,
        ),
    )


class Life:
    """One writing process, with a reader in it."""

    def __init__(self, simulation: Simulation, volume: MemoryVolume, number: int) -> None:
        self.simulation = simulation
        self.volume = volume
        self.entropy = simulation.entropy.fork(f"life {number}")
        self.durable = -1
        self.keyvalue: MemoryKeyValue | None = None

    async def run(self) -> None:
        clock = self.simulation.clock
        self.keyvalue = MemoryKeyValue(self.volume, flush_interval_ms=self.entropy.choice([0, 5, 50]))
        store = await TimeSeriesStore.over(
            self.keyvalue, _config(self.entropy), clock=clock, entropy=self.entropy.fork("store")
        )
        reader = asyncio.create_task(self._read(store))
        position = store.position("queue")
        try:
            for number in range(0 if position is None else position + 1, CHANGES):
                changes = change_of(store.changes("queue", number), number)
                pair = batch((series(side="a"), [0], [number]), (series(side="b"), [HOUR], [number]))
                handle = await store.write(changes.write(pair, tenant=PAIR))
                if self.entropy.chance(0.5):
                    await handle.durable()
                    self.durable = number
                await clock.sleep(self.entropy.uniform(0, 0.1))
                if self.entropy.chance(0.1):
                    await store.compact()
            await store.close()
            self.durable = CHANGES - 1
        finally:
            reader.cancel()

    async def _read(self, store: TimeSeriesStore) -> None:
        while True:
            await self.simulation.clock.sleep(self.entropy.uniform(0, 0.05))
            await one_moment(store)
            with store.view() as view:
                await one_moment(view)


async def one_moment(reads: SeriesReads) -> None:
    """Both sides of a pair are written by every change, in two hours: a moment has the same value of both."""
    rows = await everything(reads, tenant=PAIR)
    assert len({times[0][1] for times in rows.values()}) <= 1, rows
    assert len(rows) in (0, 2), rows


async def weather(simulation: Simulation, volume: MemoryVolume) -> None:
    entropy = simulation.entropy.fork("weather")
    while True:
        await simulation.clock.sleep(entropy.uniform(0, 0.5))
        kind = entropy.below(4)
        if kind == 0:
            volume.hold()
        elif kind == 1:
            volume.fail(Unavailable("the disk is away"))
        elif kind == 2:
            volume.fail(OutcomeUnknown("the reply was lost"), landed=True)
        await simulation.clock.sleep(entropy.uniform(0, 0.3))
        volume.heal()
        volume.release()


async def world(simulation: Simulation) -> object:
    volume = MemoryVolume()
    entropy = simulation.entropy.fork("world")
    storm = asyncio.create_task(weather(simulation, volume))
    for number in range(LIVES):
        life = Life(simulation, volume, number)
        process = simulation.start(f"life {number}", life.run())
        if number < LIVES - 1 and entropy.chance(0.7):
            await simulation.clock.sleep(entropy.uniform(0, 1.5))
            simulation.crash(process)
        try:
            await process.join()
        except PenstockError:
            # A life may end because its store failed for longer than it has patience.
            assert number < LIVES - 1 or volume.failure is not None or life.durable < CHANGES
        if life.keyvalue is not None:
            life.keyvalue.crash()
        await audit(volume, life.durable)
    storm.cancel()
    return simulation.fingerprint


async def audit(volume: MemoryVolume, durable: int) -> None:
    """What is left on the disk is a beginning of all changes, at least up to the last one vouched for."""
    follower = TimeSeriesReader(MemoryFollower(volume), TimeSeriesConfig(staleness_seconds=0))
    position = await follower.position("queue")
    assert (-1 if position is None else position) >= durable, f"{durable} was durable, and {position} is left"
    plain = PlainStore()
    for number in range(-1 if position is None else position + 1):
        plain.apply(number)
    await plain.agrees(follower, f"up to {position}")
    for tenant in (*TENANTS, PAIR):
        assert (await follower.verify(tenant=tenant)).problems == []
    await follower.close()


@pytest.mark.simulation(seeds=8)
def test_no_sample_is_lost_doubled_or_orphaned_and_every_query_sees_one_moment(seed: int) -> object:
    return simulate(world, seed, stall_seconds_max=0.05)
