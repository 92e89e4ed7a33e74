from __future__ import annotations

import asyncio

import pytest

from penstock.clock import Deadline
from penstock.errors import DeadlineExceeded, InvalidInput
from penstock.testing import ManualClock


def test_time_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(start_ms=5_000)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0.0)
    clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (6_500, 1.5)


def test_time_cannot_be_moved_back() -> None:
    with pytest.raises(InvalidInput):
        ManualClock().advance(-1)


def test_a_deadline_passes_by_hand() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 10)
    clock.advance(9.5)
    assert not deadline.passed
    clock.advance(0.5)
    assert deadline.passed


def test_sleepers_are_released_in_the_order_of_their_time_and_ties_in_the_order_they_fell_asleep() -> None:
    async def main() -> list[str]:
        clock, woken = ManualClock(), []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append(name)

        async with asyncio.TaskGroup() as tasks:
            for name, seconds in [("late", 3), ("first of two", 2), ("early", 1), ("second of two", 2)]:
                tasks.create_task(sleeper(name, seconds))
            await clock.until_sleeping(4)
            clock.advance(3)
        return woken

    assert asyncio.run(main()) == ["early", "first of two", "second of two", "late"]


def test_a_sleeper_whose_time_has_not_come_sleeps_on() -> None:
    async def main() -> tuple[bool, bool]:
        clock = ManualClock()
        task = asyncio.create_task(clock.sleep(2))
        await clock.until_sleeping()
        await clock.run_for(1.9)
        before = task.done()
        await clock.run_for(0.1)
        return before, task.done()

    assert asyncio.run(main()) == (False, True)


def test_run_for_wakes_each_sleeper_at_its_own_moment_and_counts_what_it_then_sleeps() -> None:
    async def main() -> list[float]:
        clock, moments = ManualClock(), []

        async def pulse() -> None:
            while True:
                await clock.sleep(1)
                moments.append(clock.monotonic())

        task = asyncio.create_task(pulse())
        await clock.run_for(3.5)
        task.cancel()
        return moments

    assert asyncio.run(main()) == [1.0, 2.0, 3.0]


def test_a_jump_wakes_a_sleeper_late_as_a_stalled_machine_does() -> None:
    async def main() -> float:
        clock = ManualClock()

        async def sleeper() -> float:
            await clock.sleep(1)
            return clock.monotonic()

        task = asyncio.create_task(sleeper())
        await clock.until_sleeping()
        clock.advance(60)
        return await task

    assert asyncio.run(main()) == 60.0


def test_a_cancelled_sleeper_is_forgotten() -> None:
    async def main() -> int:
        clock = ManualClock()
        task = asyncio.create_task(clock.sleep(1))
        await clock.until_sleeping()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        clock.advance(5)
        return clock.sleeping

    assert asyncio.run(main()) == 0


def test_a_sleep_of_zero_lets_others_run_once() -> None:
    async def main() -> list[str]:
        clock, seen = ManualClock(), []

        async def other() -> None:
            seen.append("other")

        task = asyncio.create_task(other())
        await clock.sleep(0)
        seen.append("self")
        await task
        return seen

    assert asyncio.run(main()) == ["other", "self"]


def test_waiting_for_sleepers_that_never_come_says_how_many_did() -> None:
    async def main() -> None:
        clock = ManualClock()
        task = asyncio.create_task(clock.sleep(1))
        try:
            await clock.until_sleeping(2)
        finally:
            task.cancel()

    with pytest.raises(DeadlineExceeded, match="2 tasks were to fall asleep on the manual clock, and 1 did"):
        asyncio.run(main())
