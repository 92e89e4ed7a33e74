"""The store against a plain dictionary, whatever is done to it and in which order."""

from __future__ import annotations

import asyncio
import copy
import random

import pytest
from tests.timeseries.model import TENANTS, PlainStore, change_of
from tests.timeseries.stores import HOUR

from penstock.coordinator import CoordinatorConfig
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.timeseries import TimeSeriesConfig, TimeSeriesReader, TimeSeriesStore
from penstock.timeseries.write import placement

CONFIG = TimeSeriesConfig(
    upkeep_pause_seconds=float("inf"),
    cache_bytes=50_000,
    upkeep_bytes=4000,
    staleness_seconds=0,
    coordinator=CoordinatorConfig(flush_interval_seconds=900),
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of a few samples, so that they are cut all the time."""
    monkeypatch.setattr(placement, "BLOCK_SAMPLES", 20)
    monkeypatch.setattr(placement, "_BUCKET_SAMPLES_MAX", 50)
    monkeypatch.setattr(placement, "_BUCKET_BYTES", 300)
    monkeypatch.setattr(placement, "_BUCKET_BYTES_MAX", 600)


class World:
    """A store, its dictionary, and what the dictionary was after each change."""

    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.volume = MemoryVolume()
        self.plain = PlainStore()
        self.durable = PlainStore()
        self.number = 0
        self.history: dict[int, PlainStore] = {-1: PlainStore()}

    async def open(self) -> None:
        self.keyvalue = MemoryKeyValue(self.volume)
        self.store = await TimeSeriesStore.over(self.keyvalue, CONFIG)

    async def write(self) -> None:
        await self.store.write(change_of(self.store.changes("queue", self.number), self.number))
        self.plain.apply(self.number)
        self.history[self.number] = copy.deepcopy(self.plain)
        self.number += 1
        with self.store.view() as view:
            await self.plain.agrees(view, "the view")

    async def flush(self) -> None:
        await self.store.flush()
        await self.plain.agrees(self.store, "flushed")
        follower = TimeSeriesReader(MemoryFollower(self.volume), CONFIG)
        await self.plain.agrees(follower, "a follower")
        await follower.close()

    async def expire(self) -> None:
        before_ms = self.entropy.randrange(3) * HOUR
        await self.store.flush()
        tenants = [tenant for tenant in TENANTS if tenant in await self.store.tenants()]
        await self.store.expire(before_ms)
        self.plain.expire(before_ms, tenants)
        self.history[self.number - 1] = copy.deepcopy(self.plain)
        await self.plain.agrees(self.store, f"expired before {before_ms}")

    async def compact(self) -> None:
        await self.store.compact()
        await self.plain.agrees(self.store, "compacted")

    async def reopen(self) -> None:
        await self.store.close()
        await self.open()
        await self.plain.agrees(self.store, "reopened")

    async def crash(self) -> None:
        """Lose what is not durable, and go on from the stored position."""
        self.keyvalue.crash()
        self.store._coordinator.abort()
        await self.open()
        position = self.store.position("queue")
        self.number = 0 if position is None else position + 1
        self.plain = copy.deepcopy(self.history[self.number - 1])
        await self.plain.agrees(self.store, "crashed")

    async def verify(self) -> None:
        await self.store.flush()
        for tenant in TENANTS:
            assert (await self.store.verify(tenant=tenant)).problems == []


@pytest.mark.simulation(seeds=6)
def test_the_store_holds_what_a_dictionary_holds(seed: int) -> None:
    async def run() -> None:
        world = World(seed)
        await world.open()
        steps = [world.write] * 12 + [world.flush] * 3
        steps += [world.expire, world.compact, world.reopen, world.crash, world.verify]
        for _ in range(40):
            await world.entropy.choice(steps)()
        await world.flush()
        await world.verify()
        await world.store.close()

    asyncio.run(run())
