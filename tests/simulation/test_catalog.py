"""The catalog in bad weather: writers, two compactors, readers with pins, an archiver, a splitter, a vacuum.

Processes crash, answers are lost, requests land late. An auditor beneath the faults looks at every head and
map: each row is visible exactly once at every sequence, nothing that is referenced is deleted, and a commit
that landed is never repeated. A second set of tests plants known bugs and demands that the checks notice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.catalog.world import DAY, FLOOR_SECONDS, GRACE_SECONDS, HOUR, CatalogWorld

from penstock.catalog import Catalog, DataFile, Plan
from penstock.catalog.change import burial, files, relocation
from penstock.catalog.split import split_shard
from penstock.catalog.vacuum import Vacuum
from penstock.errors import Conflict, NotFound, OutcomeUnknown, PenstockError, Unavailable
from penstock.objects import ObjectStore
from penstock.testing import FaultPlan, SeededEntropy, Simulation, simulate

BATCHES = 2
WEATHER = (Unavailable, OutcomeUnknown, Conflict, NotFound)


async def write(world: CatalogWorld, name: str) -> None:
    """Registers files of its own, and repeats whatever it was not told about."""
    catalog, entropy = world.catalog(name), world.entropy.fork(f"{name} moves")
    for _ in range(3):
        await world.clock.sleep(entropy.uniform(0.0, 4.0))
        batch = [world.new_file(entropy) for _ in range(1 + entropy.below(3))]
        for file in batch:
            await world.auditor.put(file.path, b"x")
        await registered(world, catalog, batch)
        if entropy.chance(0.2):
            await registered(world, catalog, batch)


async def registered(world: CatalogWorld, catalog: Any, batch: list[DataFile]) -> None:
    for _ in range(4):
        try:
            await catalog.register(batch)
        except (Unavailable, OutcomeUnknown):
            world.events["register again"] += 1
        else:
            missing = [file.path for file in batch if file.path not in world.auditor.ever]
            world.auditor.demand(not missing, f"acknowledged and never visible: {missing}")
            world.acked.update(dict.fromkeys((file.path for file in batch), world.clock.monotonic()))
            return


async def ingest(world: CatalogWorld, name: str) -> None:
    """Turns a queue of two batches into files: after a start it goes on where the catalog says.

    Every attempt has file names of its own, as a job has whose tasks run again; the rows are the same.
    """
    catalog, entropy = world.catalog(name), world.entropy.fork(f"{name} moves")
    await world.clock.sleep(entropy.uniform(0.0, 6.0))
    for _ in range(10):
        with suppress(*WEATHER):
            progress = await catalog.source_progress("queue")
            complete = -1 if progress.complete is None else progress.complete
            if complete == BATCHES - 1:
                return
            started = complete if progress.started is None else progress.started
            world.auditor.demand(started <= complete + 1, f"a batch was begun before the last was complete: {progress}")
            batch = world.batch(complete + 1)
            for file in batch:
                await world.auditor.put(file.path, b"x")
            await world.clock.sleep(entropy.uniform(0.0, 2.0))
            done = await catalog.register(batch, source="queue", position=complete + 1, since=complete)
            world.events["repeated"] += bool(done.repeated)


async def compact(world: CatalogWorld, name: str) -> None:
    catalog, entropy = world.catalog(name), world.entropy.fork(f"{name} moves")
    for _ in range(2):
        await world.clock.sleep(entropy.uniform(1.0, 6.0))
        with suppress(*WEATHER):
            for task in await catalog.compaction_tasks(name, limit=2):
                assert task.lease is not None
                target = world.merged_file(task.sources, task.target_level)
                await world.auditor.put(target.path, b"x")
                await world.clock.sleep(entropy.uniform(0.0, 8.0))
                if entropy.chance(0.3):
                    await catalog.renew(task.lease)
                await catalog.complete_compaction(task.sources, target, task.lease)
                world.events["compacted"] += 1
                if entropy.chance(0.2):
                    await catalog.complete_compaction(task.sources, target, task.lease)


async def read(world: CatalogWorld, name: str) -> None:
    catalog, entropy = world.catalog(name), world.entropy.fork(f"{name} moves")
    auditor = world.auditor
    for number in range(2):
        await world.clock.sleep(entropy.uniform(0.5, 6.0))
        with suppress(*WEATHER):
            since = world.clock.monotonic() - world.config.staleness_seconds
            known = {path for path, at in world.acked.items() if at < since}
            plan = await catalog.plan()
            rows = [row for path in plan.paths for row in auditor.content[path]]
            auditor.demand(len(set(rows)) == len(rows), f"planned twice: {sorted(rows)}")
            lost = {row for row in known - set(rows) if not auditor.is_unwanted(row)}
            auditor.demand(not lost, f"acknowledged and not planned: {lost}")
            # Reading takes its time, within the grace.
            await world.clock.sleep(entropy.uniform(0.0, GRACE_SECONDS / 2))
            missing = [path for path in plan.paths if not await exists(auditor, path)]
            auditor.demand(not missing, f"planned and not there: {missing}")
            await hold(world, catalog, plan, entropy, f"{name}.{number}")


async def hold(world: CatalogWorld, catalog: Catalog, plan: Plan, entropy: SeededEntropy, pin: str) -> None:
    """Pin a plan, wait for longer than the grace, and read it again: not a file may be missing."""
    auditor, seconds = world.auditor, entropy.uniform(30.0, 90.0)
    until_ms = world.clock.now_ms() + 1000 * seconds
    await catalog.pin(plan.position, seconds=seconds, name=pin)
    auditor.pinned[pin] = (until_ms, frozenset(plan.paths))
    await world.clock.sleep(entropy.uniform(0.0, 3.0 * GRACE_SECONDS))
    try:
        again = await (await catalog.as_of(plan.position)).plan()
    except NotFound as error:
        auditor.demand(world.clock.now_ms() >= until_ms, f"pinned and not kept: {error}")
        return
    difference = set(again.paths) ^ set(plan.paths)
    auditor.demand(len(again) == len(plan) and not difference, f"as of {plan.position}: {difference}")
    missing = [path for path in plan.paths if not await exists(auditor, path)]
    auditor.demand(not missing or world.clock.now_ms() >= until_ms, f"pinned and not there: {missing}")
    world.events["pinned"] += 1
    del auditor.pinned[pin]
    await catalog.unpin(pin)


async def exists(store: ObjectStore, key: str) -> bool:
    try:
        await store.head(key)
    except NotFound:
        return False
    return True


async def tend(world: CatalogWorld, name: str) -> None:
    """Spills, archives, deletes a file, expires a day."""
    catalog, entropy = world.catalog(name), world.entropy.fork(f"{name} moves")
    for _ in range(3):
        await world.clock.sleep(entropy.uniform(0.5, 6.0))
        with suppress(*WEATHER):
            if entropy.chance(0.4):
                await catalog.archive(before_ns=(1 + entropy.below(3)) * DAY)
                world.events["archived"] += 1
            elif entropy.chance(0.5):
                plan = await catalog.plan()
                if len(plan):
                    path = entropy.choice(sorted(plan.paths))
                    world.auditor.unwanted |= world.auditor.content[path]
                    await catalog.delete([path])
            else:
                cutoff = entropy.below(DAY // HOUR) * HOUR
                world.auditor.cutoff = max(world.auditor.cutoff, cutoff)
                await catalog.expire(cutoff)
                world.events["expired"] += 1


async def split(world: CatalogWorld, name: str) -> None:
    catalog, entropy = world.catalog(name), world.entropy.fork(f"{name} moves")
    await world.clock.sleep(entropy.uniform(0.0, 12.0))
    for _ in range(3):
        with suppress(*WEATHER):
            await split_shard(catalog, "", ["s1", "s2"])
            world.events["split"] += 1
            return


async def sweep(world: CatalogWorld, name: str) -> None:
    catalog, entropy = world.catalog(name), world.entropy.fork(f"{name} moves")
    for _ in range(3):
        await world.clock.sleep(entropy.uniform(2.0, 1.5 * GRACE_SECONDS))
        with suppress(*WEATHER):
            done = await Vacuum(catalog).run(data_prefix="data/" if entropy.chance(0.2) else None)
            world.events["vacuumed"] += len(done.files) + len(done.segments)


async def weather(world: CatalogWorld) -> None:
    simulation, entropy = world.simulation, world.entropy.fork("hand")
    cast: list[tuple[str, Callable[[CatalogWorld, str], Any]]] = [
        ("w0", write),
        ("w1", write),
        ("c0", compact),
        ("c1", compact),
        ("r0", read),
        ("t0", tend),
        ("v0", sweep),
    ]
    if entropy.chance(0.5):
        # Sometimes beside a driver that was thought dead.
        cast += [("i0", ingest), ("i1", ingest)] if entropy.chance(0.3) else [("i0", ingest)]
    if entropy.chance(0.5):
        cast += [("s0", split), ("s1", split)] if entropy.chance(0.3) else [("s0", split)]
    processes = [simulation.start(name, play(world, name)) for name, play in cast]
    for _ in range(entropy.below(3)):
        await simulation.clock.sleep(entropy.uniform(0.5, 8.0))
        entropy.choice(processes).crash()
    for process in processes:
        await process.join()


async def settle(world: CatalogWorld) -> None:
    """Heal everything, finish what was begun, sweep, and look once more."""
    await world.faulty.settle()
    world.faulty.faults = FaultPlan.none()
    catalog = world.catalog("last")
    if (await catalog.refresh_map()).root.state != "active":
        await split_shard(catalog, "", ["s1", "s2"])
    if (await catalog.source_progress("queue")).started is not None:
        await ingest(world, "i2")
        assert (await catalog.source_progress("queue")).complete == BATCHES - 1
        world.auditor.demand_batches(BATCHES)
    plan = await catalog.plan()
    assert sorted(plan.paths) == sorted(world.auditor.visible)
    await world.clock.sleep(2 * (GRACE_SECONDS + FLOOR_SECONDS) + 60)
    world.auditor.pinned.clear()
    await Vacuum(catalog).run(data_prefix="data/")
    await Vacuum(catalog).run(data_prefix="data/")
    left = {meta.key async for page in world.auditor.list("data/") for meta in page}
    assert left == set(plan.paths), f"never swept: {left - set(plan.paths)}, missing: {set(plan.paths) - left}"
    named = {entry.key for head in world.auditor.heads.values() for entry in (*head.stored, *head.graves)}
    kept = {meta.key async for page in world.auditor.list("metadata/") for meta in page if meta.key.endswith("arrow")}
    assert kept == named, f"objects left behind or lost: {kept ^ named}"
    assert not world.auditor.violations, world.auditor.violations


async def trial(simulation: Simulation, build: Callable[[Simulation], CatalogWorld] = CatalogWorld) -> Any:
    world = build(simulation)
    await weather(world)
    await settle(world)
    return simulation.fingerprint


def test_a_catalog_that_is_made_and_grows_while_somebody_looks_has_not_lost_its_head() -> None:
    simulate(trial, 156)


@pytest.mark.simulation(seeds=2000)
def test_every_row_is_visible_exactly_once_at_every_sequence(seed: int) -> object:
    return simulate(trial, seed)


def test_a_compaction_whose_lease_ran_out_beside_a_split_is_told_so_and_not_that_its_files_are_elsewhere() -> None:
    """It was sent to the first of the new shards, where its target did not belong."""
    simulate(trial, 892203225044)


# The same checks over planted bugs ---------------------------------------------------------------


def forgetful_settling(made: relocation.Made, gone: Any) -> Any:
    """Brings back what was removed while it was being moved."""
    return made.entry


def forgetful_move(self: Any, head: Any, change: Any) -> Any:
    """Writes the position of a source down, and does not look at it."""
    after = change()
    return replace(after, sources={**after.sources, self._source: self._position}, is_draft=True)


def forgetful_lookup(*_: Any) -> dict[str, Any]:
    """Does not remember files that were merged or deleted."""
    return {}


def careless_swap(head: Any, sources: Any, targets: Any, lease_id: str, blocks: Any, now_ms: int) -> Any:
    """Takes out what it finds, and does not ask for the lease or for every source."""
    found = files.find_listed(head, sources, blocks)  # type: ignore[attr-defined]
    after = files._removed(head, found.values(), now_ms)
    return files.with_inline(after, [files.inline_file(file, head.next_seq) for file in targets])  # type: ignore[attr-defined]


def open_parent(head: Any) -> Any:
    """Splits a shard that goes on taking changes."""
    return head


def hopeful_proof(self: Any, value: Any, token: Any) -> bool:
    """Takes every lost answer for a success."""
    return True


def pinless(head: Any, now_ms: int, grace_ms: int) -> Any:
    """Vacuums what readers have pinned."""
    return _CONDEMNED(replace(head, pins={}), now_ms, grace_ms)


def graceless(head: Any, now_ms: int, grace_ms: int) -> Any:
    """Vacuums what was removed a moment ago."""
    return _CONDEMNED(head, now_ms, 0)


_CONDEMNED = burial.condemned_of


async def floorless(self: Vacuum, prefix: str) -> Any:
    """Takes whatever no head names, however young."""
    async for page in self._catalog.store.list(prefix):
        for meta in page:
            yield meta


@pytest.mark.slow
@pytest.mark.parametrize(
    ("places", "bug"),
    [
        (["change.relocation._settled"], forgetful_settling),
        (["change.files.find_removed"], forgetful_lookup),
        (["change.sources.SourceMove.applied"], forgetful_move),
        (["change.files.complete_compaction"], careless_swap),
        (["split.closed"], open_parent),
        (["format.head_json.HeadFormat.landed"], hopeful_proof),
        (["change.burial.condemned_of", "vacuum.condemned_of"], pinless),
        (["change.burial.condemned_of", "vacuum.condemned_of"], graceless),
        (["vacuum.Vacuum._old"], floorless),
    ],
    ids=lambda value: "" if isinstance(value, list) else value.__name__,
)
def test_a_planted_bug_is_noticed(places: list[str], bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in places:
        monkeypatch.setattr(f"penstock.catalog.{place}", bug)
    for seed in range(300):
        try:
            simulate(trial, seed)
        except (AssertionError, PenstockError, BaseExceptionGroup):
            return
    pytest.fail("300 seeds saw nothing wrong")
