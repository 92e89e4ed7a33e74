"""Group commit: who shares a write, who is told what, and what a caller that leaves may not break."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.errors import AtCapacity, Closed, InvalidInput, OutcomeUnknown
from penstock.objects import (
    BytesCodec,
    MemoryStore,
    Register,
    RegisterPolicy,
    Stamped,
    StampedFormat,
)
from penstock.observability import names
from penstock.testing import (
    FaultPlan,
    FaultyStore,
    Latency,
    RecordingObserver,
    SeededEntropy,
    Simulation,
    WitnessStore,
    simulate,
)

KEY = "key"
GET_SECONDS, PUT_SECONDS = 0.5, 1.0


class World:
    """Registers on a store that takes half a second to read and one to write: time enough to interfere."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        self.witness = WitnessStore(MemoryStore(clock=simulation.clock))
        plan = FaultPlan(
            latency_by_verb={"get": Latency(GET_SECONDS, GET_SECONDS), "put_if": Latency(PUT_SECONDS, PUT_SECONDS)}
        )
        self.slow = FaultyStore(self.witness, plan, entropy=simulation.entropy.fork("store"), clock=self.clock)
        self.observer = RecordingObserver()

    def register(
        self, name: str = "one", waiting_max: int = 100, entropy: SeededEntropy | None = None
    ) -> Register[Stamped[bytes]]:
        return Register(
            self.slow,
            KEY,
            StampedFormat(NoX()),
            name=name,
            policy=RegisterPolicy(waiting_max=waiting_max),
            clock=self.clock,
            entropy=entropy or self.simulation.entropy.fork(name),
            observer=self.observer,
        )

    async def payload(self) -> bytes:
        return (await self.register("reader").read()).payload

    @property
    def writes(self) -> int:
        return len(self.witness.history(KEY))


class NoX(BytesCodec):
    """Cannot encode an x."""

    def encode(self, payload: bytes) -> bytes:
        if b"x" in payload:
            raise InvalidInput(f"payload {payload!r}", "x has no encoding")
        return payload


def simulated(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        simulate(lambda simulation: test(World(simulation)), seed=1)

    run.__doc__ = test.__doc__
    return run


def appends(text: bytes) -> Callable[[Stamped[bytes]], Stamped[bytes]]:
    return lambda value: value.map(lambda payload: payload + text)


class Taken(Exception):
    pass


def appends_unless(text: bytes, present: bytes) -> Callable[[Stamped[bytes]], Stamped[bytes]]:
    def change(value: Stamped[bytes]) -> Stamped[bytes]:
        if present in value.payload:
            raise Taken(present)
        return value.map(lambda payload: payload + text)

    return change


def unchanged(value: Stamped[bytes]) -> Stamped[bytes]:
    return value


@simulated
async def test_changes_that_wait_for_a_write_share_the_next_one(world: World) -> None:
    register = world.register()
    first = asyncio.create_task(register.update(appends(b"a")))
    await world.clock.sleep(GET_SECONDS + 0.1)
    rest = [asyncio.create_task(register.update(appends(b"b"))) for _ in range(9)]
    values = await asyncio.gather(first, *rest)
    assert world.writes == 2
    assert world.observer.observed(names.REGISTER_GROUP_SIZE) == [1, 9]
    assert {value.payload for value in values[1:]} == {b"a" + b"b" * 9}


@simulated
async def test_changes_that_come_while_the_base_is_read_join_the_write(world: World) -> None:
    register = world.register()
    first = asyncio.create_task(register.update(appends(b"a")))
    await world.clock.sleep(GET_SECONDS / 2)
    await asyncio.gather(first, register.update(appends(b"b")))
    assert world.writes == 1


@simulated
async def test_a_change_that_raises_fails_its_caller_alone(world: World) -> None:
    register = world.register()
    changes = (appends(b"a"), appends_unless(b"b", b"a"), appends(b"c"))
    one, two, three = await asyncio.gather(*map(register.update, changes), return_exceptions=True)
    assert isinstance(two, Taken)
    assert isinstance(one, Stamped)
    assert one == three
    assert await world.payload() == b"ac"
    assert world.writes == 1


@simulated
async def test_a_change_that_cannot_be_encoded_fails_its_caller_alone(world: World) -> None:
    register = world.register()
    changes = (appends(b"a"), appends(b"x"), appends(b"c"))
    one, two, three = await asyncio.gather(*map(register.update, changes), return_exceptions=True)
    assert isinstance(two, InvalidInput)
    assert isinstance(one, Stamped)
    assert one == three
    assert await world.payload() == b"ac"


@simulated
async def test_an_unchanged_value_writes_nothing(world: World) -> None:
    assert (await world.register().update(unchanged)).payload == b""
    assert world.writes == 0


@simulated
async def test_an_unchanged_value_is_the_current_one_and_not_the_last_seen(world: World) -> None:
    register = world.register()
    await register.update(appends(b"a"))
    await world.register("other").update(appends(b"b"))
    assert (await register.update(unchanged)).payload == b"ab"


@simulated
async def test_a_refusal_from_an_old_value_is_reconsidered(world: World) -> None:
    """The register last saw `a`; by now another has taken it away."""
    register = world.register()
    await register.update(appends(b"a"))
    await world.register("other").update(lambda value: value.map(lambda _: b"-"))
    assert (await register.update(appends_unless(b"b", b"a"))).payload == b"-b"


@simulated
async def test_a_refusal_caused_by_a_neighbour_is_reconsidered_when_the_neighbour_fails(world: World) -> None:
    """Both are drafted together; the write loses to a third, whose change lets the one fail and the other pass."""
    register = world.register()
    await register.update(appends(b"."))
    await world.register("third").update(appends(b"c"))
    one, two = await asyncio.gather(
        register.update(appends_unless(b"a", b"c")),
        register.update(appends_unless(b"b", b"a")),
        return_exceptions=True,
    )
    assert isinstance(one, Taken)
    assert isinstance(two, Stamped)
    assert two.payload == b".cb"


@simulated
async def test_a_caller_cancelled_during_the_write_disturbs_nobody(world: World) -> None:
    register = world.register()
    one, two = (asyncio.create_task(register.update(appends(text))) for text in (b"a", b"b"))
    await world.clock.sleep(GET_SECONDS + PUT_SECONDS / 2)
    one.cancel()
    assert (await two).payload in (b"ab", b"ba")
    assert one.cancelled()
    assert (await register.update(appends(b"c"))).payload.endswith(b"c")
    assert world.writes == 2


@simulated
async def test_a_change_cancelled_before_it_was_sent_is_never_applied(world: World) -> None:
    register = world.register()
    one, two = (asyncio.create_task(register.update(appends(text))) for text in (b"a", b"b"))
    await world.clock.sleep(GET_SECONDS / 2)
    one.cancel()
    assert (await two).payload == b"b"


@simulated
async def test_a_change_cancelled_while_another_is_written_is_never_applied(world: World) -> None:
    register = world.register()
    one = asyncio.create_task(register.update(appends(b"a")))
    await world.clock.sleep(GET_SECONDS + 0.1)
    two, three = (asyncio.create_task(register.update(appends(text))) for text in (b"b", b"c"))
    await world.clock.sleep(0.1)
    two.cancel()
    await asyncio.gather(one, three)
    assert await world.payload() == b"ac"


@simulated
async def test_a_register_whose_callers_all_left_is_not_stuck(world: World) -> None:
    register = world.register()
    tasks = [asyncio.create_task(register.update(appends(b"a"))) for _ in range(3)]
    await world.clock.sleep(GET_SECONDS + PUT_SECONDS / 2)
    for task in tasks:
        task.cancel()
    # The write under way may land before or after; the next change comes through either way, once.
    assert (await register.update(appends(b"b"))).payload in (b"aaab", b"b")


class LongestPause(SeededEntropy):
    """Draws the upper end of every window."""

    def uniform(self, low: float, high: float) -> float:
        return high


@simulated
async def test_a_register_that_met_others_lets_them_pass_until_they_are_gone(world: World) -> None:
    """After a conflict it pauses and reads before it writes; undisturbed, it is soon back to writing at once."""
    register = world.register(entropy=LongestPause(1))
    await register.update(appends(b"a"))
    await world.register("other").update(appends(b"b"))
    await register.update(appends(b"c"))
    took = []
    for _ in range(6):
        began = world.clock.monotonic()
        await register.update(appends(b"d"))
        took.append(world.clock.monotonic() - began)
    assert took[0] > 2 * (GET_SECONDS + PUT_SECONDS)
    assert took[-1] == pytest.approx(PUT_SECONDS)


@simulated
async def test_a_fence_is_taken_alone(world: World) -> None:
    register = world.register()
    await asyncio.gather(register.update(appends(b"a")), register.acquire_fence(), register.update(appends(b"b")))
    assert world.observer.observed(names.REGISTER_GROUP_SIZE) == [1, 1, 1]
    assert await world.payload() == b"ab"


@simulated
async def test_a_full_queue_hands_the_change_back(world: World) -> None:
    register = world.register(waiting_max=2)
    tasks = [asyncio.create_task(register.update(appends(b"a"))) for _ in range(2)]
    await world.clock.sleep(GET_SECONDS + 0.1)
    change = appends(b"b")
    with pytest.raises(AtCapacity) as caught:
        await register.update(change)
    assert caught.value.rejected is change
    await asyncio.gather(*tasks)
    assert (await register.update(change)).payload == b"aab"


@simulated
async def test_close_says_of_each_change_what_is_certain(world: World) -> None:
    register = world.register()
    sent = asyncio.create_task(register.update(appends(b"a")))
    await world.clock.sleep(GET_SECONDS + 0.1)
    waiting = asyncio.create_task(register.update(appends(b"b")))
    await world.clock.sleep(0.1)
    await register.close()
    with pytest.raises(OutcomeUnknown, match="closed"):
        await sent
    with pytest.raises(Closed):
        await waiting
    await world.slow.settle()
    assert b"b" not in await world.payload()


def test_close_answers_even_before_the_writer_took_its_first_step() -> None:
    """A task cancelled that early never runs its own clean-up. Asyncio's own loop gives exactly this order."""

    async def main() -> None:
        policy = RegisterPolicy(deadline_seconds=0.5)
        register = Register(MemoryStore(), KEY, StampedFormat(BytesCodec()), policy=policy)
        change = asyncio.create_task(register.update(appends(b"a")))
        await asyncio.sleep(0)
        await register.close()
        with pytest.raises(Closed):
            await change

    asyncio.run(main())


@simulated
async def test_a_closed_register_refuses_and_may_be_closed_again(world: World) -> None:
    register = world.register()
    await register.update(appends(b"a"))
    await register.close()
    await register.close()
    for call in (register.read(), register.update(appends(b"b")), register.acquire_fence()):
        with pytest.raises(Closed, match=KEY):
            await call
    assert await world.payload() == b"a"
