"""States as a reader beside the writer sees them, in any process: what is durable, at most a bounded time late.

The store may move on while it is read. Blocks never change, so whatever is found is right; if something is gone, the
newer state is read and the work begins again, so that an answer is always of one moment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from penstock.blocks.read.reader import BlockReader, StateMoved
from penstock.blocks.read.single_flight import SingleFlights
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Unavailable
from penstock.loops import Home

__all__ = ["FollowedStates", "StateReading"]

N = TypeVar("N", bound=Hashable)
N_contra = TypeVar("N_contra", bound=Hashable, contravariant=True)
S = TypeVar("S")
T = TypeVar("T")

# How often a read begins again because the store moved on under it.
_ATTEMPTS_MAX: Final = 8


class StateReading(Protocol[N_contra, S]):
    """How a store's states are read."""

    async def read(self, blocks: BlockReader, name: N_contra, /) -> S:
        """The state as it is now; `NotFound` if there is none of that name."""
        ...

    async def is_newest(self, blocks: BlockReader, state: S, /) -> bool:
        """Whether a state that was read before is still what the store holds: one small read."""
        ...


@dataclass(slots=True)
class _Seen(Generic[S]):
    """A state, and when it was last known to be the newest."""

    state: S
    at: float


class FollowedStates(Generic[N, S]):
    """States by name. Belongs to one event loop."""

    def __init__(
        self,
        blocks: BlockReader,
        reading: StateReading[N, S],
        *,
        staleness_seconds: float,
        states_max: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.blocks = blocks
        self._reading = reading
        # Half of it passes until the view is looked at again, and half until the state is.
        self._late = staleness_seconds / 2
        self._states_max = states_max
        self._clock = clock
        self._seen: dict[N, _Seen[S]] = {}
        self._looking: SingleFlights[_Seen[S]] = SingleFlights()
        self._home = Home()

    def refresh(self) -> None:
        """Whatever is read from now on is looked for anew, and is not older than anything read before."""
        # Both anew: what is being looked for at this moment was asked for before.
        self._seen, self._looking = {}, SingleFlights()

    async def state(self, name: N) -> S:
        """A state that is not older than allowed."""
        # What is kept would be answered from for ever, and nothing newer be found.
        self._home.check("a reader of the store", "start processes with spawn, and open a reader in each")
        asked = self._clock.monotonic()
        seen = self._seen.get(name)
        if seen is not None and asked - seen.at < self._late:
            return seen.state
        joined = self._looking.get(name) is not None
        found = await self._looking.share(name, lambda: self._look(self._seen, name))
        # Somebody may have begun to look for it too long ago.
        if joined and asked - found.at >= self._late:
            found = await self._look(self._seen, name)
        return found.state

    async def read(self, name: N, work: Callable[[BlockReader, S], Awaitable[T]]) -> T:
        """Do `work` on one moment, as often as it takes to find all blocks of one."""
        for _ in range(_ATTEMPTS_MAX):
            # As `held` does, without the generator that a context manager is made of.
            try:
                return await work(self.blocks, await self.state(name))
            except StateMoved:
                self._seen.pop(name, None)
        raise Unavailable(
            f"{name} could not be read {_ATTEMPTS_MAX} times in a row",
            "the writer replaced blocks faster than this follower could read them",
            "read again, or give the follower a larger cache",
        )

    @asynccontextmanager
    async def held(self, name: N) -> AsyncIterator[S]:
        """One moment; `StateMoved` as soon as something is needed that is no longer there."""
        state = await self.state(name)
        try:
            yield state
        except StateMoved:
            self._seen.pop(name, None)
            raise

    async def _look(self, known: dict[N, _Seen[S]], name: N) -> _Seen[S]:
        """The newest state, and the moment at which it was asked for."""
        now = self._clock.monotonic()
        seen = known.get(name)
        if seen is not None and await self._reading.is_newest(self.blocks, seen.state):
            seen.at = now
            return seen
        known[name] = found = _Seen(await self._reading.read(self.blocks, name), now)
        while len(known) > self._states_max:
            del known[min(known, key=lambda each: known[each].at)]
        return found
