"""Collection: every rule holds an object back by itself, and a crash costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.buffer.simulated import simulated

from penstock.buffer import Collector, CollectorConfig, Manifest
from penstock.buffer.collector import garbage
from penstock.buffer.format.manifest import DescriptorDraft
from penstock.buffer.location import batch_location, batch_time_ms
from penstock.buffer.oldest_entry import oldest_ms_of
from penstock.errors import InvalidInput, OutcomeUnknown, StorageFull
from penstock.ids import ulid
from penstock.objects import MemoryStore, Object, ObjectMeta, ObjectStore
from penstock.observability import names
from penstock.testing import Fate, FaultPlan, FaultyStore, RecordingObserver, SeededEntropy, Simulation
from penstock.testing.storage.hostile_stores import PassingStore

MANIFEST = "ingest/manifest"
MARKER = "ingest/queue-owner.json"
CONFIG = CollectorConfig(grace_seconds=600.0, interval_seconds=300.0)


def name(simulation: Simulation, age_seconds: float) -> str:
    return batch_location("ingest", ulid(simulation.clock.now_ms() - round(age_seconds * 1000), simulation.entropy))


async def keys(store: ObjectStore) -> list[str]:
    return [meta.key async for page in store.list("") for meta in page if meta.key != MARKER]


async def stored(simulation: Simulation, *locations: str, queue: tuple[str, ...] = ()) -> MemoryStore:
    """A store that has held these objects for an hour, and a manifest with these entries, written just now."""
    store = MemoryStore(clock=simulation.clock)
    for location in locations:
        await store.put(location, b"body")
    await store.put(MANIFEST, Manifest.empty().append([DescriptorDraft(location) for location in queue]).body)
    await store.put(MARKER, b'{"version":1,"manifest":"ingest/manifest"}')
    await simulation.clock.sleep(3600.0)
    await write(store)
    return store


async def write(store: ObjectStore) -> None:
    """Change the manifest, as a consumer that starts does."""
    manifest = Manifest((await store.get(MANIFEST)).data)
    await store.put(MANIFEST, manifest.with_fence(manifest.fence + 1).body)


async def collected(simulation: Simulation, store: ObjectStore, config: CollectorConfig = CONFIG) -> None:
    await Collector(store, config, clock=simulation.clock).collect()


@simulated
async def test_an_old_object_that_nobody_refers_to_is_deleted(simulation: Simulation) -> None:
    orphan = name(simulation, 0)
    store = await stored(simulation, orphan)
    assert await Collector(store, CONFIG, clock=simulation.clock).collect()
    assert await keys(store) == [MANIFEST]


@simulated
async def test_what_the_manifest_refers_to_is_kept_whatever_its_age(simulation: Simulation) -> None:
    queued, consumed = name(simulation, 0), name(simulation, 1)
    store = await stored(simulation, queued, consumed, queue=(queued,))
    await collected(simulation, store)
    assert await keys(store) == sorted([MANIFEST, queued])


@simulated
async def test_what_is_as_young_as_the_oldest_entry_is_kept(simulation: Simulation) -> None:
    """It may be on its way into the queue."""
    older, oldest, same, younger = (name(simulation, age) for age in (30, 20, 20, 10))
    store = await stored(simulation, older, oldest, same, younger, queue=(younger, oldest))
    await collected(simulation, store)
    assert await keys(store) == sorted([MANIFEST, oldest, same, younger])


@simulated
async def test_what_is_younger_than_the_grace_is_kept(simulation: Simulation) -> None:
    store = await stored(simulation)
    for location in (old := name(simulation, 3600), young := name(simulation, 599)):
        await store.put(location, b"")
    await collected(simulation, store)
    assert await keys(store) == sorted([MANIFEST, old, young]), "the store has had it for no time at all"
    await simulation.clock.sleep(600.0)
    await write(store)
    await collected(simulation, store)
    assert await keys(store) == [MANIFEST]


class Weighing(PassingStore):
    """Counts how often the manifest was sent, and how many objects were listed."""

    manifests = 0
    listed = 0

    async def get(self, key: str) -> Object:
        self.manifests += key == MANIFEST
        return await super().get(key)

    async def list(self, *args: Any, **options: Any) -> AsyncIterator[list[ObjectMeta]]:
        async for page in super().list(*args, **options):
            self.listed += len(page)
            yield page


@simulated
async def test_a_long_queue_is_looked_at_once_and_not_once_a_page(simulation: Simulation) -> None:
    consumed = [name(simulation, age) for age in range(60, 40, -1)]
    queued = [name(simulation, age) for age in range(40, 0, -1)]
    inner = await stored(simulation, *consumed, *queued, queue=tuple(queued))
    store = Weighing(inner)
    await collected(simulation, store, replace(CONFIG, delete_batch_keys=4))
    assert await keys(inner) == sorted([MANIFEST, *queued])
    assert store.manifests == 1, "it did not change, so it is not read again"
    assert store.listed <= len(consumed) + 4, "behind the oldest entry nothing can be garbage"


@simulated
async def test_what_is_enqueued_during_a_collection_holds_it_back(simulation: Simulation) -> None:
    """Entries that were added since the last look are looked at, and the objects behind them are kept."""
    consumed = [name(simulation, age) for age in range(60, 20, -1)]
    late = consumed[20]
    inner = await stored(simulation, *consumed)

    class Enqueuing(PassingStore):
        async def delete_many(self, doomed: Iterable[str]) -> None:
            manifest = Manifest((await inner.get(MANIFEST)).data)
            if not len(manifest):
                await inner.put(MANIFEST, manifest.append([DescriptorDraft(late)]).body)
            await super().delete_many(doomed)

    await collected(simulation, Enqueuing(inner), replace(CONFIG, delete_batch_keys=4))
    assert await keys(inner) == sorted([MANIFEST, *consumed[20:]])


@simulated
async def test_a_producer_whose_clock_is_far_behind_does_not_lose_its_batch(simulation: Simulation) -> None:
    store = await stored(simulation)
    late = name(simulation, 100_000)
    await store.put(late, b"")
    await simulation.clock.sleep(599.0)
    await collected(simulation, store)
    assert late in await keys(store)


@simulated
async def test_every_other_name_is_kept(simulation: Simulation) -> None:
    token = ulid(simulation.clock.now_ms(), simulation.entropy)
    others = [f"ingest/{token}", "ingest/notes.batch", f"ingest/deeper/{token}.batch", f"ingest2/{token}.batch"]
    store = await stored(simulation, *others)
    await collected(simulation, store)
    assert await keys(store) == sorted([MANIFEST, *others])


@simulated
async def test_while_an_entry_tells_no_time_nothing_is_deleted(simulation: Simulation) -> None:
    orphan = name(simulation, 0)
    store = await stored(simulation, orphan, queue=("somewhere/else",))
    await collected(simulation, store)
    assert orphan in await keys(store)


@simulated
async def test_a_queue_without_a_manifest_is_left_alone(simulation: Simulation) -> None:
    """A mistyped manifest path must not cost every batch of a living queue."""
    orphan = name(simulation, 0)
    store = await stored(simulation, orphan)
    await collected(simulation, store, CollectorConfig(manifest_path="ingest/manifset"))
    assert orphan in await keys(store)


@simulated
async def test_a_folder_that_is_not_marked_for_this_manifest_is_left_alone(simulation: Simulation) -> None:
    """A public producer of another queue may have written there, and left no word of it."""
    orphan = name(simulation, 0)
    store = await stored(simulation, orphan)
    await store.put("ingest/other", Manifest.empty().body)
    for config in (CONFIG, replace(CONFIG, manifest_path="ingest/other")):
        if config is CONFIG:
            await store.delete(MARKER)
        else:
            await store.put(MARKER, b'{"version":1,"manifest":"ingest/manifest"}')
        for dry_run in (True, False):
            with pytest.raises(InvalidInput, match="marker"):
                await Collector(store, config, clock=simulation.clock).collect(dry_run=dry_run)
    assert orphan in await keys(store)


@simulated
async def test_nothing_is_deleted_before_the_manifest_was_written_past_its_grace(simulation: Simulation) -> None:
    """Until then a producer that began long ago could still enqueue it."""
    store = await stored(simulation)
    await store.put(orphan := name(simulation, 0), b"body")
    await simulation.clock.sleep(599.0)
    await write(store)
    await simulation.clock.sleep(7200.0)
    collector = Collector(store, CONFIG, clock=simulation.clock)
    assert (await collector.collect()).waiting == 1
    assert orphan in await keys(store)
    await write(store)
    done = await collector.collect()
    assert (done.deleted, done.waiting) == (1, 0)
    assert await keys(store) == [MANIFEST]


@simulated
async def test_one_who_may_change_the_manifest_does_so_once_and_only_for_something_to_delete(
    simulation: Simulation,
) -> None:
    locations = [name(simulation, age) for age in range(10)]
    queued = name(simulation, -60)
    store = await stored(simulation, *locations, queued, queue=(queued,))
    await simulation.clock.sleep(3600.0)
    renewals = 0

    async def renew() -> None:
        nonlocal renewals
        renewals += 1
        await write(store)

    config = replace(CONFIG, delete_batch_keys=3)
    collector = Collector(store, config, clock=simulation.clock, renew=renew)
    assert (await collector.collect(dry_run=True)).deleted == 10, "written since, though long ago"
    assert renewals == 0
    assert (await collector.collect()).deleted == 10
    assert renewals == 1
    assert (await collector.collect()).deleted == 0
    assert renewals == 1, "what is queued is no reason to write"


@simulated
async def test_a_disk_too_full_for_the_manifest_is_still_emptied(simulation: Simulation) -> None:
    orphan = name(simulation, 0)
    store = await stored(simulation, orphan)

    async def renew() -> None:
        raise StorageFull("no room")

    assert (await Collector(store, CONFIG, clock=simulation.clock, renew=renew).collect()).deleted == 1


@simulated
async def test_a_long_collection_leaves_what_was_named_after_it_began_to_the_next(simulation: Simulation) -> None:
    """Such an object carries the renewed fence, so only its producer's clock could tell that it grew old."""
    store = await stored(simulation, *(name(simulation, 60 - age) for age in range(3)))

    class Slow(PassingStore):
        async def delete_many(self, keys: Iterable[str]) -> None:
            await super().delete_many(keys)
            await self._inner.put(name(simulation, 0), b"late")
            await simulation.clock.sleep(700.0)
            await write(self._inner)

    collector = Collector(
        Slow(store),
        replace(CONFIG, delete_batch_keys=3),
        clock=simulation.clock,
        renew=lambda: write(store),
    )
    done = await collector.collect()
    assert (done.deleted, done.waiting) == (3, 0)
    assert len(await keys(store)) == 2


@simulated
async def test_a_dry_run_tells_the_same_and_deletes_nothing(simulation: Simulation) -> None:
    locations = [name(simulation, age) for age in range(5)]
    store = await stored(simulation, *locations)
    collector = Collector(store, CONFIG, clock=simulation.clock)
    found = [meta.key async for page in collector.find() for meta in page]
    dry = await collector.collect(dry_run=True)
    assert found == sorted(locations)
    assert (dry.deleted, dry.deleted_bytes, dry.dry_run) == (5, 20, True)
    assert len(await keys(store)) == 6
    assert (await collector.collect()).deleted == 5


@simulated
async def test_a_collection_that_fails_half_way_is_finished_by_the_next_one(simulation: Simulation) -> None:
    locations = [name(simulation, age) for age in range(10)]
    store = FaultyStore(
        await stored(simulation, *locations), FaultPlan(), entropy=simulation.entropy.fork("f"), clock=simulation.clock
    )
    collector = Collector(store, CollectorConfig(delete_batch_keys=3), clock=simulation.clock)
    store.script("delete_many", Fate.SERVED, Fate.ERROR_AFTER)
    with pytest.raises(OutcomeUnknown):
        await collector.collect()
    assert 4 < len(await keys(store)) <= 8
    await collector.collect()
    assert await keys(store) == [MANIFEST]


@simulated
async def test_a_background_collector_outlives_its_failures_and_counts_them(simulation: Simulation) -> None:
    orphan, observer = name(simulation, 0), RecordingObserver()
    store = FaultyStore(
        await stored(simulation, orphan), FaultPlan(), entropy=simulation.entropy.fork("f"), clock=simulation.clock
    )
    store.script("list", Fate.ERROR_BEFORE)
    running = asyncio.create_task(Collector(store, CONFIG, clock=simulation.clock, observer=observer).run())
    await simulation.clock.sleep(301.0)
    assert observer.counted(names.BUFFER_COLLECT_FAILURES) == 1
    assert orphan in await keys(store)
    await simulation.clock.sleep(300.0)
    assert observer.counted(names.BUFFER_COLLECTED) == 1
    assert await keys(store) == [MANIFEST]
    running.cancel()


@simulated
async def test_a_background_collector_outlives_an_error_that_nobody_foresaw(simulation: Simulation) -> None:
    observer = RecordingObserver()

    class Broken(PassingStore):
        def list(self, *_: object, **__: object) -> Any:
            raise OverflowError("cannot convert float infinity to integer")

    store = Broken(MemoryStore(clock=simulation.clock))
    running = asyncio.create_task(Collector(store, CONFIG, clock=simulation.clock, observer=observer).run())
    await simulation.clock.sleep(601.0)
    assert observer.counted(names.BUFFER_COLLECT_FAILURES) == 2
    assert not running.done()
    running.cancel()


@simulated
async def test_listing_ends_where_the_names_become_too_young(simulation: Simulation) -> None:
    store = await stored(simulation, *(name(simulation, 0) for _ in range(4)))
    for _ in range(40):
        await store.put(name(simulation, 0), b"")
    pages = 0

    class Counting(FaultyStore):
        async def _page(self, *args: object) -> list[ObjectMeta]:
            nonlocal pages
            pages += 1
            return await super()._page(*args)  # type: ignore[arg-type]

    counting = Counting(store, FaultPlan(), entropy=simulation.entropy.fork("f"), clock=simulation.clock)
    await collected(simulation, counting, CollectorConfig(delete_batch_keys=3))
    assert pages <= 3


ages = st.integers(0, 50)


@given(st.lists(st.tuples(ages, st.booleans()), max_size=12))
def test_garbage_is_exactly_what_all_rules_allow(objects: list[tuple[int, bool]]) -> None:
    entropy = SeededEntropy(1)
    named = [(batch_location("p", ulid(1000 - age, entropy)), queued) for age, queued in objects]
    manifest = Manifest.empty().append([DescriptorDraft(location) for location, queued in named if queued])
    times = [batch_time_ms(location) or 0 for location, queued in named if queued]
    metas = [ObjectMeta(location, 0, "", 0) for location, _ in named]
    expected = [
        location
        for location, queued in named
        if not queued and (not times or (batch_time_ms(location) or 0) < min(times))
    ]
    assert [meta.key for meta in garbage(metas, oldest_ms_of(manifest, "p"), "p")] == expected
