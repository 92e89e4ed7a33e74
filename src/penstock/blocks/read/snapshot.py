"""One moment of a whole store: its view of the key-value store, states as far as they were needed, positions.

A snapshot is shared by everybody who reads that moment and closed when the last of them is done and a newer
one is published.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final, Generic, TypeVar

from penstock.blocks.read.reader import BlockReader
from penstock.blocks.read.single_flight import SingleFlights
from penstock.keyvalue import Reader

__all__ = ["OpenSnapshots", "StoreSnapshot"]

# Names that are known to stand for nothing: those of a few of the largest flushes.
_ABSENT_MAX: Final = 8192

# The store's record, the name of a state, and a state: what is known of the shelves beneath one prefix.
R = TypeVar("R")
N = TypeVar("N", bound=Hashable)
S = TypeVar("S")


@dataclass(eq=False)
class StoreSnapshot(Generic[R, N, S]):
    """The store at one moment."""

    blocks: BlockReader
    record: R
    positions: Mapping[str, int]
    # Reads a state that is not at hand; None if there is none of that name.
    read: Callable[[BlockReader, N], Awaitable[S | None]]
    # The last write of the coordinator that is in it. Lives in memory only, as epochs do.
    epoch: int = 0
    states: OrderedDict[N, S] = field(default_factory=OrderedDict)
    holders: int = 0
    # Names that were asked for and have no state: whoever makes one has asked before, and need not read that again.
    absent: set[N] = field(default_factory=set)
    # States that are being read. They are of this moment: the next one begins with none.
    _reading: SingleFlights[S | None] = field(default_factory=SingleFlights, init=False)

    @property
    def reader(self) -> Reader:
        return self.blocks.reader

    @contextmanager
    def held(self) -> Iterator[StoreSnapshot[R, N, S]]:
        """Keep the snapshot open meanwhile."""
        self.holders += 1
        try:
            yield self
        finally:
            self.holders -= 1

    async def state(self, name: N) -> S | None:
        """A state at this moment; None if there is none of that name."""
        state = self.states.get(name)
        if state is not None:
            self.states.move_to_end(name)
            return state
        if name in self.absent:
            return None
        state = await self._reading.share(name, lambda: self.read(self.blocks, name))
        if state is None and len(self.absent) < _ABSENT_MAX:
            self.absent.add(name)
        # All who waited for it use the same one: what is kept for its directories is kept once.
        return None if state is None else self.states.setdefault(name, state)

    def without(self, dropped: Set[N]) -> StoreSnapshot[R, N, S]:
        """The same, not knowing states that are about to be gone."""
        if not dropped:
            return self
        kept = OrderedDict((name, state) for name, state in self.states.items() if name not in dropped)
        return replace(self, states=kept)

    def advanced(
        self, reader: Reader, record: R, positions: Mapping[str, int], epoch: int, changed: Mapping[N, S], kept_max: int
    ) -> StoreSnapshot[R, N, S]:
        """The next moment, in which some states have changed; of the others those used last are kept."""
        states = OrderedDict(self.states)
        for name, state in changed.items():
            states[name] = state
            states.move_to_end(name)
        while len(states) > max(kept_max, len(changed)):
            states.popitem(last=False)
        return replace(
            self,
            blocks=self.blocks.over(reader),
            record=record,
            positions=positions,
            epoch=epoch,
            states=states,
            holders=0,
            # The writer's own changes are all that happens between two moments.
            absent=self.absent - changed.keys() if len(self.absent) < _ABSENT_MAX else set(),
        )

    async def close(self) -> None:
        await self.reader.close()


class OpenSnapshots(Generic[R, N, S]):
    """Snapshots that were handed out, oldest first; the ones nobody reads any more are closed."""

    def __init__(self, first: StoreSnapshot[R, N, S]) -> None:
        self._open: deque[StoreSnapshot[R, N, S]] = deque([first])

    def add(self, snapshot: StoreSnapshot[R, N, S]) -> None:
        self._open.append(snapshot)

    async def retire(self, published: StoreSnapshot[R, N, S] | None) -> None:
        """Close the snapshots before the published one that nobody reads, however long others are read."""
        older = list(takewhile(lambda snapshot: snapshot is not published, self._open))
        if len(older) == len(self._open):
            return
        for snapshot in older:
            if not snapshot.holders:
                await snapshot.close()
                self._open.remove(snapshot)

    async def close(self) -> None:
        """Close every one of them."""
        while self._open:
            await self._open.popleft().close()

    def __len__(self) -> int:
        return len(self._open)
