"""A reader beside the writer, in any process: it sees what is durable, at most a bounded time late."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar

from penstock.blocks import BlockCache, BlockReader, FollowedStates, read_positions
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound
from penstock.keyvalue import Reader
from penstock.observability import SILENT, Observer
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.format.state import TenantState
from penstock.timeseries.format.store_format import FORMAT
from penstock.timeseries.read.selection import Moment
from penstock.timeseries.read.states import check_format, list_tenants, read_state, read_tenant_head, record_problems
from penstock.timeseries.reads import SeriesReads, Work

__all__ = ["TimeSeriesReader"]

T = TypeVar("T")


class _DurableTenants:
    """Tenants as the writer has made them durable."""

    async def read(self, blocks: BlockReader, name: str) -> TenantState:
        await check_format(blocks.reader)
        state = await read_state(blocks, name)
        if state is None:
            raise NotFound(f"there is no tenant {name}", "nothing durable was written for it", "write to it first")
        return state

    async def is_newest(self, blocks: BlockReader, state: TenantState) -> bool:
        # A damaged one is always read again: what it lacks may have been restored.
        return not state.lost and await read_tenant_head(blocks.reader, state) == state.head


class TimeSeriesReader(SeriesReads):
    """Made by `TimeSeriesStore.open_reader`."""

    def __init__(
        self, reader: Reader, config: TimeSeriesConfig, *, clock: Clock = SYSTEM_CLOCK, observer: Observer = SILENT
    ) -> None:
        self._config, self._clock, self._observer = config, clock, observer
        cache = BlockCache(config.cache_bytes, store=FORMAT.label, observer=observer)
        self._blocks = BlockReader(reader, FORMAT, cache, moving=True, observer=observer)
        self._states: FollowedStates[str, TenantState] = FollowedStates(
            self._blocks,
            _DurableTenants(),
            staleness_seconds=config.staleness_seconds,
            states_max=config.tenants_open,
            clock=clock,
        )

    async def read(self, tenant: str, work: Work[T]) -> T:
        """Do `work` on one moment of a tenant that is not older than allowed; one without samples is empty."""

        async def on_state(blocks: BlockReader, state: TenantState) -> T:
            return await work(Moment(tenant, blocks, state))

        try:
            return await self._states.read(tenant, on_state)
        except NotFound:
            return await work(Moment(tenant, self._blocks, None))

    async def tenants(self) -> list[str]:
        """The names of all tenants that are durable."""
        await check_format(self._blocks.reader)
        return await list_tenants(self._blocks.reader)

    async def position(self, source: str) -> int | None:
        """The last position of a source that is durable."""
        return (await read_positions(self._blocks.reader, FORMAT)).of(source)

    async def record_problems(self) -> list[str]:
        """What is wrong with the records that belong to no tenant."""
        return await record_problems(self._blocks.reader)

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
