"""The register at its door: no update lost or doubled, fences that hold, and errors that say what is certain."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import DeadlineExceeded, Fenced, InvalidInput, OutcomeUnknown
from penstock.objects import (
    BytesCodec,
    MemoryStore,
    Object,
    ObjectMeta,
    ObjectStore,
    Register,
    RegisterPolicy,
    Stamped,
    StampedFormat,
    open_store,
)
from penstock.objects.port import Body
from penstock.observability import names
from penstock.testing import (
    Fate,
    FaultPlan,
    FaultyStore,
    Latency,
    RecordingObserver,
    SimulatedLoop,
    Simulation,
    UnreachableStore,
    WitnessStore,
    simulate,
)
from penstock.testing.storage.hostile_stores import PassingStore

KEY = "room/key"
CALL_SECONDS = 0.1


class World:
    """Registers on a store whose every call takes a tenth of a second."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        self.witness = WitnessStore(MemoryStore("test", clock=simulation.clock))
        plan = FaultPlan(latency=Latency(CALL_SECONDS, CALL_SECONDS), timeout_seconds=60.0)
        self.faulty = FaultyStore(self.witness, plan, entropy=simulation.entropy.fork("store"), clock=self.clock)
        self.observer = RecordingObserver()
        self._registers = 0

    def register(
        self, store: ObjectStore | None = None, policy: RegisterPolicy | None = None
    ) -> Register[Stamped[bytes]]:
        self._registers += 1
        return Register(
            store or self.faulty,
            KEY,
            StampedFormat(BytesCodec()),
            name="test",
            policy=policy or RegisterPolicy(),
            clock=self.clock,
            entropy=self.simulation.entropy.fork(f"register {self._registers}"),
            observer=self.observer,
        )

    @property
    def writes(self) -> int:
        return len(self.witness.history(KEY))


def simulated(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        simulate(lambda simulation: test(World(simulation)), seed=1)

    run.__doc__ = test.__doc__
    return run


def appends(text: bytes) -> Callable[[Stamped[bytes]], Stamped[bytes]]:
    return lambda value: value.map(lambda payload: payload + text)


class MeddledStore(PassingStore):
    """Lets `meddle` happen once, right before the next conditional write; then `loses` its answer, if it shall."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.meddle: Callable[[], Coroutine[Any, Any, object]] | None = None
        self.meddle_after: Callable[[], Coroutine[Any, Any, object]] | None = None

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        before, self.meddle = self.meddle, None
        if before is not None:
            await before()
        meta = await super().put_if(key, data, version=version)
        after, self.meddle_after = self.meddle_after, None
        if after is None:
            return meta
        await after()
        raise OutcomeUnknown(f"put_if {key!r}", "it landed, then its answer was lost")


# Reading and updating --------------------------------------------------------------------------------


@simulated
async def test_a_missing_object_reads_as_the_empty_value_and_is_not_created(world: World) -> None:
    assert (await world.register().read()).payload == b""
    assert world.writes == 0


@simulated
async def test_racing_creators_create_the_object_once_and_lose_nothing(world: World) -> None:
    registers = [world.register() for _ in range(10)]
    await asyncio.gather(*(register.update(appends(b".")) for register in registers))
    assert (await registers[0].read()).payload == b"." * 10
    assert world.writes == 10


@simulated
async def test_an_update_returns_a_value_that_includes_it(world: World) -> None:
    one, two = world.register(), world.register()
    first = await one.update(appends(b"a"))
    second = await two.update(appends(b"b"))
    third = await one.update(appends(b"c"))
    assert [value.payload for value in (first, second, third)] == [b"a", b"ab", b"abc"]


@simulated
async def test_no_body_ever_repeats(world: World) -> None:
    """Some stores make versions from content: bytes that came back would bring back an old version."""
    register = world.register()
    for payload in (b"a", b"b", b"a", b"b"):
        await register.update(lambda value, payload=payload: value.map(lambda _: payload))
    assert len(set(world.witness.history(KEY))) == 4


@simulated
async def test_conflicts_and_commits_are_counted(world: World) -> None:
    store = MeddledStore(world.faulty)
    store.meddle = lambda: world.register().update(appends(b"b"))
    register = world.register(store)
    assert register.conflict_rate == 0.0
    await register.update(appends(b"a"))
    assert register.conflict_rate == 0.5
    assert world.observer.counted(names.REGISTER_CONFLICTS, register="test") == 1
    assert world.observer.counted(names.REGISTER_COMMITS, register="test") == 2


@simulated
async def test_a_read_spares_the_next_update_its_own(world: World) -> None:
    register = world.register()
    await register.read()
    await register.update(appends(b"a"))
    assert world.clock.monotonic() == pytest.approx(2 * CALL_SECONDS)


@simulated
async def test_a_value_that_grew_old_costs_one_conflict_and_no_harm(world: World) -> None:
    one, two = world.register(), world.register()
    await one.update(appends(b"a"))
    await two.update(appends(b"b"))
    assert (await one.update(appends(b"c"))).payload == b"abc"
    assert world.observer.counted(names.REGISTER_CONFLICTS) == 1


# Deadlines -------------------------------------------------------------------------------------------


@simulated
async def test_an_unreachable_store_ends_at_the_deadline_with_its_reason(world: World) -> None:
    register = world.register(UnreachableStore(), RegisterPolicy(deadline_seconds=7.0))
    for call in (register.update(appends(b"a")), register.read(), register.acquire_fence()):
        began = world.clock.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"'room/key' in unreachable://.*within 7 s.*did not answer"):
            await call
        assert world.clock.monotonic() - began == pytest.approx(7.0)


@simulated
async def test_a_deadline_with_nothing_under_way_means_surely_not_applied(world: World) -> None:
    """Every write is turned away at once, so the deadline falls into a pause between two of them."""
    world.faulty.faults = FaultPlan(throttled=1.0, verbs=frozenset({"put_if"}))
    register = world.register(policy=RegisterPolicy(deadline_seconds=5.0))
    with pytest.raises(DeadlineExceeded):
        await register.update(appends(b"a"))
    await world.clock.sleep(100.0)
    assert world.writes == 0


@simulated
async def test_a_deadline_with_a_write_in_doubt_means_unknown(world: World) -> None:
    """The zombie lands after the caller was told, as it was told it might."""
    world.faulty.script("put_if", Fate.ZOMBIE)
    world.faulty.script("get", Fate.SERVED, *[Fate.THROTTLED] * 1000)
    register = world.register(policy=RegisterPolicy(deadline_seconds=8.0, attempt_seconds=2.0))
    with pytest.raises(OutcomeUnknown, match="may have landed or still land"):
        await register.update(appends(b"a"))
    assert world.clock.monotonic() == pytest.approx(8.0)


class Stopping(PassingStore):
    """Its process is stopped for minutes right after a write has landed, before the answer is there."""

    stops = 1

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        meta = await super().put_if(key, data, version=version)
        if self.stops:
            self.stops -= 1
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimulatedLoop)
            loop.stall(300.0)
            # The answer is on its way while everything that was overdue fires.
            await asyncio.sleep(CALL_SECONDS)
        return meta


@simulated
async def test_a_process_that_was_stopped_past_its_deadline_learns_what_became_of_its_write(world: World) -> None:
    """Everything is overdue when it goes on, and the store is well: that is no unknown outcome."""
    register = world.register(Stopping(world.faulty))
    assert (await register.update(appends(b"a"))).payload == b"a"
    assert world.clock.monotonic() > 300.0
    assert world.writes == 1


@simulated
async def test_an_expired_change_does_not_ride_on_the_next_write(world: World) -> None:
    served = world.faulty.faults
    world.faulty.faults = replace(served, throttled=1.0)
    register = world.register(policy=RegisterPolicy(deadline_seconds=2.0))
    with pytest.raises(DeadlineExceeded):
        await register.update(appends(b"a"))
    world.faulty.faults = served
    assert (await register.update(appends(b"b"))).payload == b"b"


@simulated
async def test_a_change_that_is_prepared_anew_keeps_its_deadline(world: World) -> None:
    """Seven of its ten seconds are over when it asks again, and the store answers nobody."""
    register = world.register(UnreachableStore(), RegisterPolicy(deadline_seconds=10.0))
    asked = world.clock.monotonic()
    await world.clock.sleep(7.0)
    with pytest.raises(DeadlineExceeded):
        await register.update(appends(b"a"), asked=asked)
    assert world.clock.monotonic() - asked == pytest.approx(10.0)
    # None of it is left: it is told so at once, and nothing is sent.
    await world.clock.sleep(5.0)
    late = world.register(policy=RegisterPolicy(deadline_seconds=10.0))
    with pytest.raises(DeadlineExceeded):
        await late.update(appends(b"a"), asked=asked)
    assert world.writes == 0


# Fences ----------------------------------------------------------------------------------------------


@simulated
async def test_each_fence_is_one_more_than_the_last(world: World) -> None:
    one, two = world.register(), world.register()
    assert one.fence is None
    assert await one.acquire_fence() == 1
    assert await two.acquire_fence() == 2
    assert (one.fence, two.fence) == (1, 2)


@simulated
async def test_a_stale_holder_is_fenced_from_reading_and_writing(world: World) -> None:
    one, two = world.register(), world.register()
    await one.acquire_fence()
    await one.update(appends(b"a"))
    await two.acquire_fence()
    for call in (one.update(appends(b"b")), one.read(), one.update(lambda value: value)):
        with pytest.raises(Fenced, match="holds fence 1, and the object is at fence 2"):
            await call
    assert (await two.update(appends(b"c"))).payload == b"ac"


@simulated
async def test_a_fence_taken_over_during_an_update_stops_it(world: World) -> None:
    """The take-over lands between the read and the write of the older holder."""
    store = MeddledStore(world.faulty)
    one, two = world.register(store), world.register()
    await one.acquire_fence()
    store.meddle = two.acquire_fence
    with pytest.raises(Fenced, match="holds fence 1, and the object is at fence 2"):
        await one.update(appends(b"a"))
    assert (await two.read()).payload == b""


@simulated
async def test_a_commit_that_landed_before_the_take_over_is_reported_as_landed(world: World) -> None:
    store = MeddledStore(world.faulty)
    one, two = world.register(store), world.register()
    await one.acquire_fence()
    store.meddle_after = two.acquire_fence
    assert (await one.update(appends(b"a"))).payload == b"a"
    with pytest.raises(Fenced):
        await one.update(appends(b"b"))
    assert (await two.read()).payload == b"a"


@simulated
async def test_a_take_over_whose_answer_was_lost_is_not_claimed(world: World) -> None:
    """Another register may have written the very same number, so the fence is raised once more."""
    world.faulty.script("put_if", Fate.ERROR_AFTER)
    register = world.register()
    assert await register.acquire_fence() == 2
    assert (await register.update(appends(b"a"))).fence == 2


@simulated
async def test_two_registers_never_hold_the_same_fence(world: World) -> None:
    registers = [world.register() for _ in range(8)]
    world.faulty.script("put_if", *[Fate.SERVED, Fate.ERROR_AFTER, Fate.REQUEST_LOST] * 4)
    fences = await asyncio.gather(*(register.acquire_fence() for register in registers))
    assert len(set(fences)) == 8


@simulated
async def test_a_fence_that_landed_after_its_caller_left_is_held_all_the_same(world: World) -> None:
    register = world.register()
    taking = asyncio.create_task(register.acquire_fence())
    await world.clock.sleep(1.5 * CALL_SECONDS)
    taking.cancel()
    await world.clock.sleep(CALL_SECONDS)
    assert register.fence == 1
    assert (await register.update(appends(b"a"))).fence == 1


@simulated
async def test_a_stale_holder_comes_back_by_taking_the_fence_again(world: World) -> None:
    one, two = world.register(), world.register()
    await one.acquire_fence()
    await two.acquire_fence()
    assert await one.acquire_fence() == 3
    assert (await one.update(appends(b"a"))).payload == b"a"
    with pytest.raises(Fenced):
        await two.read()


class LaggingStore(PassingStore):
    """Answers a read with what it saw, but only once `release` is set."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.release = asyncio.Event()
        self.release.set()

    async def get(self, key: str) -> Object:
        seen = await super().get(key)
        await self.release.wait()
        return seen

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        seen = await super().get_if_changed(key, version=version)
        await self.release.wait()
        return seen


class CountingStore(PassingStore):
    """Counts the bytes of every body that is read."""

    bytes_read = 0

    async def get(self, key: str) -> Object:
        return self._counted(await super().get(key))

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        found = await super().get_if_changed(key, version=version)
        return None if found is None else self._counted(found)

    def _counted(self, found: Object) -> Object:
        self.bytes_read += len(found.data)
        return found


@simulated
async def test_a_read_of_what_has_not_changed_moves_no_bytes(world: World) -> None:
    store = CountingStore(world.witness)
    register, other = world.register(store), world.register()
    value = await register.update(appends(b"a"))
    before = store.bytes_read
    for _ in range(3):
        assert await register.read() is value
    assert store.bytes_read == before
    await other.update(appends(b"b"))
    assert (await register.read()).payload == b"ab"
    assert store.bytes_read > before


@simulated
async def test_a_read_begun_before_the_own_take_over_is_no_reason_to_stop(world: World) -> None:
    """Its old value comes last, and must neither fence the reader nor the next update."""
    store = LaggingStore(world.witness)
    register = world.register(store)
    await register.update(appends(b"a"))
    store.release.clear()
    reading = asyncio.create_task(register.read())
    await world.clock.sleep(1.0)
    assert await register.acquire_fence() == 1
    store.release.set()
    assert (await reading).fence == 0
    assert (await register.update(appends(b"b"))).payload == b"ab"


@simulated
async def test_a_change_can_ask_when_the_value_it_replaces_was_written(world: World) -> None:
    one, two = world.register(), world.register(policy=RegisterPolicy(cached=False))
    await one.update(appends(b"a"))
    written_ms = world.clock.now_ms()
    await world.clock.sleep(60.0)
    asked: list[int | None] = []

    def change(value: Stamped[bytes]) -> Stamped[bytes]:
        asked.append(two.written_ms(value))
        return value.map(lambda payload: payload + b"b")

    after = await two.update(change)
    assert [abs((one_ms or 0) - written_ms) < 1000 for one_ms in asked] == [True]
    assert two.written_ms(after) is None, "a write does not tell"
    assert two.written_ms(await two.read()) is not None


# Renewing a fence -----------------------------------------------------------------------------------


@simulated
async def test_a_renewed_fence_is_held_and_far_from_any_that_a_takeover_gives(world: World) -> None:
    one, two = world.register(), world.register()
    await one.acquire_fence()
    renewed = await one.renew_fence()
    assert one.fence == renewed.fence > 2
    assert (await one.update(appends(b"a"))).fence == one.fence
    assert await two.acquire_fence() == renewed.fence + 1
    with pytest.raises(Fenced):
        await one.renew_fence()
    assert (await two.read()).fence == renewed.fence + 1


@simulated
async def test_a_register_that_was_taken_over_cannot_renew_its_way_back(world: World) -> None:
    store = MeddledStore(world.faulty)
    one, two = world.register(store), world.register()
    await one.acquire_fence()
    store.meddle = two.acquire_fence
    with pytest.raises(Fenced):
        await one.renew_fence()
    assert (await two.read()).fence == two.fence == 2


@pytest.mark.parametrize("fate", [Fate.ERROR_AFTER, Fate.REPLY_LOST, Fate.REQUEST_LOST, Fate.ZOMBIE])
def test_a_renewal_whose_answer_was_lost_is_known_for_ones_own(fate: Fate) -> None:
    @simulated
    async def check(world: World) -> None:
        register = world.register(policy=RegisterPolicy(attempt_seconds=2.0))
        await register.acquire_fence()
        world.faulty.script("put_if", fate)
        renewed = await register.renew_fence()
        assert register.fence == renewed.fence
        assert (await register.update(appends(b"a"))).fence == register.fence
        await world.faulty.settle()
        assert (await register.read()).payload == b"a"

    check()


@simulated
async def test_a_renewal_that_lands_after_it_was_given_up_does_not_fence_its_own_register(world: World) -> None:
    register = world.register(policy=RegisterPolicy(deadline_seconds=3.0, attempt_seconds=2.0))
    await register.acquire_fence()
    world.faulty.faults = FaultPlan(zombie=1.0, verbs=frozenset({"put_if"}), timeout_seconds=2.5)
    with pytest.raises(OutcomeUnknown):
        await register.renew_fence()
    await world.faulty.settle()
    world.faulty.faults = FaultPlan.none()
    assert (await register.read()).fence == register.fence != 1
    assert (await register.update(appends(b"a"))).payload == b"a"
    await register.renew_fence()


@simulated
async def test_reading_beside_a_renewal_never_fences_the_reader(world: World) -> None:
    register = world.register()
    await register.acquire_fence()
    for _ in range(20):
        renewing = asyncio.create_task(register.renew_fence())
        while not renewing.done():
            await asyncio.gather(*(register.read() for _ in range(3)))
            await world.clock.sleep(CALL_SECONDS / 7)
        await renewing


@simulated
async def test_a_fence_that_is_not_held_cannot_be_renewed(world: World) -> None:
    with pytest.raises(InvalidInput, match="acquire_fence"):
        await world.register().renew_fence()


@simulated
async def test_a_register_without_a_fence_is_never_fenced(world: World) -> None:
    free, holder = world.register(), world.register()
    await free.update(appends(b"a"))
    await holder.acquire_fence()
    assert (await free.update(appends(b"b"))).payload == b"ab"


# What is refused, and real processes -----------------------------------------------------------------


@pytest.mark.parametrize("setting", ["deadline_seconds", "attempt_seconds", "waiting_max", "window_seconds_max"])
@pytest.mark.parametrize("bound", [0, -1, float("nan")])
def test_a_bound_that_is_not_above_zero_is_refused(setting: str, bound: float) -> None:
    with pytest.raises(InvalidInput, match=setting):
        RegisterPolicy(**{setting: bound})  # type: ignore[arg-type]


def test_a_key_that_could_leave_its_folder_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"\.\."):
        Register(MemoryStore(), "../key", StampedFormat(BytesCodec()))


PROCESSES, UPDATES = 4, 25
PROGRAM = f"""
import asyncio, sys
from penstock.objects import BytesCodec, Register, StampedFormat, open_store

async def main(url):
    register = Register(await open_store(url), "counter", StampedFormat(BytesCodec()))
    for _ in range({UPDATES}):
        await register.update(lambda value: value.map(lambda payload: payload + b"."))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.processes
def test_processes_on_one_directory_lose_no_update(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    running = [subprocess.Popen([sys.executable, "-c", PROGRAM, url]) for _ in range(PROCESSES)]
    assert [process.wait(timeout=60) for process in running] == [0] * PROCESSES

    async def counted() -> Stamped[bytes]:
        return await Register(await open_store(url), "counter", StampedFormat(BytesCodec())).read()

    value = asyncio.run(counted())
    assert value.payload == b"." * PROCESSES * UPDATES
    assert value.seq == PROCESSES * UPDATES


@pytest.mark.integration
@pytest.mark.parametrize("service", ["s3", "az"])
def test_registers_on_a_real_server_lose_no_update(service: str, request: pytest.FixtureRequest) -> None:
    """What the store answers to racing writes is what the register takes it for."""
    server = request.getfixturevalue("s3_server" if service == "s3" else "azure_server")

    async def main() -> Stamped[bytes]:
        store = await open_store(f"{service}://penstock/registers", **server.options)
        registers = [Register(store, "counter", StampedFormat(BytesCodec())) for _ in range(6)]
        for _ in range(5):
            await asyncio.gather(*(register.update(appends(b".")) for register in registers))
        value = await registers[0].read()
        await store.close()
        return value

    value = asyncio.run(main())
    assert value.payload == b"." * 30
    assert value.seq == 30
