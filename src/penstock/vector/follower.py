"""A reader beside the writer, in any process: it sees what is durable, at most a bounded time late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from penstock.blocks import BlockReader, StoreReader, open_store_reader
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound
from penstock.keyvalue import Reader
from penstock.observability import SILENT, Observer
from penstock.vector.collection import CollectionReader, Moment, Work
from penstock.vector.config import VectorConfig
from penstock.vector.format.keys import CollectionName
from penstock.vector.format.state import CollectionState
from penstock.vector.format.store_format import FORMAT
from penstock.vector.operations import CollectionSpec
from penstock.vector.read.reading import read_head, read_state
from penstock.vector.read.records import STORE_RECORDS, list_collections
from penstock.vector.search.search import Searcher
from penstock.vector.upkeep.verify import RECORDS, VerifyReport

__all__ = ["VectorReader"]

T = TypeVar("T")


class _DurableStates:
    """Collections as the writer has made them durable."""

    async def read(self, blocks: BlockReader, name: CollectionName) -> CollectionState:
        await STORE_RECORDS.check_format(blocks.reader)
        state = await read_state(blocks, name)
        if state is None:
            raise NotFound(f"there is no collection {name}", "nothing durable was written to it", "write to it first")
        return state

    async def is_newest(self, blocks: BlockReader, state: CollectionState) -> bool:
        # A damaged one is always read again: what it lacks may have been restored.
        return not state.lost and await read_head(blocks.reader, state.name, state.number) == state.head


class VectorReader(StoreReader[CollectionName, CollectionState]):
    """The collections of a store as its writer has made them durable."""

    def __init__(
        self, reader: Reader, config: VectorConfig, *, clock: Clock = SYSTEM_CLOCK, observer: Observer = SILENT
    ) -> None:
        super().__init__(
            reader,
            FORMAT,
            _DurableStates(),
            cache_bytes=config.cache_bytes,
            states_max=config.collections_open,
            staleness_seconds=config.staleness_seconds,
            clock=clock,
            observer=observer,
        )
        self.searcher = Searcher(config, clock=clock, observer=observer)

    @classmethod
    async def open(
        cls,
        url: str,
        path: str,
        config: VectorConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
        **access: Any,
    ) -> Self:
        """Open the store at `path` for reading alone, beside its writer."""
        config = config or VectorConfig()
        late = config.staleness_seconds
        reader = await open_store_reader(url, path, staleness_seconds=late, clock=clock, observer=observer, **access)
        return cls(reader, config, clock=clock, observer=observer)

    async def collection(self, tenant: str, index: str, model: str) -> CollectionReader:
        """A collection that the writer has made durable."""
        name = CollectionName(tenant, index, model)
        state = await self._states.state(name)
        return CollectionReader(self, CollectionSpec(name, state.dimensions, state.metric, state.analysis))

    async def collections(self) -> list[CollectionName]:
        await STORE_RECORDS.check_format(self._blocks.reader)
        return await list_collections(self._blocks.reader)

    async def verify_records(self) -> VerifyReport:
        """Check the records that belong to no collection: the store's own, and positions of sources."""
        return VerifyReport(RECORDS, problems=await STORE_RECORDS.problems(self._blocks.reader))

    async def read(self, spec: CollectionSpec, work: Work[T]) -> T:
        """Do `work` on one moment of a collection that is not older than allowed."""

        async def checked(blocks: BlockReader, state: CollectionState) -> T:
            spec.check(state.dimensions, state.metric)
            return await work(blocks, state)

        return await self._states.read(spec.name, checked)

    @asynccontextmanager
    async def held(self, spec: CollectionSpec) -> AsyncIterator[Moment]:
        """One moment of a collection; `StateMoved` as soon as something is needed that is no longer there."""
        async with self._states.held(spec.name) as state:
            spec.check(state.dimensions, state.metric)
            yield self._blocks, state
