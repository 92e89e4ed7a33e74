"""Handles: one outcome, told to everybody, as often as they ask."""

from __future__ import annotations

import asyncio

import pytest

from penstock.buffer.producing.handle import BatchOutcome, InputHandle
from penstock.errors import Unavailable


def test_everybody_who_waits_gets_the_sequence_also_later() -> None:
    async def main() -> None:
        outcome = BatchOutcome()
        handles = [InputHandle(outcome) for _ in range(3)]
        waiting = [asyncio.create_task(handle.durable()) for handle in handles]
        await asyncio.sleep(0)
        assert not handles[0].done
        outcome.enqueued(7)
        assert await asyncio.gather(*waiting) == [7, 7, 7]
        assert handles[0].done
        assert await handles[0].durable() == 7

    asyncio.run(main())


def test_everybody_gets_an_error_of_their_own_with_the_cause() -> None:
    async def main() -> None:
        outcome, raised = BatchOutcome(), []
        error = Unavailable("no answer", "the store is down", "wait")
        outcome.failed(error)
        for _ in range(2):
            with pytest.raises(Unavailable, match="the store is down") as caught:
                await outcome.wait()
            assert caught.value.__cause__ is error
            raised.append(caught.value)
        assert raised[0] is not raised[1]

    asyncio.run(main())


def test_waiting_without_raising_tells_a_failure_by_its_error() -> None:
    async def main() -> None:
        outcome = BatchOutcome()
        outcome.failed(Unavailable("no answer"))
        await outcome.told()
        assert isinstance(outcome.error, Unavailable)

    asyncio.run(main())
