"""Lives of a store, each ended by the power, by a kill or in peace: nothing acknowledged is lost or delivered again.

One seed decides the disk's faults, the order of all tasks, the speeds of subscribers and the moment of each end. Outside
the store a journal keeps what callers were told; at the end a healthy store is drained and compared with it.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
from tests.quiver.worlds import PATH, bundle, numbers, small, with_mode

from penstock.errors import AtCapacity, Closed, OutcomeUnknown, PenstockError, StorageFull
from penstock.quiver import (
    DeliveryOrder,
    Durability,
    Quiver,
    QuiverConfig,
    RetentionConfig,
    SubscriberConfig,
    WriteMode,
)
from penstock.testing import PowerCut, SeededEntropy, Simulation, TornDisk, simulate

T = TypeVar("T")
SUBSCRIBERS = ("fast", "slow")
LIVES = 3


@dataclass
class Journal:
    """What callers were told."""

    # Bundles whose ingest returned, by instance.
    stored: dict[int, list[int]] = field(default_factory=dict)
    # Bundles whose ingest failed with an unknown outcome: they may come out, or not.
    unknown: set[int] = field(default_factory=set)
    # For each (instance, subscriber) the bundles whose acknowledgement returned, and those where it was not known.
    acked: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    in_doubt: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    sequences: dict[int, list[int]] = field(default_factory=dict)
    next_number: int = 0

    def number(self) -> int:
        self.next_number += 1
        return self.next_number


@dataclass
class World:
    simulation: Simulation
    disk: TornDisk
    config: QuiverConfig
    entropy: SeededEntropy
    journal: Journal = field(default_factory=Journal)
    dark: asyncio.Event = field(default_factory=asyncio.Event)

    async def offload(self, work: Callable[..., T], /, *args: Any) -> T:
        """In one step, as a thread that nothing interrupts; the world ends where the power does."""
        await self.simulation.clock.sleep(0)
        try:
            return work(*args)
        except PowerCut:
            self.dark.set()
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def open(self, instance: int) -> Quiver:
        return await Quiver.open(
            PATH,
            self.config,
            instance=instance,
            disk=self.disk,
            clock=self.simulation.clock,
            entropy=self.entropy.fork(f"store-{instance}"),
            offload=self.offload,
        )


async def produce(world: World, store: Quiver, instance: int, count: int) -> None:
    journal = world.journal
    for _ in range(count):
        many = [journal.number() for _ in range(1 if world.entropy.chance(0.8) else 3)]
        journal.unknown.update(many)
        try:
            if len(many) == 1:
                await store.ingest(bundle(many[0]), timeout=5.0)
            else:
                await store.ingest_many([bundle(number) for number in many], timeout=5.0)
        except OutcomeUnknown:
            continue
        except (StorageFull, AtCapacity, TimeoutError):
            journal.unknown.difference_update(many)
            continue
        journal.unknown.difference_update(many)
        journal.stored.setdefault(instance, []).extend(many)
        if world.entropy.chance(0.3):
            await world.simulation.clock.sleep(world.entropy.uniform(0, 2))


async def consume(world: World, store: Quiver, instance: int, name: str) -> None:
    """Until nothing comes, or the store closes."""
    with suppress(Closed):
        await take(world, store, instance, name)


async def take(world: World, store: Quiver, instance: int, name: str) -> None:
    key, journal = (instance, name), world.journal
    while (delivery := await store.next(name, 20.0)) is not None:
        found = await numbers(delivery)
        assert not set(found) & set(journal.acked.get(key, [])), f"{found} again for {key}"
        if name == "slow":
            await world.simulation.clock.sleep(world.entropy.uniform(0, 1))
        if world.entropy.chance(0.1):
            await delivery.nack("not today")
            continue
        journal.in_doubt.setdefault(key, set()).update(found)
        try:
            await delivery.ack()
        except OutcomeUnknown:
            continue
        journal.in_doubt[key].difference_update(found)
        journal.acked.setdefault(key, []).extend(found)


async def live(world: World, instance: int, bundles: int, at_end: str) -> None:
    """One process's life with one instance: it produces, consumes, and closes if it is let."""
    store = await world.open(instance)
    check_numbers(world, store, instance)
    for name in SUBSCRIBERS:
        # Before anything is stored: a segment waits for those that are registered.
        order = DeliveryOrder.NEWEST_FIRST if name == "slow" else DeliveryOrder.OLDEST_FIRST
        await store.register(name, SubscriberConfig(order=order, in_flight_max=2, retry_seconds_first=0.01))
    consumers = [asyncio.create_task(consume(world, store, instance, name)) for name in SUBSCRIBERS]
    await produce(world, store, instance, bundles)
    if at_end == "close":
        try:
            await store.close()
        except PenstockError:
            return
    for consumer in consumers:
        consumer.cancel()


def check_numbers(world: World, store: Quiver, instance: int) -> None:
    """Sequence numbers go on, never back, and nothing that was acknowledged is reported lost."""
    seen = world.journal.sequences.setdefault(instance, [0])
    assert store.state.next_segment_seq >= max(seen)
    seen.append(max((meta.segment_seq for meta in store.segments), default=0))
    assert store.findings.lost_bundles == []
    assert store.findings.lost_segments == []
    assert store.state.settled == {number for number, waiting in store.state.outstanding.items() if not waiting}


async def end(world: World, how: str) -> None:
    """Let some time pass, then take the power, or only the process."""
    if how == "power":
        world.disk.crash()
    else:
        world.disk.revive()


async def trial(simulation: Simulation, sin: Callable[[World], Awaitable[None]] | None = None) -> int:
    entropy = simulation.entropy.fork("plan")
    config = with_mode(
        replace(
            small(),
            durability=entropy.choice((Durability.GROUP, Durability.SYNC)),
            instances=2,
            retention=RetentionConfig(size_cap=1 << 24, steady_state_headroom=entropy.choice((0, 2000))),
        ),
        entropy.choice((WriteMode.AUTO, WriteMode.BUFFERED)),
    )
    disk = TornDisk(entropy=simulation.entropy.fork("disk"), clock=simulation.clock)
    world = World(simulation, disk, config, entropy)
    for instance in range(2):
        # Folders that another process failed to sync are beyond what a store can know of.
        await (await world.open(instance)).close()
    for _ in range(1 + entropy.below(LIVES)):
        await one_life(world)
    return await last_life(world)


async def one_life(world: World) -> None:
    entropy, disk = world.entropy, world.disk
    world.dark = asyncio.Event()
    how = entropy.choice(("power", "kill", "close"))
    for verb in ("write_at", "sync_file", "sync_directory", "create", "rename", "preallocate"):
        if entropy.chance(0.05):
            disk.fail_next(verb, entropy.choice((errno.EIO, errno.ENOSPC)))
    processes = [
        world.simulation.start(f"instance-{instance}", live(world, instance, 4 + entropy.below(8), how))
        for instance in range(1 + entropy.below(2))
    ]
    if how != "close":
        disk.cut_power(after_writes=entropy.below(120))
    joined = [asyncio.create_task(process.join()) for process in processes]
    dark = asyncio.create_task(world.dark.wait())
    done = asyncio.create_task(asyncio.wait(joined))
    await asyncio.wait([dark, done], return_when=asyncio.FIRST_COMPLETED)
    if ended := [task for process, task in zip(processes, joined, strict=True) if not process.alive]:
        # A process may have failed in the very turn in which the power went.
        await asyncio.wait(ended)
    for process, task in zip(processes, joined, strict=True):
        error = task.exception() if task.done() and not process.crashed else None
        if error is not None and not isinstance(error, PenstockError):
            raise error
        process.crash()
    for task in (*joined, dark, done):
        task.cancel()
    await end(world, "power" if how == "power" else "kill")


async def last_life(world: World) -> int:
    """A healthy disk: everything that was acknowledged and not processed comes out, and nothing else."""
    world.disk.heal()
    world.dark = asyncio.Event()
    journal = world.journal
    for instance in sorted(journal.stored):
        store = await world.open(instance)
        check_numbers(world, store, instance)
        await store.flush()
        for name in SUBSCRIBERS:
            await check_drained(world, store, instance, name)
        await store.close()
    return sum(map(len, journal.stored.values()))


async def check_drained(world: World, store: Quiver, instance: int, name: str) -> None:
    key, journal = (instance, name), world.journal
    await store.register(name)
    came: list[int] = []
    while (delivery := await store.next(name, 70.0)) is not None:
        came += await numbers(delivery)
        await delivery.ack()
    before = journal.acked.get(key, [])
    doubtful = journal.in_doubt.get(key, set())
    assert len(came) == len(set(came)), f"{name} got something twice"
    assert not set(came) & set(before), f"{name} got again what it had acknowledged"
    missing = set(journal.stored[instance]) - set(came) - set(before) - doubtful
    assert not missing, f"{name} never got {sorted(missing)}"
    strangers = set(came) - set(journal.stored[instance]) - journal.unknown
    assert not strangers, f"{name} got {sorted(strangers)}, which were refused"


@pytest.mark.simulation(seeds=2000)
def test_no_end_of_a_life_loses_or_repeats_what_was_acknowledged(seed: int) -> object:
    return simulate(trial, seed)


def test_what_a_killed_process_wrote_and_never_synced_is_not_reported_lost_with_the_power() -> None:
    """A start read such a record from the page cache, and the frames it then wrote vouched for it."""
    simulate(trial, 219729219715)


def test_a_segment_that_a_killed_process_named_and_never_synced_is_there_after_the_power_went() -> None:
    """A start found its name in the page cache, and let go of the log that had its records."""
    simulate(trial, 392209022848)
