"""The reader's side of every store of blocks: opened beside the writer, it sees what is durable, a bounded time late.

A store adds what it answers; opening, positions, looking anew and closing are here.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from penstock.blocks.format.store_format import StoreFormat
from penstock.blocks.read.cache import BlockCache
from penstock.blocks.read.follower import FollowedStates, StateReading
from penstock.blocks.read.positions import read_positions
from penstock.blocks.read.reader import BlockReader
from penstock.clock import Clock
from penstock.keyvalue import Reader, open_follower
from penstock.observability import Observer

__all__ = ["StoreReader", "open_store_reader"]

N = TypeVar("N", bound=Hashable)
S = TypeVar("S")


async def open_store_reader(
    url: str, path: str, *, staleness_seconds: float, clock: Clock, observer: Observer, **access: Any
) -> Reader:
    """Open a store for reading only. Half of the allowed staleness is left for reading."""
    poll_ms = max(staleness_seconds * 1000 / 2, 1.0)
    return await open_follower(url, path, poll_interval_ms=poll_ms, clock=clock, observer=observer, **access)


class StoreReader(Generic[N, S]):
    """Answers from what its writer has made durable. Leaving `async with` closes it."""

    def __init__(
        self,
        reader: Reader,
        format: StoreFormat,
        reading: StateReading[N, S],
        *,
        cache_bytes: int,
        states_max: int,
        staleness_seconds: float,
        clock: Clock,
        observer: Observer,
    ) -> None:
        cache = BlockCache(cache_bytes, store=format.label, observer=observer)
        self._blocks = BlockReader(reader, format, cache, moving=True, observer=observer)
        self._states: FollowedStates[N, S] = FollowedStates(
            self._blocks, reading, staleness_seconds=staleness_seconds, states_max=states_max, clock=clock
        )

    async def position(self, source: str) -> int | None:
        """The last position of a source that is durable."""
        return (await read_positions(self._blocks.reader, self._blocks.format)).of(source)

    def refresh(self) -> None:
        """Whatever is read from now on is looked for anew, and is not older than anything read before."""
        self._states.refresh()

    async def close(self) -> None:
        await self._blocks.reader.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
