"""The time-series store's single writer: samples of many tenants in one key-value store.

`TimeSeriesStore.open` fences whoever wrote before. Writes are accepted in order, flushed together and vouched for when
durable; reads answer from the newest published snapshot, or with `view` from everything that was accepted.
`TimeSeriesStore.open_reader` makes a follower instead. The pages docs/rooms/timeseries.md and docs/format/timeseries.md
tell what is promised and how it lies in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

from penstock.blocks import ChangeHandle, ChangeReceipt, StoreWriter, first_moment
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.coordinator import Mark, SnapshotSubscription, View, WriteHandle
from penstock.errors import AtCapacity, Closed, Corrupt, InvalidInput
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.keyvalue import KeyValue, open_keyvalue
from penstock.observability import SILENT, Observer, names
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.flush import SeriesFlushPlanner
from penstock.timeseries.follower import TimeSeriesReader
from penstock.timeseries.format.keys import BUCKET_MS
from penstock.timeseries.format.state import SeriesStoreRecord, TenantState
from penstock.timeseries.format.store_format import FORMAT
from penstock.timeseries.operations import (
    DEFAULT_TENANT,
    Expire,
    Fold,
    SampleChange,
    SampleChanges,
    SeriesDelta,
    TenantSamples,
    stored_changes,
)
from penstock.timeseries.read.selection import Moment
from penstock.timeseries.read.states import STORE_RECORDS, SeriesSnapshot, list_tenants, read_state
from penstock.timeseries.reads import SeriesReads, Work
from penstock.timeseries.samples import SampleBatch
from penstock.timeseries.upkeep.fold import due_periods
from penstock.timeseries.upkeep.keeper import TenantUpkeep, retained_from
from penstock.timeseries.upkeep.repair import SeriesRepair, repair_series
from penstock.timeseries.write.limits import check_limits
from penstock.timeseries.write.pieces import CountedTables, pieces_of
from penstock.timeseries.write.refusals import SampleRefusals

__all__ = ["SeriesView", "TimeSeriesStore"]

T = TypeVar("T")


class SeriesView(SeriesReads):
    """Everything accepted up to `epoch`, flushed or not, as it stood then. Leave it with `close`, or use `with`."""

    def __init__(
        self,
        view: View[SeriesDelta, SeriesSnapshot],
        config: TimeSeriesConfig,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._config, self._clock, self._observer = config, clock, observer
        self.epoch = view.epoch
        self._snapshot = view.snapshot
        self._unflushed = list(stored_changes(view.deltas, view.snapshot.positions))
        self._snapshot.holders += 1
        self._closed = False

    async def read(self, tenant: str, work: Work[T]) -> T:
        if self._closed:
            raise Closed("the view is closed")
        mine = [change for change in self._unflushed if any(write.tenant == tenant for write in change.samples)]
        return await work(Moment(tenant, self._snapshot.blocks, await self._snapshot.state(tenant), mine))

    def close(self) -> None:
        """Let the snapshot go."""
        if not self._closed:
            self._closed = True
            self._snapshot.holders -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TimeSeriesStore(SeriesReads, StoreWriter[SeriesDelta, SeriesStoreRecord, str, TenantState, SampleChange]):
    """Made by `open`. Leaving `async with` flushes and closes it."""

    def __init__(
        self,
        keyvalue: KeyValue,
        snapshot: SeriesSnapshot,
        refusals: SampleRefusals,
        config: TimeSeriesConfig,
        *,
        clock: Clock,
        entropy: Entropy,
        observer: Observer,
    ) -> None:
        self._planner = SeriesFlushPlanner(config, refusals, clock=clock, observer=observer)
        super().__init__(
            keyvalue,
            FORMAT,
            snapshot,
            self._planner,
            TenantUpkeep(config, clock),
            refusals,
            config,
            states_max=config.tenants_open,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        self._config, self._observer = config, observer
        self._tables = CountedTables()

    @classmethod
    async def open(
        cls,
        url: str,
        path: str,
        config: TimeSeriesConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
        **access: Any,
    ) -> Self:
        """Open the store at `path` as its writer, creating it if need be."""
        keyvalue = await open_keyvalue(url, path, clock=clock, observer=observer, **access)
        try:
            return await cls.over(keyvalue, config, clock=clock, entropy=entropy, observer=observer)
        except BaseException:
            await keyvalue.close()
            raise

    @classmethod
    async def over(
        cls,
        keyvalue: KeyValue,
        config: TimeSeriesConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> Self:
        """The writer over a key-value store, which it then owns."""
        config = config or TimeSeriesConfig()
        damaged = names.TIMESERIES_RECORD_CORRUPT
        snapshot, unknown = await first_moment(
            keyvalue, STORE_RECORDS, read_state, config.cache_bytes, damaged, observer
        )
        refusals = SampleRefusals(unknown)
        return cls(keyvalue, snapshot, refusals, config, clock=clock, entropy=entropy, observer=observer)

    @staticmethod
    async def open_reader(
        url: str,
        path: str,
        config: TimeSeriesConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
        **access: Any,
    ) -> TimeSeriesReader:
        """Open the store at `path` for reading alone, beside its writer."""
        return await TimeSeriesReader.open(url, path, config, clock=clock, observer=observer, **access)

    @staticmethod
    async def repair(
        url: str,
        path: str,
        *,
        positions: Mapping[str, int | None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
        **access: Any,
    ) -> list[SeriesRepair]:
        """Make damaged heads of tenants again, as the store's writer, and state positions that cannot be read.

        A source whose position is stated as None begins anew.
        """
        keyvalue = await open_keyvalue(url, path, clock=clock, observer=observer, **access)
        try:
            return await repair_series(keyvalue, positions or {})
        finally:
            await keyvalue.close()

    # writing --------------------------------------------------------------------------------------

    def changes(self, source: str | None = None, position: int | None = None) -> SampleChanges:
        """Gather batches that belong together, with the place in a source that they came from; `write` takes them."""
        return SampleChanges(source, position)

    async def write(
        self,
        batch: SampleBatch | SampleChanges,
        *,
        tenant: str = DEFAULT_TENANT,
        timeout: float | None = None,
        durable: bool = False,
    ) -> WriteHandle:
        """Accept a batch, or changes, waiting for room if need be; with `durable`, return when it is.

        A batch of more samples than the buffer holds is taken in pieces; writing it again after an error is safe.
        After `timeout` seconds without room `AtCapacity` gives it back. `InvalidInput` names a series over a bound and
        `Corrupt` what is damaged: nothing was taken. What is found only when it is flushed is told by the handle, or
        else by the next `flush` or `close`.
        """
        change = self._checked(batch, tenant)
        pieces = self._pieces(change, pieces_of)
        accepted = await self._accept(pieces, SeriesDelta, timeout, lambda _: batch)
        return await self._handle(accepted.epoch, change.receipt, durable=durable)

    def try_write(self, batch: SampleBatch | SampleChanges, *, tenant: str = DEFAULT_TENANT) -> WriteHandle:
        """Accept a batch now, or give it back inside `AtCapacity`."""
        change = self._checked(batch, tenant)
        try:
            accepted = self._coordinator.try_write(SeriesDelta([change]))
        except AtCapacity as error:
            error.rejected = batch
            raise
        return ChangeHandle(self._coordinator, accepted.epoch, change.receipt)

    def _checked(self, batch: SampleBatch | SampleChanges, tenant: str) -> SampleChange:
        self._check_open()
        if isinstance(batch, SampleChanges):
            change = replace(batch.change(), receipt=ChangeReceipt())
        elif isinstance(batch, SampleBatch):
            change = SampleChange((TenantSamples(tenant, batch),))
        else:
            raise InvalidInput(f"{type(batch).__name__} is not a batch of samples", "", "make one with SampleBatch.of")
        for write in change.samples:
            check_limits(write.batch.table, self._config)
        self._check_accepted(change)
        return self._tables.counted(change)

    # reading --------------------------------------------------------------------------------------

    def view(self) -> SeriesView:
        """Everything accepted so far, flushed or not, as it stands now. It never changes afterwards."""
        self._check_open()
        return SeriesView(self._coordinator.view(), self._config, self._clock, self._observer)

    def subscribe(self) -> SnapshotSubscription[SeriesSnapshot]:
        """Snapshots from the current one on, each with the epoch it covers: always the newest, none twice."""
        self._check_open()
        return self._coordinator.subscribe()

    async def read(self, tenant: str, work: Work[T]) -> T:
        """Do `work` on the newest published moment of a tenant; one that nobody has written to is empty."""
        with self._snapshot().held() as snapshot:
            return await work(Moment(tenant, snapshot.blocks, await snapshot.state(tenant)))

    async def tenants(self) -> list[str]:
        """The names of all tenants that have been flushed."""
        with self._snapshot().held() as snapshot:
            return await list_tenants(snapshot.reader)

    async def record_problems(self) -> list[str]:
        """What is wrong with the records that belong to no tenant."""
        with self._snapshot().held() as snapshot:
            return await STORE_RECORDS.problems(snapshot.reader)

    # upkeep ---------------------------------------------------------------------------------------

    async def compact(self, tenant: str | None = None) -> None:
        """Fold every hour to one sorted run, closed or not, of one tenant or of all; the error tells what kept it."""
        failures: list[Exception] = []
        for name in [tenant] if tenant is not None else await self.tenants():
            try:
                failure = await self._compact(name)
            except Corrupt as error:
                failure = error
            if failure is not None:
                failures.append(failure)
        await self._coordinator.flush()
        if failures:
            raise failures[0]

    async def _compact(self, tenant: str) -> Exception | None:
        before: list[int] | None = None
        while True:
            with self._snapshot().held() as snapshot:
                state = await snapshot.state(tenant)
                due = [] if state is None else due_periods(state, self._config, self._clock.now_ms(), whole=True)
                serial = 0 if state is None else state.head.next_serial
            if not due or before == [*due, serial]:
                return None
            before = [*due, serial]
            handle = await self._coordinator.write(SeriesDelta([SampleChange((Fold(tenant, whole=True),))]))
            await self._coordinator.flush(handle.epoch, Mark.FLUSHED)
            if (failure := self._planner.upkeep_errors.get(tenant)) is not None:
                return failure

    async def tend(self) -> None:
        """Do the upkeep that is due now, retention of all tenants included, instead of in the next pauses."""
        self._check_open()
        before = retained_from(self._config, self._clock.now_ms())
        if before is not None:
            await self.expire(before * BUCKET_MS)
        await self._keeper.tend()

    async def expire(self, before_ms: int, *, tenant: str | None = None) -> None:
        """Remove all hours that end before this time, of one tenant or of all, in one write; return when it is durable."""
        self._check_open()
        hour = before_ms // BUCKET_MS
        found = [tenant] if tenant is not None else await self.tenants()
        operations = tuple(Expire(name, hour) for name in found)
        if operations:
            handle = await self._coordinator.write(SeriesDelta([SampleChange(operations)]))
            await self._coordinator.flush(handle.epoch)
