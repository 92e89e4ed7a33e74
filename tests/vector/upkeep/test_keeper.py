"""Upkeep waits for pauses in writing, is bounded for those who never pause, and is never in the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.vector.stores import QUIET, collection_of, found, with_store

from penstock.blocks import BlockReader, fragments_prefix
from penstock.errors import Fenced, Unavailable
from penstock.keyvalue import MemoryKeyValue, MemoryVolume, WriteBatch
from penstock.observability import SILENT, Observer, names
from penstock.testing import RecordingObserver, Simulation, simulate
from penstock.vector import Collection, VectorConfig, VectorStore
from penstock.vector.format.keys import Family, collection_prefix
from penstock.vector.format.state import CollectionState
from penstock.vector.format.store_format import FORMAT
from penstock.vector.operations import Change, Tend
from penstock.vector.upkeep.steps import PATIENCE, is_due

Make = Callable[..., pa.Table]

_PAUSE = 0.25
# Small steps, so that upkeep takes several.
_CONFIG = VectorConfig(list_rows=8, upkeep_bytes=300, upkeep_pause_seconds=_PAUSE, threads=1, coordinator=QUIET)
_NEVER = VectorConfig(list_rows=8, upkeep_pause_seconds=math.inf, threads=1, coordinator=QUIET)


async def opened(
    simulation: Simulation, volume: MemoryVolume, config: VectorConfig = _CONFIG, observer: Observer = SILENT
) -> tuple[VectorStore, Collection]:
    options: dict[str, Any] = {"clock": simulation.clock, "entropy": simulation.entropy, "observer": observer}
    store = await VectorStore.over(MemoryKeyValue(volume), config, **options)
    return store, await collection_of(store)


async def state_of(store: VectorStore, collection: Collection) -> CollectionState:
    async def look(_: BlockReader, state: CollectionState) -> CollectionState:
        return state

    return await store.read(collection.spec, look)


async def fill(collection: Collection, rows: Make, first: int, last: int) -> None:
    """Rows in writes of twenty."""
    random = np.random.default_rng(first)
    for start in range(first, last, 20):
        ids = [f"r{n}" for n in range(start, start + 20)]
        await collection.upsert(rows(ids, random.standard_normal((20, 2))), durable=True)


@pytest.mark.parametrize("seed", range(4))
def test_upkeep_waits_for_a_pause_and_then_does_all_that_is_due(rows: Make, seed: int) -> None:
    async def main(simulation: Simulation) -> None:
        store, collection = await opened(simulation, MemoryVolume())
        random = np.random.default_rng(seed)
        for start in range(0, 100, 20):
            ids = [f"r{n}" for n in range(start, start + 20)]
            await collection.upsert(rows(ids, random.standard_normal((20, 2))), durable=True)
            before = await state_of(store, collection)
            await simulation.clock.sleep(_PAUSE / 2)
            assert (await state_of(store, collection)).head == before.head
        assert is_due(await state_of(store, collection), _CONFIG)
        await simulation.clock.sleep(60)
        state = await state_of(store, collection)
        assert not is_due(state, _CONFIG)
        assert state.head.sweep is None
        assert len(await found(collection)) == 100
        await store.close()

    simulate(main, seed)


def test_a_writer_that_never_pauses_finds_lists_dead_rows_and_growth_bounded(rows: Make) -> None:
    """What is `PATIENCE` times over its bound is dealt with by that flush; of two sweeps, one by the next."""

    async def main(simulation: Simulation) -> None:
        store, collection = await opened(simulation, MemoryVolume(), _NEVER)
        random = np.random.default_rng(1)
        waited = overdue = False
        for number in range(40):
            # Rows that are new at first, and others that replace earlier ones, all around one place.
            chosen = {*range(10 * number, 10 * number + 10), *random.choice(150, 10).tolist()}
            ids = sorted({f"r{n % 150}" for n in chosen})
            await collection.upsert(rows(ids, 0.01 * random.standard_normal((len(ids), 2))), durable=True)
            state = await state_of(store, collection)
            before, overdue = overdue, is_due(state, _NEVER, PATIENCE)
            assert not (before and overdue)
            assert state.head.dead <= state.head.rows
            assert state.list_rows.max() <= 2 * PATIENCE * _NEVER.list_rows
            waited = waited or is_due(state, _NEVER)
        assert waited
        assert len(state.centroids) > 1
        assert (await collection.verify()).problems == []
        await store.close()

    simulate(main, 1)


def test_a_step_that_leads_nowhere_is_not_repeated_until_the_collection_is_written_to(rows: Make) -> None:
    async def main(simulation: Simulation) -> None:
        volume, observer = MemoryVolume(), RecordingObserver()
        store, collection = await opened(simulation, volume, _NEVER)
        await fill(collection, rows, 0, 100)
        await store.close()
        damage(volume)
        store, collection = await opened(simulation, volume, observer=observer)
        await simulation.clock.sleep(60)
        assert len(observer.events(names.VECTOR_UPKEEP_FAILED)) == 1
        await store.tend()
        assert len(observer.events(names.VECTOR_UPKEEP_FAILED)) == 1
        await collection.upsert(rows(["another"], [[1, 1]]), durable=True)
        await simulation.clock.sleep(60)
        assert len(observer.events(names.VECTOR_UPKEEP_FAILED)) == 2
        await store.close()

    simulate(main, 1)


def test_upkeep_that_a_writer_left_is_done_by_the_next_that_opens_the_collection(rows: Make) -> None:
    async def main(simulation: Simulation) -> None:
        volume = MemoryVolume()
        store, collection = await opened(simulation, volume)
        await fill(collection, rows, 0, 100)
        await store.close()
        store, collection = await opened(simulation, volume)
        assert is_due(await state_of(store, collection), _CONFIG)
        await simulation.clock.sleep(60)
        assert not is_due(await state_of(store, collection), _CONFIG)
        assert len(await found(collection)) == 100
        await store.close()

    simulate(main, 1)


@pytest.mark.parametrize("seed", range(8))
def test_a_store_closed_at_any_moment_of_its_upkeep_is_whole(rows: Make, seed: int) -> None:
    async def main(simulation: Simulation) -> None:
        volume = MemoryVolume()
        store, collection = await opened(simulation, volume)
        await fill(collection, rows, 0, 100)
        await simulation.clock.sleep(simulation.entropy.uniform(0, 6 * _PAUSE))
        await store.close()
        await check_whole(simulation, volume)

    simulate(main, seed)


@pytest.mark.parametrize("seed", range(8))
def test_a_writer_killed_at_any_moment_of_its_upkeep_loses_nothing(rows: Make, seed: int) -> None:
    async def live(simulation: Simulation, volume: MemoryVolume) -> None:
        _, collection = await opened(simulation, volume)
        await fill(collection, rows, 0, 100)
        await simulation.clock.sleep(math.inf)

    async def main(simulation: Simulation) -> None:
        volume = MemoryVolume()
        writer = simulation.start("writer", live(simulation, volume))
        await simulation.clock.sleep(0.5 + simulation.entropy.uniform(0, 6 * _PAUSE))
        simulation.crash(writer)
        await check_whole(simulation, volume)

    simulate(main, seed)


def test_writes_go_on_between_the_steps_of_upkeep(rows: Make) -> None:
    async def main(simulation: Simulation) -> None:
        store, collection = await opened(simulation, MemoryVolume())
        await fill(collection, rows, 0, 200)
        for start in range(200, 400, 20):
            await simulation.clock.sleep(1.5 * _PAUSE)
            await fill(collection, rows, start, start + 20)
        await simulation.clock.sleep(60)
        assert not is_due(await state_of(store, collection), _CONFIG)
        assert len(await found(collection, k=1000)) == 400
        await store.close()

    simulate(main, 3)


@pytest.mark.parametrize("seed", range(4))
def test_a_store_that_was_away_while_nobody_wrote_takes_the_next_write(rows: Make, seed: int) -> None:
    """An outage during upkeep alone must not leave the coordinator failed when it is over."""

    class Remote(MemoryKeyValue):
        away = False

        async def write(self, batch: WriteBatch) -> Any:
            if self.away:
                raise Unavailable("the store is away")
            return await super().write(batch)

    async def main(simulation: Simulation) -> None:
        remote = Remote(MemoryVolume())
        store = await VectorStore.over(remote, _CONFIG, clock=simulation.clock, entropy=simulation.entropy)
        collection = await collection_of(store)
        await fill(collection, rows, 0, 100)
        remote.away = True
        await simulation.clock.sleep(600 + simulation.entropy.uniform(0, 60))
        remote.away = False
        await simulation.clock.sleep(60)
        await collection.upsert(rows(["another"], [[1, 1]]), durable=True)
        await simulation.clock.sleep(60)
        assert not is_due(await state_of(store, collection), _CONFIG)
        assert len(await found(collection, k=1000)) == 101
        await store.close()

    simulate(main, seed)


def test_a_store_that_takes_no_more_writes_is_left_alone(rows: Make) -> None:
    async def main(simulation: Simulation) -> None:
        volume = MemoryVolume()
        store, collection = await opened(simulation, volume, _NEVER)
        await fill(collection, rows, 0, 100)
        await store.close()
        store, collection = await opened(simulation, volume)
        MemoryKeyValue(volume)  # A newer writer, which fences this one.
        with pytest.raises(Fenced):
            await collection.upsert(rows(["r1"], [[1, 1]]), durable=True)
        before = (await state_of(store, collection)).head
        await simulation.clock.sleep(60)
        assert (await state_of(store, collection)).head == before
        with pytest.raises(Fenced):
            await store.close()

    simulate(main, 1)


async def check_whole(simulation: Simulation, volume: MemoryVolume) -> None:
    store, collection = await opened(simulation, volume)
    assert sorted(await found(collection)) == sorted(f"r{n}" for n in range(100))
    assert (await collection.verify()).problems == []
    await store.close()


def damage(volume: MemoryVolume, family: Family = Family.POSTINGS) -> None:
    """Break every block of one kind."""
    blocks = list(volume.table("keyvalue").entries(fragments_prefix(collection_prefix(0)), None, reverse=False))
    for key, value in blocks:
        if key.startswith(fragments_prefix(collection_prefix(0))) and FORMAT.address(key).shelf.family is family:
            volume.land("keyvalue", [(key, value[:-1])])


def test_upkeep_that_raises_anything_leaves_the_writer_as_it_was(rows: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pauses and in flushes that can wait no longer; whoever asks for it by name is told."""

    async def main(simulation: Simulation) -> None:
        attempts = 0

        def exhausted(*_: object, **__: object) -> None:
            nonlocal attempts
            attempts += 1
            raise RecursionError("maximum recursion depth exceeded")

        observer = RecordingObserver()
        store, collection = await opened(simulation, MemoryVolume(), observer=observer)
        monkeypatch.setattr("penstock.vector.upkeep.steps.reshape", exhausted)
        await fill(collection, rows, 0, 400)
        assert 1 <= attempts <= 3
        await simulation.clock.sleep(60)
        assert observer.events(names.VECTOR_UPKEEP_FAILED)[0]["why"] == "maximum recursion depth exceeded"
        with pytest.raises(RecursionError):
            await store.compact()
        await fill(collection, rows, 400, 420)
        monkeypatch.undo()
        await store.compact()
        state = await state_of(store, collection)
        assert state.list_rows.max() <= 16
        assert len(await found(collection, k=500)) == 420
        await store.close()

    simulate(main, 1)


def test_many_equal_rows_are_taken_tended_and_found(rows: Make) -> None:
    """All but one are equal, as empty pages are."""

    async def work(store: VectorStore, collection: Collection) -> None:
        vectors = np.ones((2_000, 2), np.float32)
        vectors[77] = (9, 9)
        await collection.upsert(rows([f"r{n}" for n in range(2_000)], vectors), durable=True)
        for _ in range(3):
            await store.tend()
            await store.compact()
            state = await state_of(store, collection)
            assert state.list_rows.max() <= 2 * _NEVER.list_rows
            assert state.list_rows.min() > 0
        assert not is_due(state, _NEVER)
        assert await found(collection, (9, 9), 1) == ["r77"]
        assert (await collection.verify()).problems == []

    with_store(work, config=_NEVER)


def test_small_steps_end_and_do_not_wait_for_the_disk_one_by_one(rows: Make) -> None:
    """A list a step, with a cache that holds next to nothing: as many steps as there are buckets, and a few splits."""

    async def main(simulation: Simulation) -> None:
        config = VectorConfig(
            list_rows=8, upkeep_bytes=1, cache_bytes=1000, upkeep_pause_seconds=math.inf, threads=1, coordinator=QUIET
        )
        observer = RecordingObserver()
        keyvalue = MemoryKeyValue(MemoryVolume(), flush_interval_ms=1000)
        options: dict[str, Any] = {"clock": simulation.clock, "entropy": simulation.entropy, "observer": observer}
        store = await VectorStore.over(keyvalue, config, **options)
        collection = await collection_of(store)
        await fill(collection, rows, 0, 500)
        for work in (store.tend, store.compact):
            before, began = await state_of(store, collection), simulation.clock.monotonic()
            await work()
            state = await state_of(store, collection)
            buckets = sum(len(directory) for directory in state.directories.values())
            # Each step commits twice: a change that asks for it, and what it does.
            steps = (state.head.commit - before.head.commit) // 2
            assert 0 < steps <= 2 * buckets
            assert simulation.clock.monotonic() - began < 2 + steps / 3
            assert not is_due(state, config)
        assert (await collection.verify()).problems == []
        await store.close()

    simulate(main, 1)


@pytest.mark.slow
def test_a_sweep_never_meets_the_lists_that_it_makes(rows: Make) -> None:
    """Every step of a sweep passes a bucket: its place goes down through the lists, and new ones lie above it."""

    async def main(simulation: Simulation) -> None:
        config = VectorConfig(list_rows=4, upkeep_bytes=1, upkeep_pause_seconds=math.inf, threads=1, coordinator=QUIET)
        store, collection = await opened(simulation, MemoryVolume(), config)
        # A line of rows that gets denser: lists split, fall apart and dissolve all along it.
        places = np.cumsum(1 / np.arange(1, 401))[:, None] * [1.0, 0.0]
        await collection.upsert(rows([f"r{n}" for n in range(400)], places), durable=True)
        await store.tend()
        whole, before = True, None
        while whole or before is not None:
            change = Change(((collection.spec, Tend(whole)),))
            await store.write(change, durable=True)
            sweep = (await state_of(store, collection)).head.sweep
            if before is not None and sweep is not None and sweep.family == before.family == Family.POSTINGS:
                assert sweep.low < before.low
            whole, before = False, sweep
        assert len(await found(collection, k=500)) == 400
        await store.close()

    simulate(main, 1)
