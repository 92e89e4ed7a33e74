"""Lost answers: whatever becomes of a write whose answer never came, its change is applied once or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from penstock.errors import Corrupt, OutcomeUnknown, PermissionDenied, StorageFull, Unsupported
from penstock.objects import (
    BytesCodec,
    MemoryStore,
    ObjectMeta,
    ObjectStore,
    Register,
    RegisterPolicy,
    Stamped,
    StampedFormat,
    Token,
)
from penstock.objects.port import Body
from penstock.objects.register.stamp import STAMPS_MAX
from penstock.observability import names
from penstock.testing import Fate, FaultPlan, FaultyStore, RecordingObserver, Simulation, WitnessStore, simulate
from penstock.testing.storage.hostile_stores import PassingStore

KEY = "room/key"


class World:
    """A witness over memory, seen through faults that each test scripts, and registers on it."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        self.witness = WitnessStore(MemoryStore("test", clock=simulation.clock))
        # Longer than an attempt: a request without an answer is given up by the register, not by the store.
        plan = FaultPlan(timeout_seconds=60.0)
        self.faulty = FaultyStore(self.witness, plan, entropy=simulation.entropy.fork("faults"), clock=self.clock)
        self.observer = RecordingObserver()
        self._registers = 0

    def register(
        self, store: ObjectStore | None = None, format: StampedFormat[bytes] | None = None
    ) -> Register[Stamped[bytes]]:
        self._registers += 1
        return Register(
            store or self.faulty,
            KEY,
            format or StampedFormat(BytesCodec()),
            name="test",
            policy=RegisterPolicy(deadline_seconds=30.0, attempt_seconds=5.0),
            clock=self.clock,
            entropy=self.simulation.entropy.fork(f"register {self._registers}"),
            observer=self.observer,
        )

    async def payload(self) -> bytes:
        return (await self.register(self.witness).read()).payload

    @property
    def writes(self) -> int:
        return len(self.witness.history(KEY))

    def resolved(self, how: str) -> float:
        return self.observer.counted(names.REGISTER_UNKNOWN, register="test", resolved=how)


def simulated(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        simulate(lambda simulation: test(World(simulation)), seed=1)

    run.__doc__ = test.__doc__
    return run


def appends(text: bytes) -> Callable[[Stamped[bytes]], Stamped[bytes]]:
    return lambda value: value.map(lambda payload: payload + text)


class LosingStore(PassingStore):
    """Loses the answer to its first conditional write, which landed or not; `meanwhile` happens before the error."""

    def __init__(self, inner: ObjectStore, *, lands: bool, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._lands = lands
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is None:
            return await super().put_if(key, data, version=version)
        if self._lands:
            await super().put_if(key, data, version=version)
        await meanwhile()
        raise OutcomeUnknown(f"put_if {key!r}", "the answer was lost")


class ZombieStore(PassingStore):
    """Its first conditional write raises, and lands right after the re-read that finds nothing."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._zombie: tuple[Body, str | None] | None = None
        self._raised = False

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        if self._raised:
            return await super().put_if(key, data, version=version)
        self._raised, self._zombie = True, (data, version)
        raise OutcomeUnknown(f"put_if {key!r}", "the answer was lost")

    async def get(self, key: str) -> Any:
        try:
            return await super().get(key)
        finally:
            zombie, self._zombie = self._zombie, None
            if zombie is not None:
                await super().put_if(key, zombie[0], version=zombie[1])


class UnprovingFormat(StampedFormat[bytes]):
    """Has no place for a proof, like the wire formats of other projects."""

    def landed(self, value: Stamped[bytes], token: Token) -> bool | None:
        return None


@simulated
async def test_a_write_that_landed_but_was_reported_lost_is_not_applied_twice(world: World) -> None:
    world.faulty.script("put_if", Fate.ERROR_AFTER)
    assert (await world.register().update(appends(b"a"))).payload == b"a"
    assert world.writes == 1
    assert world.resolved("landed") == 1


@simulated
async def test_a_write_that_was_lost_on_its_way_is_applied_once(world: World) -> None:
    world.faulty.script("put_if", Fate.REQUEST_LOST)
    assert (await world.register().update(appends(b"a"))).payload == b"a"
    assert world.writes == 1
    assert world.resolved("dead") == 1


@simulated
async def test_several_lost_answers_in_a_row_are_one_change(world: World) -> None:
    await world.register().update(appends(b"a"))
    world.faulty.script("put_if", Fate.REQUEST_LOST, Fate.THROTTLED, Fate.ERROR_AFTER)
    world.faulty.script("get", Fate.SERVED, Fate.THROTTLED)
    assert (await world.register().update(appends(b"b"))).payload == b"ab"
    assert world.writes == 2


@simulated
async def test_a_zombie_that_lands_after_the_reread_is_not_applied_twice(world: World) -> None:
    """The repeat then conflicts with the register's own write, and that conflict is no defeat."""
    register = world.register(ZombieStore(world.witness))
    assert (await register.update(appends(b"a"))).payload == b"a"
    assert world.writes == 1
    assert world.resolved("landed") == 1
    assert register.conflict_rate == 0.0


@simulated
async def test_a_zombie_that_arrives_after_the_repeat_landed_finds_the_door_shut(world: World) -> None:
    world.faulty.script("put_if", Fate.ZOMBIE)
    await world.register().update(appends(b"a"))
    await world.faulty.settle()
    assert await world.payload() == b"a"
    assert world.writes == 1


@simulated
async def test_a_landed_write_is_found_beneath_those_of_others(world: World) -> None:
    async def meanwhile() -> None:
        await world.register().update(appends(b"b"))
        await world.register().update(appends(b"c"))

    store = LosingStore(world.witness, lands=True, meanwhile=meanwhile)
    assert (await world.register(store).update(appends(b"a"))).payload == b"abc"
    assert world.resolved("landed") == 1


@simulated
async def test_a_lost_write_that_others_overtook_is_dead_and_applied_anew(world: World) -> None:
    store = LosingStore(world.witness, lands=False, meanwhile=lambda: world.register().update(appends(b"b")))
    assert (await world.register(store).update(appends(b"a"))).payload == b"ba"
    assert world.resolved("dead") == 1


@simulated
async def test_a_proof_that_was_evicted_leaves_the_outcome_unknown(world: World) -> None:
    """More writers committed than the body remembers: neither success nor failure may be claimed."""

    async def crowd() -> None:
        for _ in range(STAMPS_MAX):
            await world.register(world.witness).update(appends(b"."))

    register = world.register(LosingStore(world.witness, lands=True, meanwhile=crowd))
    with pytest.raises(OutcomeUnknown, match=KEY):
        await register.update(appends(b"a"))
    assert world.resolved("unproved") == 1
    # The next change is not troubled by it.
    assert (await register.update(appends(b"b"))).payload == b"a" + b"." * STAMPS_MAX + b"b"


@simulated
async def test_a_change_may_bring_its_own_proof(world: World) -> None:
    store = LosingStore(world.witness, lands=True, meanwhile=lambda: world.register().update(appends(b"b")))
    register = world.register(store, UnprovingFormat(BytesCodec()))
    seen = await register.update(appends(b"a"), landed=lambda value: b"a" in value.payload)
    assert seen.payload == b"ab"


@simulated
async def test_a_format_without_a_proof_claims_nothing(world: World) -> None:
    store = LosingStore(world.witness, lands=False, meanwhile=lambda: world.register().update(appends(b"b")))
    with pytest.raises(OutcomeUnknown):
        await world.register(store, UnprovingFormat(BytesCodec())).update(appends(b"a"))
    assert await world.payload() == b"b"


@simulated
async def test_a_proof_that_raises_leaves_the_outcome_unknown(world: World) -> None:
    def broken(_: Stamped[bytes]) -> bool:
        raise ZeroDivisionError

    store = LosingStore(world.witness, lands=False, meanwhile=lambda: world.register().update(appends(b"b")))
    with pytest.raises(OutcomeUnknown) as caught:
        await world.register(store).update(appends(b"a"), landed=broken)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@simulated
async def test_a_write_that_was_never_sent_is_no_unknown_outcome(world: World) -> None:
    world.faulty.script("put_if", Fate.THROTTLED, Fate.ERROR_BEFORE, Fate.THROTTLED)
    register = world.register()
    assert (await register.update(appends(b"a"))).payload == b"a"
    assert world.observer.counted(names.REGISTER_UNKNOWN) == 0
    assert register.conflict_rate == 0.0


@simulated
async def test_a_store_that_hangs_is_given_up_in_time_to_look(world: World) -> None:
    """The answer never comes; after one attempt's time the register reads, and finds its write."""
    world.faulty.script("put_if", Fate.REPLY_LOST)
    await world.register().update(appends(b"a"))
    assert 5.0 <= world.clock.monotonic() < 6.0
    assert world.writes == 1


@simulated
async def test_reads_that_fail_or_hang_are_tried_again(world: World) -> None:
    await world.register().update(appends(b"a"))
    world.faulty.script("get", Fate.THROTTLED, Fate.ERROR_BEFORE, Fate.REPLY_LOST)
    assert (await world.register().read()).payload == b"a"


class RefusingStore(PassingStore):
    """Refuses conditional writes for good, after losing the answers to the first few."""

    def __init__(self, inner: ObjectStore, error: Exception, lost: int = 0) -> None:
        super().__init__(inner)
        self._error = error
        self._lost = lost

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        if self._lost > 0:
            self._lost -= 1
            raise OutcomeUnknown(f"put_if {key!r}", "the answer was lost")
        raise self._error


@simulated
async def test_a_definite_refusal_reaches_the_caller_as_it_is(world: World) -> None:
    store = RefusingStore(world.witness, PermissionDenied("no", "read-only credentials", "ask"))
    with pytest.raises(PermissionDenied, match="read-only credentials"):
        await world.register(store).update(appends(b"a"))


@simulated
async def test_a_refusal_after_a_lost_answer_is_no_certainty(world: World) -> None:
    store = RefusingStore(world.witness, StorageFull("no room"), lost=1)
    with pytest.raises(OutcomeUnknown, match="no room") as caught:
        await world.register(store).update(appends(b"a"))
    assert isinstance(caught.value.__cause__, StorageFull)


@simulated
async def test_an_error_outside_the_ports_promise_is_no_certainty(world: World) -> None:
    store = RefusingStore(world.witness, RuntimeError("a bug of the store"))
    with pytest.raises(OutcomeUnknown, match="a bug of the store"):
        await world.register(store).update(appends(b"a"))


@simulated
async def test_a_corrupt_body_is_named_and_left_as_it_is(world: World) -> None:
    await world.witness.put(KEY, b"not a register at all, but long enough")
    for attempt in (world.register().read(), world.register().update(appends(b"a"))):
        with pytest.raises(Corrupt, match=r"'room/key' in memory://test.*begins with b'not '"):
            await attempt
    assert world.witness.history(KEY)[-1] == b"not a register at all, but long enough"


@simulated
async def test_a_body_of_another_version_is_unsupported_and_named(world: World) -> None:
    body = bytearray(StampedFormat(BytesCodec()).encode(Stamped(b"")))
    body[4] = 9
    await world.witness.put(KEY, bytes(body))
    with pytest.raises(Unsupported, match=r"'room/key' in memory://test.*version 9"):
        await world.register().read()


@simulated
async def test_whatever_a_codec_raises_is_corruption_with_a_name(world: World) -> None:
    class Brittle(BytesCodec):
        def decode(self, data: bytes) -> bytes:
            return bytes([data[99]])

    await world.register().update(appends(b"a"))
    with pytest.raises(Corrupt, match=r"'room/key' in memory://test.*IndexError"):
        await world.register(format=StampedFormat(Brittle())).read()
