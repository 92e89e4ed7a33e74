"""The faulty store fails on the way, never in itself: what it reports is true, or honestly unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.errors import Conflict, NotFound, OutcomeUnknown, PenstockError, Unavailable
from penstock.objects import MemoryStore, ObjectStore
from penstock.testing import Fate, FaultPlan, FaultyStore, Latency, ManualClock, SeededEntropy, Simulation, simulate
from penstock.testing.storage.faults import VERBS, WRITES

Call = Callable[[ObjectStore], Coroutine[Any, Any, Any]]

NETWORK_FAULTS = [fate for fate in Fate if fate is not Fate.SERVED and not fate.deadly]
UNCERTAIN = [Fate.REQUEST_LOST, Fate.ERROR_AFTER, Fate.REPLY_LOST, Fate.ZOMBIE]
LANDING = [Fate.ERROR_AFTER, Fate.REPLY_LOST, Fate.ZOMBIE]


async def _first_page(store: ObjectStore) -> list[str]:
    async for page in store.list("a"):
        return [meta.key for meta in page]
    return []


CALLS: dict[str, Call] = {
    "get": lambda store: store.get("a"),
    "get_durable": lambda store: store.get_durable("a"),
    "get_range": lambda store: store.get_range("a", 1, 3),
    "get_ranges": lambda store: store.get_ranges("a", [(0, 1), (2, 3)]),
    "head": lambda store: store.head("a"),
    "put": lambda store: store.put("a", b"new"),
    "put_if": lambda store: store.put_if("b", b"new", version=None),
    "list": _first_page,
    "delete": lambda store: store.delete("a"),
    "delete_many": lambda store: store.delete_many(["a"]),
}


def _stores(simulation: Simulation, plan: FaultPlan | None = None) -> tuple[MemoryStore, FaultyStore]:
    inner = MemoryStore(clock=simulation.clock)
    plan = plan or FaultPlan(latency=Latency(0.01, 0.05))
    return inner, FaultyStore(inner, plan, entropy=simulation.entropy.fork("faults"), clock=simulation.clock)


def test_every_verb_has_its_call_here() -> None:
    assert set(CALLS) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_a_served_verb_answers_as_the_inner_store_does(verb: str) -> None:
    async def main(simulation: Simulation) -> tuple[Any, Any]:
        twin = MemoryStore(clock=simulation.clock)
        inner, faulty = _stores(simulation, FaultPlan.none())
        for store in (inner, twin):
            await store.put("a", b"body")
        return await CALLS[verb](faulty), await CALLS[verb](twin)

    answer, expected = simulate(main, 1)
    assert answer == expected


@pytest.mark.parametrize("fate", NETWORK_FAULTS)
@pytest.mark.parametrize("verb", VERBS)
def test_only_an_uncertain_write_is_of_unknown_outcome(verb: str, fate: Fate) -> None:
    async def main(simulation: Simulation) -> PenstockError:
        inner, faulty = _stores(simulation)
        await inner.put("a", b"body")
        faulty.script(verb, fate)
        with pytest.raises(PenstockError) as failure:
            await CALLS[verb](faulty)
        return failure.value

    error = simulate(main, 1)
    assert type(error) is (OutcomeUnknown if verb in WRITES and fate in UNCERTAIN else Unavailable)
    assert error.what.startswith(verb)


@pytest.mark.parametrize("fate", NETWORK_FAULTS)
def test_a_write_lands_exactly_when_its_fate_says(fate: Fate) -> None:
    async def main(simulation: Simulation) -> tuple[bool, bool]:
        inner, faulty = _stores(simulation)
        faulty.script("put_if", fate)

        async def exists() -> bool:
            try:
                return bool(await inner.head("key"))
            except NotFound:
                return False

        with pytest.raises(PenstockError):
            await faulty.put_if("key", b"x", version=None)
        at_once = await exists()
        await faulty.settle()
        return at_once, await exists()

    landed_at_once = fate in (Fate.ERROR_AFTER, Fate.REPLY_LOST)
    assert all(simulate(main, seed) == (landed_at_once, fate in LANDING) for seed in range(10))


def test_a_zombie_lands_long_after_its_caller_gave_up_and_only_on_its_own_condition() -> None:
    async def main(simulation: Simulation) -> tuple[float, bytes, bytes]:
        inner, faulty = _stores(simulation)
        for key in ("free", "taken"):
            faulty.script("put_if", Fate.ZOMBIE)
            with pytest.raises(OutcomeUnknown):
                await faulty.put_if(key, b"zombie", version=None)
        gave_up = simulation.clock.monotonic()
        await inner.put("taken", b"rival")
        await faulty.settle()
        return gave_up, (await inner.get("free")).data, (await inner.get("taken")).data

    assert simulate(main, 3) == (20.0, b"zombie", b"rival")


def test_a_conflict_is_told_as_a_conflict() -> None:
    async def main(simulation: Simulation) -> None:
        inner, faulty = _stores(simulation)
        await inner.put("key", b"x")
        await faulty.put_if("key", b"y", version=None)

    with pytest.raises(Conflict):
        simulate(main, 1)


def test_answers_overtake_each_other() -> None:
    """Two writes land in one order, and their answers come in the other, under some seed."""

    async def main(simulation: Simulation) -> tuple[list[str], list[str]]:
        _, faulty = _stores(simulation)
        answered: list[str] = []
        versions: dict[str, int] = {}

        async def put(name: str) -> None:
            versions[name] = int((await faulty.put(name, b"")).version)
            answered.append(name)

        await asyncio.gather(put("a"), put("b"))
        return sorted(versions, key=versions.__getitem__), answered

    pairs = [simulate(main, seed) for seed in range(30)]
    assert any(landed == answered for landed, answered in pairs)
    assert any(landed != answered for landed, answered in pairs)


@pytest.mark.parametrize(("fate", "lands"), [(Fate.CRASH_BEFORE, False), (Fate.CRASH_AFTER, True)])
def test_a_crash_takes_the_process_that_holds_the_request(fate: Fate, lands: bool) -> None:
    async def main(simulation: Simulation) -> tuple[bool, list[str], list[str]]:
        inner, faulty = _stores(simulation)
        faulty.script("put_if", fate)
        heard: list[str] = []

        async def writer() -> None:
            try:
                await faulty.put_if("a", b"x", version=None)
            finally:
                heard.append("something")

        process = simulation.start("writer", writer())
        await process.join()
        await faulty.settle()
        return process.crashed, list(heard), await _first_page(inner)

    assert all(simulate(main, seed) == (True, [], ["a"] if lands else []) for seed in range(20))


def test_the_world_outside_all_processes_cannot_crash() -> None:
    async def main(simulation: Simulation) -> None:
        _, faulty = _stores(simulation)
        faulty.script("put_if", Fate.CRASH_BEFORE)
        await faulty.put_if("a", b"x", version=None)

    with pytest.raises(Unavailable):
        simulate(main, 1)


@pytest.mark.parametrize("end", ["crashed", "cancelled"])
def test_a_request_whose_caller_is_gone_lands_or_not_by_the_seed(end: str) -> None:
    async def main(simulation: Simulation) -> list[str]:
        inner, faulty = _stores(simulation, FaultPlan(latency=Latency(10, 20)))

        async def writer() -> None:
            task = asyncio.create_task(faulty.put_if("a", b"x", version=None))
            await simulation.clock.sleep(0.001)
            if end == "cancelled":
                task.cancel()
            await asyncio.wait([task])

        process = simulation.start("writer", writer())
        await simulation.clock.sleep(0.002)
        if end == "crashed":
            simulation.crash(process)
        await faulty.settle()
        return await _first_page(inner)

    assert {tuple(simulate(main, seed)) for seed in range(40)} == {(), ("a",)}


def test_a_bulk_delete_whose_answer_is_lost_may_have_deleted_a_part() -> None:
    async def main(simulation: Simulation) -> int:
        inner, faulty = _stores(simulation)
        keys = [f"a{number}" for number in range(10)]
        for key in keys:
            await inner.put(key, b"")
        faulty.script("delete_many", Fate.ERROR_AFTER)
        with pytest.raises(OutcomeUnknown):
            await faulty.delete_many(keys)
        return len(await _first_page(inner))

    assert any(0 < simulate(main, seed) < 10 for seed in range(5))


def test_a_listing_asks_for_each_page_and_ends() -> None:
    async def main(simulation: Simulation) -> tuple[list[list[str]], int]:
        inner, faulty = _stores(simulation)
        for number in range(5):
            await inner.put(f"k{number}", b"")
        pages = [[meta.key for meta in page] async for page in faulty.list("k", page_size=2)]
        return pages, faulty.fates[Fate.SERVED]

    assert simulate(main, 1) == ([["k0", "k1"], ["k2", "k3"], ["k4"]], 4)


def test_the_body_is_taken_when_the_write_is_sent() -> None:
    async def main(simulation: Simulation) -> bytes:
        inner, faulty = _stores(simulation)
        faulty.script("put_if", Fate.ZOMBIE)
        buffer = bytearray(b"first")
        with pytest.raises(OutcomeUnknown):
            await faulty.put_if("a", buffer, version=None)
        buffer[:] = b"other"
        await faulty.settle()
        return (await inner.get("a")).data

    assert simulate(main, 1) == b"first"


def test_fates_are_counted_and_the_plan_can_be_healed() -> None:
    async def main(simulation: Simulation) -> dict[Fate, int]:
        _, faulty = _stores(simulation, FaultPlan(throttled=1.0))
        with pytest.raises(Unavailable):
            await faulty.put("a", b"")
        faulty.faults = FaultPlan.none()
        await faulty.put("a", b"")
        return dict(faulty.fates)

    assert simulate(main, 1) == {Fate.THROTTLED: 1, Fate.SERVED: 1}


def test_it_also_works_on_an_ordinary_loop_with_a_manual_clock() -> None:
    async def main() -> bytes:
        clock = ManualClock()
        inner = MemoryStore(clock=clock)
        await inner.put("a", b"body")
        faulty = FaultyStore(inner, FaultPlan(latency=Latency(5, 5)), entropy=SeededEntropy(1), clock=clock)
        task = asyncio.create_task(faulty.get("a"))
        await clock.run_for(4.9)
        assert not task.done()
        await clock.run_for(0.2)
        return (await task).data

    assert asyncio.run(main()) == b"body"
