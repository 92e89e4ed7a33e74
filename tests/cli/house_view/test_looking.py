"""A look that costs something is not repeated for every refresh of a page."""

import asyncio

from penstock.cli.serving.house_view.looking import KeptLooks
from penstock.testing import ManualClock


def looked(clock, *, costs=0.0):
    """A look that takes its time, and how often it was taken."""
    taken = []

    async def look():
        clock.advance(costs)
        taken.append(clock.monotonic())
        return len(taken)

    return look, taken


def test_what_was_found_is_given_again_for_a_while():
    async def session():
        clock = ManualClock()
        looks = KeptLooks(2.0, clock=clock)
        look, taken = looked(clock)
        found = [await looks.get("a", look)]
        clock.advance(1.9)
        found.append(await looks.get("a", look))
        clock.advance(0.2)
        found.append(await looks.get("a", look))
        looks.forget()
        found.append(await looks.get("a", look))
        assert found == [1, 1, 2, 3]
        assert len(taken) == 3

    asyncio.run(session())


def test_the_longer_a_look_takes_the_longer_it_is_kept():
    async def session():
        clock = ManualClock()
        looks = KeptLooks(2.0, share=20.0, clock=clock)
        look, taken = looked(clock, costs=3.0)
        await looks.get("a", look)
        clock.advance(59.0)
        await looks.get("a", look)
        assert len(taken) == 1
        clock.advance(2.0)
        await looks.get("a", look)
        assert len(taken) == 2

    asyncio.run(session())


def test_many_viewers_share_one_look():
    async def session():
        clock = ManualClock()
        looks = KeptLooks(2.0, clock=clock)
        look, taken = looked(clock)
        assert await asyncio.gather(*(looks.get("a", look) for _ in range(20))) == [1] * 20
        assert len(taken) == 1

    asyncio.run(session())
