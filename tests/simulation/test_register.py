"""The register under every fault a store may have: eight writers, crashes, zombies, take-overs.

Each update appends a name of its own to a list, so the list tells what was applied, how often and in
which order; a witness below the faults keeps every body that ever landed. A second world is a directory
on a disk whose syncs fail and hang, whose lock holders stop, and whose power goes. The last tests break
both worlds in known ways and demand that the same checks notice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pytest

from penstock.errors import Fenced, OutcomeUnknown, PenstockError, Unavailable
from penstock.objects import (
    DirectoryStore,
    MemoryStore,
    Object,
    ObjectMeta,
    ObjectStore,
    Register,
    RegisterPolicy,
    Stamped,
    StampedFormat,
    Token,
)
from penstock.objects.directory.locks import Locks
from penstock.objects.port import Body
from penstock.testing import (
    CarelessStore,
    FaultPlan,
    FaultyStore,
    Latency,
    SeededEntropy,
    Simulation,
    StutteringStore,
    TornDisk,
    WitnessStore,
    inline,
    simulate,
)
from penstock.testing.storage.hostile_stores import PassingStore

WRITERS = 8
UPDATES = 2
KEY = "register"
Names = tuple[str, ...]


class NamesCodec:
    def empty(self) -> Names:
        return ()

    def encode(self, payload: Names) -> bytes:
        return "\n".join(payload).encode()

    def decode(self, data: bytes) -> Names:
        return tuple(data.decode().split("\n")) if data else ()


@dataclass(frozen=True)
class Weather:
    """What makes one seed unlike another: faults, patience and pace. Quiet seeds matter as much as crowded ones:
    a zombie can land on its own base only where nobody else has written meanwhile."""

    plan: FaultPlan
    policy: RegisterPolicy
    pause_seconds_max: float

    @classmethod
    def draw(cls, entropy: SeededEntropy) -> Weather:
        timeout = entropy.choice((0.1, 0.5, 3.0))
        plan = FaultPlan(
            throttled=0.02,
            error_before=0.02,
            request_lost=0.02,
            error_after=0.05,
            reply_lost=0.02,
            zombie=entropy.choice((0.03, 0.1)),
            crash_before=0.003,
            crash_after=0.004,
            latency=Latency(0.005, 0.05, slow_chance=0.02, slow_seconds_max=entropy.choice((0.3, 6.0))),
            timeout_seconds=timeout,
            zombie_seconds_max=timeout + entropy.choice((0.2, 1.0, 12.0)),
        )
        deadline = entropy.choice((1.0, 5.0, 20.0))
        policy = RegisterPolicy(deadline_seconds=deadline, attempt_seconds=entropy.choice((0.2, 1.0, 4.0)))
        return cls(plan, policy, entropy.choice((0.1, 0.3, 5.0)))


@dataclass
class Journal:
    """What the writers were told, written outside of all processes so that a crash loses nothing of it."""

    confirmed: list[str] = field(default_factory=list)
    denied: dict[str, PenstockError] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    fence_of: dict[str, int] = field(default_factory=dict)
    fences: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class World:
    """One trial's surroundings; the last two fields are what the mutants replace."""

    simulation: Simulation
    entropy: SeededEntropy
    weather: Weather
    witness: WitnessStore
    faulty: FaultyStore
    journal: Journal
    seen_as: Callable[[ObjectStore], ObjectStore]
    format: Callable[[], StampedFormat[Names]]

    def register(self, name: str, policy: RegisterPolicy | None = None) -> Register[Stamped[Names]]:
        return Register(
            self.seen_as(self.faulty),
            KEY,
            self.format(),
            name=name,
            policy=policy or self.weather.policy,
            clock=self.simulation.clock,
            entropy=self.entropy.fork(name),
        )

    async def pause(self, entropy: SeededEntropy) -> None:
        await self.simulation.clock.sleep(entropy.uniform(0.0, self.weather.pause_seconds_max))


def build(
    simulation: Simulation,
    weather: Weather | None = None,
    *,
    beneath: Callable[[ObjectStore], ObjectStore] = lambda store: store,
    seen_as: Callable[[ObjectStore], ObjectStore] = lambda store: store,
    format: Callable[[], StampedFormat[Names]] = lambda: StampedFormat(NamesCodec()),
) -> World:
    clock, entropy = simulation.clock, simulation.entropy
    weather = weather or Weather.draw(entropy.fork("weather"))
    witness = WitnessStore(MemoryStore(clock=clock))
    faulty = FaultyStore(beneath(witness), weather.plan, entropy=entropy.fork("faults"), clock=clock)
    return World(simulation, entropy.fork("writers"), weather, witness, faulty, Journal(), seen_as, format)


# The workload ------------------------------------------------------------------------------------


async def writer(world: World, name: str) -> None:
    """A process that appends its names, alone or in pairs; some hold a fence, and take it back when they lose it."""
    register, entropy = world.register(name), world.entropy.fork(f"{name} moves")
    fenced = entropy.chance(0.4)
    for number in range(UPDATES):
        await world.pause(entropy)
        if fenced and (register.fence is None or entropy.chance(0.1)) and not await take_fence(world, register):
            continue
        names = [f"{name}.{number}{letter}" for letter in ("ab" if entropy.chance(0.2) else "a")]
        patience = entropy.uniform(0.0, 3.0) if entropy.chance(0.1) else None
        proofs = [entropy.chance(0.3) for _ in names]
        if not all(await asyncio.gather(*map(partial(append, world, register, patience), names, proofs))):
            # Fenced: give up, or come back as the next holder.
            if entropy.chance(0.5):
                return
            await take_fence(world, register)


async def take_fence(world: World, register: Register[Stamped[Names]]) -> bool:
    try:
        world.journal.fences.append(await register.acquire_fence())
    except PenstockError:
        return False
    return True


async def append(
    world: World, register: Register[Stamped[Names]], patience: float | None, name: str, own_proof: bool
) -> bool:
    """False once the register is fenced. The list itself can serve as the proof of a commit."""
    journal = world.journal
    confirmed_before = len(journal.confirmed)
    journal.begun.append(name)
    if register.fence is not None:
        journal.fence_of[name] = register.fence
    try:
        async with asyncio.timeout(patience):
            value = await register.update(
                lambda value: value.map(lambda names: (*names, name)),
                landed=(lambda value: name in value.payload) if own_proof else None,
            )
    except OutcomeUnknown:
        journal.unknown.append(name)
    except PenstockError as error:
        journal.denied[name] = error
        return not isinstance(error, Fenced)
    except TimeoutError:
        # The caller's own patience: the update may have landed, or still land.
        pass
    else:
        assert name in value.payload, "an update missed itself"
        assert set(journal.confirmed[:confirmed_before]) <= set(value.payload), "an update missed an older one"
        journal.confirmed.append(name)
    return True


async def reader(world: World) -> None:
    """Reads never miss what was confirmed before they began."""
    register, entropy = world.register("reader"), world.entropy.fork("reader moves")
    for _ in range(3):
        await world.pause(entropy)
        confirmed_before = len(world.journal.confirmed)
        try:
            value = await register.read()
        except Unavailable:
            continue
        assert set(world.journal.confirmed[:confirmed_before]) <= set(value.payload), "a read missed an update"


async def run_writers(world: World) -> None:
    """Start all; kill one now and then, and start its successor under another name."""
    simulation, entropy = world.simulation, world.entropy.fork("killer")
    processes = [simulation.start(f"w{number}", writer(world, f"w{number}")) for number in range(WRITERS)]
    onlooker = simulation.start("reader", reader(world))
    for number in range(entropy.below(3)):
        await world.pause(entropy)
        entropy.choice(processes).crash()
        processes.append(simulation.start(f"x{number}", writer(world, f"x{number}")))
    for process in (*processes, onlooker):
        await process.join()


# The checks --------------------------------------------------------------------------------------


async def check(world: World) -> None:
    """Once every zombie has landed and the faults are healed."""
    await world.faulty.settle()
    world.faulty.faults = FaultPlan.none()
    final = (await world.register("auditor", RegisterPolicy()).read()).payload
    journal, form = world.journal, StampedFormat(NamesCodec())
    bodies = [form.decode(body) for body in world.witness.history(KEY) if body is not None]

    doubled = [name for name, times in Counter(final).items() if times > 1]
    assert not doubled, f"doubled: {doubled}"
    lost = [name for name in journal.confirmed if name not in final]
    assert not lost, f"confirmed and lost: {lost}"
    risen = [name for name in journal.denied if any(name in body.payload for body in bodies)]
    assert not risen, f"denied and applied: {risen}"
    strange = set(final) - set(journal.begun)
    assert not strange, f"never asked for: {strange}"
    check_history(bodies, journal)


def check_history(bodies: list[Stamped[Names]], journal: Journal) -> None:
    """Each body extends the one before it, and whoever holds a fence writes under a fence of its own alone."""
    assert len(set(journal.fences)) == len(journal.fences), f"a fence was given twice: {journal.fences}"
    previous: Stamped[Names] = Stamped(())
    raised_by: dict[int, bytes] = {}
    for body in bodies:
        size, author = len(previous.payload), _author(body)
        assert body.payload[:size] == previous.payload, "a write dropped an older one"
        assert body.fence >= previous.fence, "a fence went back"
        raised_by.setdefault(body.fence, author)
        for name in body.payload[size:]:
            # A take-over that its caller had given up on may still come through while the update waits.
            held = body.fence if raised_by[body.fence] == author else journal.fence_of.get(name, body.fence)
            assert held == body.fence, f"{name} held fence {held} and was written under fence {body.fence}"
        previous = body


def _author(body: Stamped[Names]) -> bytes:
    """The register that wrote it: the newest stamp ends the table, 26 bytes of name and 8 of number."""
    return body.stamps[-34:-8]


async def trial(simulation: Simulation, build: Callable[[Simulation], World] = build) -> tuple[int, int, float]:
    world = build(simulation)
    await run_writers(world)
    await check(world)
    return simulation.fingerprint


@pytest.mark.simulation(seeds=2000)
def test_no_update_is_lost_or_doubled_and_no_fenced_writer_commits(seed: int) -> object:
    return simulate(trial, seed, stall_seconds_max=0.05)


class MuteFormat(StampedFormat[Names]):
    """Can never tell whether an attempt landed, as a full table of stamps cannot."""

    def landed(self, value: Stamped[Names], token: Token) -> bool | None:
        return None


@pytest.mark.simulation(seeds=200)
def test_a_body_that_can_no_longer_tell_leaves_outcomes_unknown_and_never_wrong(seed: int) -> object:
    async def main(simulation: Simulation) -> object:
        return await trial(simulation, partial(build, format=lambda: MuteFormat(NamesCodec())))

    return simulate(main, seed, stall_seconds_max=0.05)


@pytest.mark.simulation(seeds=100)
def test_in_fair_weather_every_update_is_confirmed_or_fenced(seed: int) -> object:
    async def main(simulation: Simulation) -> object:
        world = build(simulation, Weather(FaultPlan(latency=Latency(0.005, 0.05)), RegisterPolicy(), 0.3))
        await asyncio.gather(*(writer(world, f"w{number}") for number in range(WRITERS)))
        await check(world)
        assert not world.journal.unknown
        assert all(isinstance(error, Fenced) for error in world.journal.denied.values())
        return simulation.fingerprint

    return simulate(main, seed)


# A directory whose disk fails ---------------------------------------------------------------------

T = TypeVar("T")


@dataclass(frozen=True)
class DirectoryWorld(World):
    """Each process has a store of its own over one disk."""

    disk: TornDisk

    def register(self, name: str, policy: RegisterPolicy | None = None) -> Register[Stamped[Names]]:
        clock, entropy = self.simulation.clock, self.entropy.fork(f"{name} at {self.disk.writes}")

        async def offload(work: Callable[..., T], /, *args: Any) -> T:
            await clock.sleep(entropy.uniform(0.0, 0.02))
            return await inline(work, *args)

        store = DirectoryStore("/store", disk=self.disk, offload=offload, clock=clock, entropy=entropy.fork("store"))
        return Register(
            self.seen_as(store),
            KEY,
            self.format(),
            name=name,
            policy=policy or self.weather.policy,
            clock=clock,
            entropy=entropy.fork("register"),
        )


def build_directory(
    simulation: Simulation, seen_as: Callable[[ObjectStore], ObjectStore] = lambda store: store
) -> DirectoryWorld:
    world = build(simulation, seen_as=seen_as)
    disk = TornDisk(entropy=simulation.entropy.fork("disk"), clock=simulation.clock)
    return DirectoryWorld(**vars(world), disk=disk)


async def wear(world: DirectoryWorld) -> None:
    """Syncs that fail, syncs that never return, and processes that stop with the lock in their hands."""
    entropy, clock = world.entropy.fork("wear"), world.simulation.clock
    await clock.sleep(0.2)
    while True:
        await clock.sleep(entropy.uniform(0.0, 1.0))
        fault = entropy.choice(("failing", "failing", "hanging", "stopped"))
        if fault == "failing":
            world.disk.fail_next(entropy.choice(("sync_directory", "sync_directory", "sync_file", "rename")))
        elif fault == "hanging":
            world.disk.hang_next("sync_directory")
        else:
            with suppress(Exception), Locks(world.disk, "/store/.penstock/locks").held(KEY):
                await clock.sleep(entropy.uniform(0.0, 8.0))


async def lose_power(world: DirectoryWorld, names: list[str]) -> None:
    """Writers on a wearing disk, until the power goes: whatever was confirmed by then is there afterwards."""
    simulation, entropy = world.simulation, world.entropy.fork("power")
    processes = [simulation.start(name, writer(world, name)) for name in names]
    wearing = simulation.start("wear", wear(world))
    await simulation.clock.sleep(entropy.uniform(0.5, 15.0))
    for process in (*processes, wearing):
        process.crash()
    world.disk.heal()
    world.disk.crash()
    final = (await world.register("auditor", RegisterPolicy()).read()).payload
    lost = [name for name in world.journal.confirmed if name not in final]
    assert not lost, f"confirmed and lost: {lost}"
    doubled = [name for name, times in Counter(final).items() if times > 1]
    assert not doubled, f"doubled: {doubled}"
    risen = [name for name in world.journal.denied if name in final]
    assert not risen, f"denied and applied: {risen}"


async def directory_trial(
    simulation: Simulation, build: Callable[[Simulation], DirectoryWorld] = build_directory
) -> tuple[int, int, float]:
    world = build(simulation)
    for round_name in ("first", "second"):
        await lose_power(world, [f"{round_name} {number}" for number in range(4)])
    return simulation.fingerprint


@pytest.mark.simulation(seeds=400)
def test_what_a_register_in_a_directory_confirmed_survives_failing_syncs_and_power_losses(seed: int) -> object:
    return simulate(directory_trial, seed, stall_seconds_max=0.05)


# What the checks are worth ------------------------------------------------------------------------


class ForgetfulStore(PassingStore):
    """Takes a lost answer for a failure: a register above it repeats blindly what may have landed."""

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        try:
            return await super().put_if(key, data, version=version)
        except OutcomeUnknown as error:
            raise Unavailable(error.what, "so it surely did not land") from error


class HopefulStore(PassingStore):
    """Takes a lost answer for a success: a register above it confirms what may never land."""

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        try:
            return await super().put_if(key, data, version=version)
        except OutcomeUnknown:
            return ObjectMeta(key, len(data), "surely", 0)


class CredulousFormat(StampedFormat[Names]):
    """Finds its proof in any body."""

    def landed(self, value: Stamped[Names], token: Token) -> bool | None:
        return True


class BlindFormat(StampedFormat[Names]):
    """Finds its proof in none."""

    def landed(self, value: Stamped[Names], token: Token) -> bool | None:
        return False


class StubbornFormat(StampedFormat[Names]):
    """Takes the fence it once wrote for the fence of every later body."""

    mine: int | None = None

    def fence(self, value: Stamped[Names]) -> int:
        return value.fence if self.mine is None else self.mine

    def with_fence(self, value: Stamped[Names], fence: int) -> Stamped[Names]:
        self.mine = fence = max(fence, value.fence + 1)
        return super().with_fence(value, fence)


class CredulousStore(PassingStore):
    """Takes what it can see for what will last."""

    async def get_durable(self, key: str) -> Object:
        return await self._inner.get(key)


def _notices(world: Callable[[Simulation], World], violation: str) -> bool:
    return _finds(lambda simulation: trial(simulation, world), violation)


def _finds(main: Callable[[Simulation], Awaitable[object]], violation: str) -> bool:
    for seed in range(300):
        try:
            simulate(main, seed, stall_seconds_max=0.05)  # type: ignore[arg-type]
        except AssertionError as error:
            if violation in str(error):
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sin", "violation"),
    [
        pytest.param({"seen_as": ForgetfulStore}, "doubled", id="retries blindly, and doubles"),
        pytest.param({"seen_as": ForgetfulStore}, "denied and applied", id="retries blindly, and denies"),
        pytest.param({"seen_as": HopefulStore}, "confirmed and lost", id="hopes for the best"),
        pytest.param({"seen_as": StutteringStore}, "doubled", id="false conflicts"),
        pytest.param({"beneath": CarelessStore}, "an update missed an older one", id="ignored conditions"),
        pytest.param(
            {"format": lambda: CredulousFormat(NamesCodec())}, "an update missed itself", id="proofs of nothing"
        ),
        pytest.param({"format": lambda: BlindFormat(NamesCodec())}, "doubled", id="proofs unseen"),
        pytest.param({"format": lambda: StubbornFormat(NamesCodec())}, "was written under fence", id="fences unseen"),
    ],
)
def test_the_simulation_notices_each_sin_it_is_there_for(sin: dict[str, Any], violation: str) -> None:
    assert _notices(partial(build, **sin), violation)


def test_the_simulation_notices_a_directory_that_takes_visible_for_durable() -> None:
    world = partial(build_directory, seen_as=CredulousStore)
    assert _finds(lambda simulation: directory_trial(simulation, world), "confirmed and lost")
