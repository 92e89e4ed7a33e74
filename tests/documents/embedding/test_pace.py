import asyncio

import pytest

from penstock.documents.embedding.pace import Pace, RateLimit
from penstock.errors import InvalidInput
from penstock.testing import SimulatedClock, SimulatedLoop


def run(coroutine):
    loop = SimulatedLoop(1)
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


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(InvalidInput):
        RateLimit(requests_per_minute=0)
