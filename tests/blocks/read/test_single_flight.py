"""Single flight: one works for all who want the same, and its end is nobody else's."""

from __future__ import annotations

import asyncio

import pytest

from penstock.blocks import SingleFlights


class Work:
    """Work that ends when it is told to, and counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> str:
        self.begun += 1
        await self.may_end.wait()
        if self.error is not None and self.begun == 1:
            raise self.error
        return "done"


async def started(flights: SingleFlights[str], work: Work, count: int) -> list[asyncio.Task[str]]:
    tasks = [asyncio.create_task(flights.share("name", work)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_equal_work_is_done_once_for_all_and_again_for_those_who_come_later() -> None:
    async def run() -> None:
        flights, work = SingleFlights[str](), Work()
        tasks = await started(flights, work, 20)
        work.may_end.set()
        assert await asyncio.gather(*tasks) == ["done"] * 20
        assert work.begun == 1
        assert await flights.share("name", work) == "done"
        assert work.begun == 2

    asyncio.run(run())


def test_other_work_does_not_wait() -> None:
    async def run() -> None:
        flights, slow, quick = SingleFlights[str](), Work(), Work()
        tasks = await started(flights, slow, 1)
        quick.may_end.set()
        assert await flights.share("another name", quick) == "done"
        assert not tasks[0].done()
        slow.may_end.set()
        await tasks[0]

    asyncio.run(run())


def test_the_failure_of_the_leader_is_its_own() -> None:
    async def run() -> None:
        flights, work = SingleFlights[str](), Work()
        work.error = ValueError("of the leader")
        leader, *others = await started(flights, work, 5)
        work.may_end.set()
        with pytest.raises(ValueError, match="of the leader"):
            await leader
        assert await asyncio.gather(*others) == ["done"] * 4

    asyncio.run(run())


def test_a_cancelled_leader_leaves_nobody_waiting() -> None:
    async def run() -> None:
        flights, work = SingleFlights[str](), Work()
        leader, *others = await started(flights, work, 5)
        leader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leader
        work.may_end.set()
        assert await asyncio.gather(*others) == ["done"] * 4

    asyncio.run(run())


def test_one_who_waits_and_is_cancelled_disturbs_nobody() -> None:
    async def run() -> None:
        flights, work = SingleFlights[str](), Work()
        leader, waiting, other = await started(flights, work, 3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        work.may_end.set()
        assert await asyncio.gather(leader, other) == ["done"] * 2
        assert work.begun == 1

    asyncio.run(run())


def test_what_has_not_landed_when_its_leader_ends_is_left_to_those_who_wait() -> None:
    async def run() -> None:
        flights = SingleFlights[str]()
        with flights.leading(["a", "b"]) as begun:
            waiting = [asyncio.create_task(flight.landed()) for flight in begun.values()]
            begun["a"].land("first")
            begun["a"].land("second")
        assert await asyncio.gather(*waiting) == ["first", None]
        assert flights.get("a") is None
        assert flights.get("b") is None

    asyncio.run(run())
