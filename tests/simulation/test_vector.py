"""The vector store in bad weather: up to hundreds of tenants in one writer, rows that are mostly equal, a medium that
fails or loses its answers, writers that crash at any step and take over from each other, values damaged below.

A tenant's change follows from its number, which is its position, so what a collection must hold follows from the
position that is stored. A second test plants bugs and demands that the checks notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from penstock.blocks import FlushPlan
from penstock.coordinator import CoordinatorConfig
from penstock.errors import Closed, Corrupt, DeadlineExceeded, NotFound, OutcomeUnknown, PenstockError, Unavailable
from penstock.keyvalue import MemoryKeyValue, MemoryVolume
from penstock.testing import SeededEntropy, Simulation, simulate
from penstock.vector import ALL_LISTS, Changes, Collection, VectorConfig, VectorStore, offload, partial_blocks
from penstock.vector.format.keys import COLLECTION_DATA

PATH = "keyvalue"
# So few points that most rows are equal to others.
POINTS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
IDS = 40
CONFIG = VectorConfig(
    list_rows=4,
    threads=1,
    collections_open=16,
    upkeep_bytes=4_000,
    upkeep_pause_seconds=0.05,
    coordinator=CoordinatorConfig(flush_interval_seconds=0.02, max_pending_bytes=20_000),
)
WEATHER = (Unavailable, OutcomeUnknown, DeadlineExceeded, Closed)


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows of a tenant are flushed together: the simulated loop has no threads."""
    monkeypatch.setattr(offload, "_OFFLOAD_ROWS", 1 << 30)


@dataclass(frozen=True)
class TenantChange:
    """What one number stands for: rows that are written, then ids that are deleted."""

    rows: dict[str, tuple[float, float]]
    deleted: list[str]

    @classmethod
    def of(cls, seed: int, tenant: str, number: int) -> TenantChange:
        entropy = SeededEntropy(seed).fork(f"{tenant} {number}")
        count = IDS if entropy.chance(0.1) else 1 + entropy.below(4)
        point = POINTS[entropy.below(len(POINTS))]
        rows = {f"id-{entropy.below(IDS)}": point for _ in range(count)}
        return cls(rows, [f"id-{entropy.below(IDS)}" for _ in range(entropy.below(3))])

    def gathered(self, changes: Changes, collection: Collection) -> Changes:
        vectors = pa.array([list(point) for point in self.rows.values()], pa.list_(pa.float32()))
        changes.upsert(collection, pa.table({"id": list(self.rows), "vector": vectors}))
        return changes.delete(collection, self.deleted) if self.deleted else changes

    def apply(self, held: dict[str, tuple[float, float]]) -> None:
        held.update(self.rows)
        for name in self.deleted:
            held.pop(name, None)


@dataclass
class World:
    """A volume, who writes to it, and what they were told."""

    simulation: Simulation
    tenants: list[str]
    volume: MemoryVolume = field(default_factory=MemoryVolume)
    # The last number of each tenant that the store vouched for; tenants whose values were damaged.
    told: dict[str, int] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    # The last number that each writer took for each tenant; tenants by the number of their collection's data.
    taken: dict[tuple[VectorStore, str], int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    async def store(self) -> VectorStore:
        keyvalue = MemoryKeyValue(self.volume, PATH, flush_interval_ms=3)
        clock, entropy = self.simulation.clock, self.simulation.entropy.fork("store")
        return await VectorStore.over(keyvalue, CONFIG, clock=clock, entropy=entropy)

    async def write(self, life: int) -> None:
        """Changes of one tenant after the other, until the store is away for too long."""
        entropy = self.simulation.entropy.fork(f"writer {life}")
        store = await self.store()
        reports: set[asyncio.Task[None]] = set()
        while True:
            tenant = self.tenants[entropy.below(len(self.tenants))]
            try:
                task = asyncio.create_task(self.report(await self.change(store, tenant), tenant))
                reports.add(task)
                task.add_done_callback(reports.discard)
            except (Corrupt, NotFound):
                assert tenant in self.damaged, tenant
            except WEATHER:
                return
            if entropy.chance(0.02):
                asyncio.create_task(tended(store))  # noqa: RUF006 - it ends with the world
            if entropy.chance(0.7):
                await self.simulation.clock.sleep(entropy.uniform(0, 0.01))

    async def change(self, store: VectorStore, tenant: str) -> Any:
        collection = await collection_of(store, tenant)
        before = self.taken.get((store, tenant), store.position(tenant))
        number = self.taken[store, tenant] = 0 if before is None else before + 1
        wanted = TenantChange.of(self.simulation.seed, tenant, number)
        handle = await store.write(wanted.gathered(store.changes(tenant, number), collection))
        return handle, number

    async def report(self, written: Any, tenant: str) -> None:
        handle, number = written
        try:
            await handle.durable()
        except Corrupt:
            assert tenant in self.damaged, tenant
        except WEATHER:
            return
        else:
            self.told[tenant] = max(number, self.told.get(tenant, -1))

    def damage(self, entropy: SeededEntropy) -> None:
        """Spoil one value of one collection's data."""
        table = self.volume.table(PATH)
        keys = [key for key, _ in table.entries(COLLECTION_DATA, bytes([COLLECTION_DATA[0] + 1]), reverse=False)]
        if not keys:
            return
        key = keys[entropy.below(len(keys))]
        value = bytearray(table.get(key) or b"")
        if not value:
            return
        value[entropy.below(len(value))] ^= 1 << entropy.below(8)
        self.volume.land(PATH, [(key, bytes(value))])
        self.damaged.add(self.names[int.from_bytes(key[1:5], "big")])

    async def check(self) -> None:
        """Whoever comes next finds what was vouched for, each change once, and takes writes of all who are whole."""
        store = await self.store()
        for tenant in self.tenants:
            try:
                await self.check_tenant(store, tenant)
            except Corrupt:
                assert tenant in self.damaged, tenant
        await store.close()

    async def check_tenant(self, store: VectorStore, tenant: str) -> None:
        position = store.position(tenant)
        assert (-1 if position is None else position) >= self.told.get(tenant, -1), f"{tenant} lost a change"
        held: dict[str, tuple[float, float]] = {}
        for number in range(0 if position is None else position + 1):
            TenantChange.of(self.simulation.seed, tenant, number).apply(held)
        collection = await collection_of(store, tenant)
        for point in POINTS:
            answer = await collection.search([list(point)], IDS, probes=ALL_LISTS)
            found = answer["id"].to_pylist()
            if tenant in self.damaged or partial_blocks(answer):
                assert tenant in self.damaged, f"{tenant} is partial"
                assert set(found) <= set(held), f"{tenant} shows what is gone"
            else:
                assert sorted(found) == sorted(held), f"{tenant} answers otherwise"
        # Nothing that somebody else's damage could keep from it.
        await (await self.change(store, tenant))[0].durable()


async def tended(store: VectorStore) -> None:
    try:
        await store.tend()
    except PenstockError:
        return


async def collection_of(store: VectorStore, tenant: str) -> Collection:
    return await store.collection(tenant, "index", "model", dimensions=2, metric="l2")


async def live(simulation: Simulation) -> object:
    entropy = simulation.entropy.fork("weather")
    tenants = 300 if entropy.chance(0.03) else 1 + entropy.below(8)
    world = World(simulation, [f"tenant-{number}" for number in range(tenants)])
    for number in range(1 + entropy.below(3)):
        writer = simulation.start(f"writer {number}", world.write(number))
        for _ in range(1 + entropy.below(3)):
            await simulation.clock.sleep(entropy.uniform(0.01, 0.15))
            if entropy.chance(0.3):
                world.volume.fail(Unavailable("the medium is away"), landed=entropy.chance(0.5))
                await simulation.clock.sleep(entropy.uniform(0.01, 0.2))
                world.volume.heal()
        simulation.crash(writer)
        world.names = await numbers(world)
        if entropy.chance(0.3):
            world.damage(entropy)
    await world.check()
    return simulation.fingerprint


async def numbers(world: World) -> dict[int, str]:
    """Tenants by the number of their collection's data, as the next writer finds them."""
    store = await world.store()
    found = {}
    for tenant in world.tenants:
        try:
            state = await store._snapshot().state((await collection_of(store, tenant)).name)
        except Corrupt:
            continue
        if state is not None:
            found[state.number] = tenant
    await store.close()
    return world.names | found


@pytest.mark.simulation(seeds=8)
def test_every_tenant_keeps_what_was_vouched_for_once_whatever_happens_to_others(seed: int) -> object:
    return simulate(live, seed)


@pytest.mark.parametrize(
    ("place", "name", "bug", "noticed"),
    [
        (FlushPlan, "move_on", lambda *_: None, "lost a change"),
        (Changes, "delete", lambda changes, *_: changes, "shows what is gone|answers otherwise"),
    ],
    ids=["a position that is not stored", "a delete that is forgotten"],
)
def test_a_planted_bug_is_noticed(
    place: Any, name: str, bug: Callable[..., Any], noticed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, bug)
    with pytest.raises(AssertionError, match=noticed):
        for seed in range(20):
            simulate(live, seed)
