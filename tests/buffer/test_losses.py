"""Losses: each is told once, and their number is bounded."""

from __future__ import annotations

import asyncio

import pytest

from penstock.buffer.producing.handle import BatchOutcome, InputHandle
from penstock.buffer.producing.losses import Losses
from penstock.errors import Unavailable


def failed(text: str) -> BatchOutcome:
    outcome = BatchOutcome()
    InputHandle(outcome)
    outcome.failed(Unavailable(text))
    return outcome


def test_the_first_loss_is_taken_with_the_number_of_all_and_then_nothing_is_left() -> None:
    losses = Losses()
    for number in range(5000):
        losses.add(failed(f"loss {number}"))
    error = losses.take([])
    assert isinstance(error, Unavailable)
    assert error.what == "loss 0"
    assert error.__notes__ == ["5000 batches failed since the last flush; this is the first"]
    assert losses.take([]) is None


def test_those_that_were_heard_of_make_room_for_those_that_were_not() -> None:
    async def main() -> None:
        losses = Losses()
        for number in range(3000):
            outcome = BatchOutcome()
            handle = InputHandle(outcome)
            outcome.failed(Unavailable(f"loss {number}"))
            losses.add(outcome)
            with pytest.raises(Unavailable):
                await handle.durable()
        assert losses.take([]) is None

    asyncio.run(main())


def test_what_was_awaited_is_raised_even_if_a_handle_raised_it() -> None:
    async def main() -> None:
        losses, outcome = Losses(), BatchOutcome()
        handle = InputHandle(outcome)
        outcome.failed(Unavailable("loss"))
        losses.add(outcome)
        with pytest.raises(Unavailable):
            await handle.durable()
        assert isinstance(losses.take([outcome]), Unavailable)
        assert losses.take([]) is None

    asyncio.run(main())
