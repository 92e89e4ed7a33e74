"""Single flight: whoever wants what somebody else is already getting waits for that instead of getting it again.

The one who began leads; the work runs in the leader's own task, so it ends with it. A leader that fails or is
cancelled takes nobody along: those who waited do the work themselves, and wait for nobody a second time. A leader that
waits for others must have landed its own flights before, so nobody ever waits in a circle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

__all__ = ["SingleFlight", "SingleFlights"]

V = TypeVar("V")


class SingleFlight(Generic[V]):
    """One piece of work under way."""

    __slots__ = ("_over", "_value")

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self._value: V | None = None

    def land(self, value: V | None) -> None:
        """Hand the outcome to all who wait; None leaves them to themselves. Only the first call counts."""
        if not self._over.is_set():
            self._value = value
            self._over.set()

    async def landed(self) -> V | None:
        """The outcome, or None if there is none to share."""
        await self._over.wait()
        return self._value


class SingleFlights(Generic[V]):
    """Work under way by name. Belongs to one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, SingleFlight[V]] = {}

    def get(self, name: Hashable) -> SingleFlight[V] | None:
        """The flight under this name, if one is under way."""
        return self._under_way.get(name)

    @contextmanager
    def leading(self, names: Iterable[Hashable]) -> Iterator[dict[Hashable, SingleFlight[V]]]:
        """Begin flights under these names. What has not landed when this ends, however it ends, lands as None."""
        begun: dict[Hashable, SingleFlight[V]] = {name: SingleFlight() for name in names}
        self._under_way.update(begun)
        try:
            yield begun
        finally:
            for name, flight in begun.items():
                if self._under_way.get(name) is flight:
                    del self._under_way[name]
                flight.land(None)

    async def share(self, name: Hashable, work: Callable[[], Awaitable[V]]) -> V:
        """What `work` returns: done here, or by somebody who began it before."""
        flight = self.get(name)
        if flight is not None:
            value = await flight.landed()
            return await work() if value is None else value
        with self.leading([name]) as begun:
            value = await work()
            begun[name].land(value)
            return value
