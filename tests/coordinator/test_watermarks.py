from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.coordinator.stores import outcome

from penstock.coordinator.watermarks import Waiters
from penstock.errors import Fenced, PenstockError
from penstock.testing import Simulation, simulate


def run(main: Callable[[Simulation], Coroutine[Any, Any, None]]) -> None:
    for seed in range(10):
        simulate(main, seed)


def test_one_sweep_answers_everyone_up_to_the_epoch_and_nobody_beyond() -> None:
    async def main(simulation: Simulation) -> None:
        waiters = Waiters()
        waiting = {epoch: asyncio.create_task(waiters.wait(epoch)) for epoch in (5, 1, 3, 2, 4)}
        await simulation.clock.sleep(1)
        assert len(waiters) == 5
        waiters.release(3)
        await simulation.clock.sleep(1)
        assert sorted(epoch for epoch, task in waiting.items() if task.done()) == [1, 2, 3]
        assert len(waiters) == 2
        waiters.release(5)
        await asyncio.gather(*waiting.values())
        assert len(waiters) == 0

    run(main)


def test_a_failure_reaches_the_named_epoch_and_all_later_ones_each_with_an_error_of_its_own() -> None:
    async def main(simulation: Simulation) -> None:
        waiters = Waiters()
        waiting = [asyncio.create_task(outcome(waiters.wait(epoch))) for epoch in (1, 2, 3, 3)]
        await simulation.clock.sleep(1)
        waiters.fail(2, lambda: Fenced("x"))
        await simulation.clock.sleep(1)
        assert [task.done() for task in waiting] == [False, True, True, True]
        errors = [task.result() for task in waiting[1:]]
        assert all(isinstance(error, PenstockError) for error in errors)
        assert len({id(error) for error in errors}) == 3
        waiters.release(1)
        assert await waiting[0] is None

    run(main)


def test_a_cancelled_waiter_is_forgotten_and_does_not_disturb_the_others() -> None:
    async def main(simulation: Simulation) -> None:
        waiters = Waiters()
        impatient, patient = (asyncio.create_task(waiters.wait(7)) for _ in range(2))
        await simulation.clock.sleep(1)
        impatient.cancel()
        await simulation.clock.sleep(1)
        assert len(waiters) == 1
        waiters.release(7)
        await patient

    run(main)


@pytest.mark.parametrize("released", [False, True])
def test_a_waiter_cancelled_at_the_moment_of_its_answer_leaves_no_error_unseen(released: bool) -> None:
    async def main(simulation: Simulation) -> None:
        waiters = Waiters()
        waiting = asyncio.create_task(waiters.wait(1))
        await simulation.clock.sleep(1)
        waiters.release(1) if released else waiters.fail(1, lambda: Fenced("x"))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert len(waiters) == 0

    run(main)


def test_callers_that_come_again_and_again_do_not_grow_the_map() -> None:
    async def main(simulation: Simulation) -> None:
        waiters = Waiters()
        for _ in range(50):
            waiting = asyncio.create_task(waiters.wait(9))
            await simulation.clock.sleep(0.1)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert (len(waiters), len(waiters._by_epoch), len(waiters._epochs)) == (0, 1, 1)

    simulate(main, 1)
