import asyncio

import pytest

from penstock.documents.embedding.pace import Allowance, Pace, RateLimit
from penstock.errors import InvalidInput
from penstock.testing import SimulatedClock, SimulatedLoop


def run(coroutine):
    loop = SimulatedLoop(1)  # type: ignore[abstract]
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


async def seconds_for(limit, requests, tokens):
    clock = SimulatedClock()
    pace = Pace(limit, clock=clock)
    started = clock.monotonic()
    await asyncio.gather(*(pace.admit(tokens) for _ in range(requests)))
    return clock.monotonic() - started


def test_without_a_limit_nothing_waits():
    assert run(seconds_for(None, 100, 10_000)) == 0


def test_requests_flow_no_faster_than_their_rate():
    seconds = run(seconds_for(RateLimit(requests_per_minute=60), 66, 1))
    assert 59 <= seconds <= 62


def test_tokens_flow_no_faster_than_their_rate():
    seconds = run(seconds_for(RateLimit(tokens_per_minute=60_000), 66, 1_000))
    assert 58 <= seconds <= 62


def test_a_request_larger_than_the_bucket_is_not_impossible():
    assert run(seconds_for(RateLimit(tokens_per_minute=600), 2, 1_000)) == pytest.approx(94, abs=2)


def test_a_cancelled_wait_gives_its_place_to_the_next():
    async def main():
        clock = SimulatedClock()
        pace = Pace(RateLimit(requests_per_minute=6), clock=clock)
        await pace.admit(1)
        first, second = asyncio.create_task(pace.admit(1)), asyncio.create_task(pace.admit(1))
        await clock.sleep(1)
        first.cancel()
        await second
        return clock.monotonic()

    assert run(main()) == pytest.approx(10, abs=0.5)


def test_tasks_that_share_a_limit_keep_it_together_over_many_rounds():
    """Each round is given out by one account, and each task spends its part of the rate from almost nothing."""

    async def main():
        clock, limit, tasks = SimulatedClock(), RateLimit(tokens_per_minute=60_000), 3
        account = Allowance(limit, clock.monotonic())
        for _ in range(20):
            await clock.sleep(account.wait(clock.monotonic()))
            account.spend(6, 6_000)
            paces = [Pace(limit.shared(tasks), full=False, clock=clock) for _ in range(tasks)]
            await asyncio.gather(*(pace.admit(1_000) for pace in paces for _ in range(2)))
        return clock.monotonic()

    # 120,000 tokens, less what the account and the last round may be ahead.
    assert 105 <= run(main()) <= 125


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(InvalidInput):
        RateLimit(requests_per_minute=0)
