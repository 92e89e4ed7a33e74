"""The simulated loop runs asyncio code as asyncio does, in an order that one seed decides."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from penstock.errors import Unsupported
from penstock.testing import Deadlock, Livelock, Simulation, simulate
from penstock.testing.simulation.refusals import REFUSED

Main = Callable[[Simulation], Coroutine[Any, Any, Any]]

# A workload with many races, run by a fresh interpreter; prints what it saw.
CONTEST = """
import asyncio
from penstock.testing import simulate

async def main(simulation):
    seen, queue = [], asyncio.Queue(2)
    async def produce(name):
        for item in range(5):
            await asyncio.sleep(simulation.entropy.uniform(0, 1))
            await queue.put((name, item))
    async def consume(name):
        while True:
            seen.append((name, await queue.get()))
    consumers = {asyncio.create_task(consume(name)) for name in "xyz"}
    async with asyncio.TaskGroup() as producers:
        for name in "abcdef":
            producers.create_task(produce(name))
    for task in consumers:
        task.cancel()
    await asyncio.wait(consumers)
    return seen, simulation.fingerprint

print(simulate(main, 99))
"""


async def _contest(simulation: Simulation) -> str:
    """The order in which ten tasks get their turns, three each."""
    turns: list[str] = []

    async def contender(name: str) -> None:
        for _ in range(3):
            turns.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(contender(name) for name in "abcdefghij"))
    return "".join(turns)


def test_one_seed_gives_one_order() -> None:
    assert simulate(_contest, 5) == simulate(_contest, 5)


def test_seeds_explore_different_orders() -> None:
    assert len({simulate(_contest, seed) for seed in range(100)}) == 100


def test_every_order_of_a_small_race_is_found() -> None:
    async def main(simulation: Simulation) -> str:
        order: list[str] = []

        async def run(name: str) -> None:
            order.append(name)

        await asyncio.gather(*(run(name) for name in "abcd"))
        return "".join(order)

    assert len({simulate(main, seed) for seed in range(400)}) == 24


@pytest.mark.processes
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_replays_in_another_process_whatever_its_hash_seed(hash_seed: str) -> None:
    def run(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", CONTEST]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first = run("0")
    assert len(first) > 100
    assert run(hash_seed) == first


def test_time_jumps_from_timer_to_timer_without_waiting() -> None:
    async def main(simulation: Simulation) -> list[float]:
        moments = []
        for seconds in (3600.0, 0.5, 86400.0):
            await simulation.clock.sleep(seconds)
            moments.append(simulation.clock.monotonic())
        return moments

    assert simulate(main, 1) == [3600.0, 3600.5, 90000.5]


def test_timers_fire_in_the_order_of_their_time_under_every_seed() -> None:
    async def main(simulation: Simulation) -> list[float]:
        fired: list[float] = []
        loop = asyncio.get_running_loop()
        for delay in (3.0, 1.0, 2.0):
            loop.call_later(delay, fired.append, delay)
        loop.call_at(0.5, fired.append, 0.5)
        await asyncio.sleep(4)
        return fired

    assert all(simulate(main, seed) == [0.5, 1.0, 2.0, 3.0] for seed in range(20))


def test_a_cancelled_timer_neither_fires_nor_moves_time() -> None:
    async def main(simulation: Simulation) -> tuple[list[str], float]:
        fired: list[str] = []
        loop = asyncio.get_running_loop()
        handle = loop.call_later(1, fired.append, "cancelled")
        handle.cancel()
        await asyncio.sleep(0.5)
        return fired, loop.time()

    assert simulate(main, 1) == ([], 0.5)


def test_a_stall_makes_timers_of_different_moments_race() -> None:
    async def main(simulation: Simulation) -> str:
        loop, winner = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        for delay, name in [(1.0, "reply"), (1.01, "timeout")]:
            loop.call_later(delay, lambda name=name: winner.done() or winner.set_result(name))
        return str(await winner)

    assert {simulate(main, seed) for seed in range(100)} == {"reply"}
    assert {simulate(main, seed, stall_seconds_max=0.1) for seed in range(200)} == {"reply", "timeout"}


async def _timeout(simulation: Simulation) -> object:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.Event().wait()
    return simulation.clock.monotonic()


async def _wait_for(simulation: Simulation) -> object:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.sleep(10), 5)
    return simulation.clock.monotonic()


async def _gather(simulation: Simulation) -> object:
    return await asyncio.gather(asyncio.sleep(2, "b"), asyncio.sleep(1, "a"))


async def _task_group_cancels_siblings(simulation: Simulation) -> object:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise KeyError("x")

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as tasks:
            sibling = tasks.create_task(asyncio.sleep(100))
            tasks.create_task(fail())
    return sibling.cancelled(), simulation.clock.monotonic()


async def _lock_excludes(simulation: Simulation) -> object:
    lock, inside, most = asyncio.Lock(), 0, 0

    async def enter() -> None:
        nonlocal inside, most
        async with lock:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.1)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(10)))
    return most, round(simulation.clock.monotonic(), 6)


async def _condition_and_semaphore(simulation: Simulation) -> object:
    condition, gate, passed = asyncio.Condition(), asyncio.Semaphore(2), []

    async def waiter(name: int) -> None:
        async with gate, condition:
            await condition.wait()
            passed.append(name)

    tasks = [asyncio.create_task(waiter(name)) for name in range(2)]
    await asyncio.sleep(1)
    async with condition:
        condition.notify_all()
    await asyncio.gather(*tasks)
    return sorted(passed)


async def _shield(simulation: Simulation) -> object:
    inner = asyncio.create_task(asyncio.sleep(3, "kept"))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(inner), 1)
    return await inner


async def _generator_dropped_half_way_is_closed(simulation: Simulation) -> object:
    closed = asyncio.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(1)
            closed.set()

    async for number in numbers():
        if number == 2:
            break
    await closed.wait()
    return simulation.clock.monotonic()


@pytest.mark.parametrize(
    ("main", "result"),
    [
        (_timeout, 5.0),
        (_wait_for, 5.0),
        (_gather, ["b", "a"]),
        (_task_group_cancels_siblings, (True, 1.0)),
        (_lock_excludes, (1, 1.0)),
        (_condition_and_semaphore, [0, 1]),
        (_shield, "kept"),
        (_generator_dropped_half_way_is_closed, 1.0),
    ],
)
def test_asyncio_works_as_ever_under_every_seed(main: Main, result: object) -> None:
    assert all(simulate(main, seed) == result for seed in range(25))


def test_a_set_of_tasks_has_one_order() -> None:
    async def main(simulation: Simulation) -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(0), name=name) for name in "gfedcba"}
        await asyncio.wait(tasks)
        return [task.get_name() for task in tasks]

    assert simulate(main, 1) == list("gfedcba")


def test_a_deadlock_names_the_tasks_that_wait_and_where() -> None:
    async def main(simulation: Simulation) -> None:
        _stuck = [asyncio.create_task(asyncio.Event().wait(), name="stuck")]
        await asyncio.Lock().acquire()
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match=r"(?s)stands still at 0 s.*main at .*test_loop\.py:\d+.*stuck at"):
        simulate(main, 1)


def test_a_livelock_ends_at_the_step_limit() -> None:
    async def main(simulation: Simulation) -> None:
        while True:  # noqa: ASYNC110 - the very fault
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="1000 steps"):
        simulate(main, 1, steps_max=1000)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_the_outside_decides_is_refused_by_name_with_the_rule(name: str) -> None:
    async def main(simulation: Simulation) -> None:
        getattr(asyncio.get_running_loop(), name)(None, None)

    with pytest.raises(Unsupported, match=rf"loop\.{name} was called in a simulation: one seed must decide everything"):
        simulate(main, 1)


def test_threads_are_refused() -> None:
    async def main(simulation: Simulation) -> None:
        await asyncio.to_thread(print, "from a thread")

    with pytest.raises(Unsupported, match="threads"):
        simulate(main, 1)


def test_a_call_from_another_thread_is_refused() -> None:
    async def main(simulation: Simulation) -> list[str]:
        refusals: list[str] = []
        loop = asyncio.get_running_loop()

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except Unsupported as error:
                refusals.append(error.what)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        loop.call_soon_threadsafe(lambda: None)
        return refusals

    assert simulate(main, 1) == ["loop.call_soon_threadsafe was called in a simulation"]


def test_an_error_in_a_callback_ends_the_simulation_at_once() -> None:
    async def main(simulation: Simulation) -> None:
        asyncio.get_running_loop().call_later(1, {}.__getitem__, "lost")  # type: ignore[arg-type]
        await asyncio.sleep(10)

    with pytest.raises(KeyError, match="lost"):
        simulate(main, 1)


def test_no_public_method_of_asyncios_loop_is_forgotten() -> None:
    """Each is served, refused by name, or asyncio's own plumbing that no room calls."""
    plumbing = {
        *("default_exception_handler", "get_exception_handler", "set_exception_handler"),
        *("get_task_factory", "set_task_factory", "shutdown_asyncgens", "shutdown_default_executor"),
    }

    async def main(simulation: Simulation) -> list[str]:
        loop, abstract = asyncio.get_running_loop(), asyncio.AbstractEventLoop
        names = [name for name in dir(abstract) if not name.startswith("_")]
        return [name for name in names if getattr(type(loop), name) is getattr(abstract, name)]

    assert set(simulate(main, 1)) == plumbing
