"""A crashed process stops dead: it takes no step, tidies nothing up, and the world goes on."""

from __future__ import annotations

import asyncio
from contextvars import Context

import pytest

from penstock.errors import InvalidInput
from penstock.testing import Process, Simulation, current_process, outside, simulate


def test_a_crashed_process_takes_no_further_step_and_runs_no_cleanup() -> None:
    async def main(simulation: Simulation) -> list[str]:
        done: list[str] = []

        async def work() -> None:
            try:
                async with asyncio.timeout(100):
                    while True:
                        done.append("step")
                        await simulation.clock.sleep(1)
            except BaseException:
                done.append("handled")
                raise
            finally:
                done.append("tidied up")

        process = simulation.start("victim", work())
        await simulation.clock.sleep(2.5)
        simulation.crash(process)
        await simulation.clock.sleep(1000)
        return list(done)

    assert all(simulate(main, seed) == ["step"] * 3 for seed in range(20))


def test_a_crash_reaches_everything_the_process_started_and_nothing_else() -> None:
    async def main(simulation: Simulation) -> set[str]:
        ran: set[str] = set()

        async def note(name: str) -> None:
            await simulation.clock.sleep(5)
            ran.add(name)

        async def parent() -> None:
            asyncio.get_running_loop().call_later(5, ran.add, "its timer")
            _own = [asyncio.create_task(note("its own task"))]
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(note("its group's task"))

        victim, bystander = simulation.start("victim", parent()), simulation.start("bystander", note("bystander"))
        _world = [asyncio.create_task(note("the world"))]
        await simulation.clock.sleep(1)
        simulation.crash(victim)
        await bystander.join()
        await simulation.clock.sleep(10)
        return ran

    assert all(simulate(main, seed) == {"bystander", "the world"} for seed in range(20))


def test_what_was_sent_outside_survives_the_crash_of_its_sender() -> None:
    async def main(simulation: Simulation) -> list[str]:
        delivered: list[str] = []

        async def deliver() -> None:
            assert current_process() is None
            await simulation.clock.sleep(5)
            delivered.append("letter")

        async def sender() -> None:
            asyncio.get_running_loop().create_task(deliver(), context=outside())
            await asyncio.Event().wait()

        process = simulation.start("sender", sender())
        await simulation.clock.sleep(1)
        simulation.crash(process)
        await simulation.clock.sleep(10)
        return delivered

    assert simulate(main, 1) == ["letter"]


def test_join_returns_what_the_process_returned() -> None:
    async def main(simulation: Simulation) -> object:
        async def work() -> str:
            await simulation.clock.sleep(3)
            return "result"

        process = simulation.start("worker", work())
        return await process.join(), process.alive, process.crashed

    assert simulate(main, 1) == ("result", False, False)


def test_join_raises_what_the_process_raised() -> None:
    async def main(simulation: Simulation) -> None:
        async def fail() -> None:
            raise KeyError("lost")

        await simulation.start("failing", fail()).join()

    with pytest.raises(KeyError, match="lost"):
        simulate(main, 1)


def test_those_who_wait_for_a_crashed_process_are_told() -> None:
    async def main(simulation: Simulation) -> tuple[None, bool]:
        process = simulation.start("victim", asyncio.sleep(100))
        asyncio.get_running_loop().call_later(1, simulation.crash, process)
        return await process.join(), process.crashed

    assert simulate(main, 1) == (None, True)


def test_a_process_that_has_returned_runs_nothing_in_the_background() -> None:
    async def main(simulation: Simulation) -> list[str]:
        ran: list[str] = []

        async def work() -> None:
            asyncio.get_running_loop().call_later(5, ran.append, "timer")

        await simulation.start("worker", work()).join()
        await simulation.clock.sleep(10)
        return ran

    assert simulate(main, 1) == []


def test_a_process_that_ended_cannot_be_crashed_any_more() -> None:
    async def main(simulation: Simulation) -> bool:
        process = simulation.start("worker", asyncio.sleep(0))
        await process.join()
        simulation.crash(process)
        return process.crashed

    assert simulate(main, 1) is False


def test_a_process_cannot_wait_for_itself() -> None:
    async def main(simulation: Simulation) -> None:
        processes: list[Process] = []

        async def wait() -> None:
            await processes[0].join()

        processes.append(simulation.start("narcissus", wait()))
        await processes[0].join()

    with pytest.raises(InvalidInput, match="narcissus"):
        simulate(main, 1)


def test_whoever_a_dying_process_woke_wakes_in_a_context_of_its_own() -> None:
    """Also when that context is empty, which asyncio's mappings make easy to mistake for none."""

    async def main(simulation: Simulation) -> Process | None:
        woken = asyncio.Event()

        async def wake_and_die() -> None:
            woken.set()
            process = current_process()
            assert process is not None
            process.crash()
            await asyncio.sleep(1)

        simulation.start("dying", wake_and_die())
        await woken.wait()
        return current_process()

    assert all(Context().run(simulate, main, seed) is None for seed in range(20))
