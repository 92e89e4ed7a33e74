"""The door to time: deadlines measure on the monotonic clock, wall time is UTC milliseconds."""

import asyncio

import pytest

from penstock.clock import SYSTEM_CLOCK, Deadline
from penstock.errors import DeadlineExceeded
from penstock.testing import ManualClock


def test_a_deadline_counts_down_and_then_says_what_was_not_done() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 10)
    clock.advance(4)
    assert deadline.remaining == pytest.approx(6)
    deadline.check("the upload")
    clock.advance(6)
    assert deadline.passed
    with pytest.raises(DeadlineExceeded, match="the upload: not done within 10 s"):
        deadline.check("the upload")


def test_the_system_clock_goes_forward_and_its_sleep_yields() -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def other() -> None:
            order.append("other")

        task = asyncio.create_task(other())
        await SYSTEM_CLOCK.sleep(0)
        order.append("main")
        await task
        return order

    before = SYSTEM_CLOCK.monotonic()
    assert asyncio.run(main()) == ["other", "main"]
    assert SYSTEM_CLOCK.monotonic() >= before
    assert SYSTEM_CLOCK.now_ms() > 1_700_000_000_000
