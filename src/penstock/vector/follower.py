"""A reader beside the writer, in any process: it sees what is durable, at most a bounded time late.

The store may move on while it reads. Blocks never change, so whatever is found is right; if something is gone, the
newer state is read and the work begins again, so that an answer is always of one moment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound, Unavailable
from penstock.keyvalue import Reader
from penstock.observability import SILENT, Observer
from penstock.vector.blocks import BlockReader, StateMoved
from penstock.vector.cache import BlockCache
from penstock.vector.collection import CollectionReader, Moment, Work
from penstock.vector.config import VectorConfig
from penstock.vector.flights import Flights
from penstock.vector.keys import CollectionName
from penstock.vector.operations import CollectionSpec
from penstock.vector.reading import read_head, read_state
from penstock.vector.search import Searcher
from penstock.vector.snapshot import check_format, list_collections, read_positions, record_problems
from penstock.vector.state import CollectionState
from penstock.vector.verify import RECORDS, VerifyReport

__all__ = ["VectorReader"]

T = TypeVar("T")

# How often a read begins again because the store moved on under it.
_ATTEMPTS_MAX: Final = 8


@dataclass(slots=True)
class _Seen:
    """A state, and when it was last known to be the newest."""

    state: CollectionState
    at: float


class VectorReader:
    """Made by `VectorStore.open_reader`."""

    def __init__(
        self, reader: Reader, config: VectorConfig, *, clock: Clock = SYSTEM_CLOCK, observer: Observer = SILENT
    ) -> None:
        self._blocks = BlockReader(
            reader, BlockCache(config.cache_bytes, observer=observer), moving=True, observer=observer
        )
        self._config = config
        self._clock = clock
        self.searcher = Searcher(config, clock=clock, observer=observer)
        self._seen: dict[CollectionName, _Seen] = {}
        self._looking: Flights[_Seen] = Flights()

    async def collection(self, tenant: str, index: str, model: str) -> CollectionReader:
        """A collection that the writer has made durable."""
        name = CollectionName(tenant, index, model)
        state = await self._fresh(name)
        return CollectionReader(self, CollectionSpec(name, state.dimensions, state.metric, state.analysis))

    async def collections(self) -> list[CollectionName]:
        await check_format(self._blocks.reader)
        return await list_collections(self._blocks.reader)

    async def position(self, source: str) -> int | None:
        """The last position of a source that is durable."""
        return (await read_positions(self._blocks.reader)).of(source)

    async def verify_records(self) -> VerifyReport:
        """Check the records that belong to no collection: the store's own, and positions of sources."""
        return VerifyReport(RECORDS, problems=await record_problems(self._blocks.reader))

    def refresh(self) -> None:
        """Whatever is read from now on is looked for anew, and is not older than anything read before."""
        # Both anew: what is being looked for at this moment was asked for before.
        self._seen, self._looking = {}, Flights()

    async def read(self, spec: CollectionSpec, work: Work[T]) -> T:
        """Do `work` on one moment of a collection that is not older than allowed."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                async with self.held(spec) as (blocks, state):
                    return await work(blocks, state)
            except StateMoved:
                continue
        raise Unavailable(
            f"{spec.name} could not be read {_ATTEMPTS_MAX} times in a row",
            "the writer replaced blocks faster than this follower could read them",
            "read again, or give the follower a larger cache",
        )

    @asynccontextmanager
    async def held(self, spec: CollectionSpec) -> AsyncIterator[Moment]:
        """One moment of a collection; `StateMoved` as soon as something is needed that is no longer there."""
        state = await self._fresh(spec.name)
        spec.check(state.dimensions, state.metric)
        try:
            yield self._blocks, state
        except StateMoved:
            self._seen.pop(spec.name, None)
            raise

    async def close(self) -> None:
        await self._blocks.reader.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _fresh(self, name: CollectionName) -> CollectionState:
        asked, late = self._clock.monotonic(), self._config.staleness_seconds / 2
        seen = self._seen.get(name)
        if seen is not None and asked - seen.at < late:
            return seen.state
        joined = self._looking.get(name) is not None
        found = await self._looking.share(name, lambda: self._look(self._seen, name))
        # Somebody may have begun to look for it too long ago.
        if joined and asked - found.at >= late:
            found = await self._look(self._seen, name)
        return found.state

    async def _look(self, known: dict[CollectionName, _Seen], name: CollectionName) -> _Seen:
        """The newest state, and the moment at which it was asked for."""
        now = self._clock.monotonic()
        seen = known.get(name)
        # A damaged one is always read again: what it lacks may have been restored.
        if seen is not None and not seen.state.lost and await self._is_newest(seen.state):
            seen.at = now
            return seen
        await check_format(self._blocks.reader)
        state = await read_state(self._blocks, name)
        if state is None:
            raise NotFound(f"there is no collection {name}", "nothing durable was written to it", "write to it first")
        known[name] = _Seen(state, now)
        self._forget()
        return known[name]

    async def _is_newest(self, state: CollectionState) -> bool:
        return await read_head(self._blocks.reader, state.name, state.number) == state.head

    def _forget(self) -> None:
        while len(self._seen) > self._config.collections_open:
            del self._seen[min(self._seen, key=lambda name: self._seen[name].at)]
