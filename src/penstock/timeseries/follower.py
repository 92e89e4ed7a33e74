"""A reader beside the writer, in any process: it sees what is durable, at most a bounded time late."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from penstock.blocks import BlockReader, StoreReader, open_store_reader
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound
from penstock.keyvalue import Reader
from penstock.observability import SILENT, Observer
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.format.state import TenantState
from penstock.timeseries.format.store_format import FORMAT
from penstock.timeseries.read.selection import Moment
from penstock.timeseries.read.states import STORE_RECORDS, list_tenants, read_state, read_tenant_head
from penstock.timeseries.reads import SeriesReads, Work

__all__ = ["TimeSeriesReader"]

T = TypeVar("T")


class _DurableTenants:
    """Tenants as the writer has made them durable."""

    async def read(self, blocks: BlockReader, name: str) -> TenantState:
        await STORE_RECORDS.check_format(blocks.reader)
        state = await read_state(blocks, name)
        if state is None:
            raise NotFound(f"there is no tenant {name}", "nothing durable was written for it", "write to it first")
        return state

    async def is_newest(self, blocks: BlockReader, state: TenantState) -> bool:
        # A damaged one is always read again: what it lacks may have been restored.
        return not state.lost and await read_tenant_head(blocks.reader, state) == state.head


class TimeSeriesReader(SeriesReads, StoreReader[str, TenantState]):
    """The samples of a store as its writer has made them durable."""

    def __init__(
        self, reader: Reader, config: TimeSeriesConfig, *, clock: Clock = SYSTEM_CLOCK, observer: Observer = SILENT
    ) -> None:
        super().__init__(
            reader,
            FORMAT,
            _DurableTenants(),
            cache_bytes=config.cache_bytes,
            states_max=config.tenants_open,
            staleness_seconds=config.staleness_seconds,
            clock=clock,
            observer=observer,
        )
        self._config, self._clock, self._observer = config, clock, observer

    @classmethod
    async def open(
        cls,
        url: str,
        path: str,
        config: TimeSeriesConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
        **access: Any,
    ) -> Self:
        """Open the store at `path` for reading alone, beside its writer."""
        config = config or TimeSeriesConfig()
        late = config.staleness_seconds
        reader = await open_store_reader(url, path, staleness_seconds=late, clock=clock, observer=observer, **access)
        return cls(reader, config, clock=clock, observer=observer)

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
        await STORE_RECORDS.check_format(self._blocks.reader)
        return await list_tenants(self._blocks.reader)

    async def record_problems(self) -> list[str]:
        """What is wrong with the records that belong to no tenant."""
        return await STORE_RECORDS.problems(self._blocks.reader)
