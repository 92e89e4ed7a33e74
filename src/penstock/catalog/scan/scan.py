"""A scan: the rows of a table in a time range, as record batches, in bounded memory.

What comes out are matching rows only. The files are those of one position, and vacuum leaves them alone while the scan
is open: it holds a pin, which it renews. Files that lie on the store for the grace anyway need none: `pin=False`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.catalog.change.predicate import Predicate
from penstock.catalog.format.data_file import DataFile
from penstock.catalog.format.layout import CatalogLayout
from penstock.catalog.plan import Plan
from penstock.catalog.scan.fragments import file_dataset
from penstock.catalog.scan.object_file import LoopDoor, ObjectFiles, TailCache
from penstock.catalog.scan.row_filter import conjunction, row_filter, time_filter
from penstock.catalog.scan.schemas import damaged, unified, union_schema
from penstock.catalog.shards import Position
from penstock.clock import Clock
from penstock.errors import Closed, InvalidInput, PenstockError
from penstock.objects import ObjectStore

__all__ = ["Scan", "ScanQuery", "scanner_of"]


# Rows in one batch, and batches and files that Arrow reads ahead: some tens of megabytes in all.
BATCH_ROWS: Final = 65_536
_BATCHES_AHEAD: Final = 2
_FILES_AHEAD: Final = 2
# A pin outlives a process that died by no more than this.
PIN_SECONDS: Final = 120.0
TAILS_BYTES_MAX: Final = 64 * 1024 * 1024


class Planner(Protocol):
    """What a scan needs of a catalog."""

    @property
    def store(self) -> ObjectStore: ...
    @property
    def layout(self) -> CatalogLayout: ...
    @property
    def clock(self) -> Clock: ...

    async def plan(
        self,
        start: int | None = None,
        end: int | None = None,
        predicates: Sequence[Predicate] = (),
        shard: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
        partial: bool = False,
    ) -> Plan: ...

    async def as_of(self, position: Position) -> Any: ...

    async def pin(self, position: Position, *, seconds: float, name: str | None = None) -> Any: ...

    async def unpin(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanQuery:
    """A scan: rows with a time in `[start, end)` for which all predicates hold, and files by the rest."""

    start: int | None = None
    end: int | None = None
    predicates: tuple[Predicate, ...] = ()
    shard: str | None = None
    tenant: str | None = None
    table: str | None = None
    as_of: Position | None = None

    async def plan(self, planner: Planner) -> Plan:
        source = planner if self.as_of is None else await planner.as_of(self.as_of)
        found: Plan = await source.plan(
            self.start, self.end, self.predicates, self.shard, tenant=self.tenant, table=self.table
        )
        return found


class Scan:
    """An open scan, as a context and an iterator of batches. Belongs to its catalog's loop; read once."""

    def __init__(
        self,
        planner: Planner,
        query: ScanQuery,
        *,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        time_column: str = "time",
        batch_rows: int = BATCH_ROWS,
        pin: bool = True,
        tails: TailCache | None = None,
    ) -> None:
        if batch_rows < 1:
            raise InvalidInput(f"batch_rows = {batch_rows}", "it must be above zero")
        self._planner = planner
        self._query = query
        self._columns = columns
        self._schema = schema
        self._time_column = time_column
        self._batch_rows = batch_rows
        self._pins = pin
        self._tails = tails or TailCache(TAILS_BYTES_MAX)
        self._pin: str | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._plan: Plan | None = None
        self._files: ObjectFiles | None = None
        self._filter: pc.Expression | None = None
        self._dataset: ds.Dataset | None = None

    async def __aenter__(self) -> Scan:
        self._plan = plan = await self._query.plan(self._planner)
        try:
            if self._pins:
                await self._hold(plan)
            await self._prepare(plan.files)
        except BaseException:
            await self._let_go()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._let_go()
        self._dataset = self._files = None

    @property
    def plan(self) -> Plan:
        """The files that are read."""
        if self._plan is None:
            raise Closed("the scan is not open", "it was not entered", "use it with `async with`")
        return self._plan

    @property
    def position(self) -> dict[str, int]:
        return self.plan.position

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        whole = self.dataset.schema
        return whole if self._columns is None else pa.schema([whole.field(name) for name in self._columns])

    @property
    def dataset(self) -> ds.Dataset:
        """All rows of the planned files, for engines with filters of their own; to be read on other threads than the loop's."""
        if self._dataset is None:
            raise Closed("the scan is closed", "its `async with` block has ended", "scan again")
        return self._dataset

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        scanner = scanner_of(self.dataset, self._columns, self._filter, self._batch_rows)
        batches = await asyncio.to_thread(lambda: iter(scanner.to_reader()))
        while (batch := await asyncio.to_thread(self._next, batches)) is not None:
            if batch.num_rows:
                yield batch

    async def to_table(self) -> pa.Table:
        """All rows at once: for those that fit into memory."""
        return pa.Table.from_batches([batch async for batch in self], self.schema)

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except PenstockError:
            raise
        except (pa.ArrowException, OSError) as error:
            failure = self._files.failure if self._files is not None else None
            raise failure or damaged(", ".join(self.plan.paths[:3]), error) from error

    async def _prepare(self, planned: Sequence[DataFile]) -> None:
        self._files = files = ObjectFiles(self._planner.store, self._planner.layout, LoopDoor.here(), self._tails)
        files.add(planned)
        schema = self._schema if self._schema is not None else await union_schema(files, planned)
        for name in self._columns or ():
            if name not in schema.names:
                schema = unified({"": schema, "asked": pa.schema([pa.field(name, pa.null())])})
        query = self._query
        times = time_filter(schema, self._time_column, query.start, query.end) if planned else None
        self._filter = conjunction([times, row_filter(schema, query.predicates)])
        self._dataset = file_dataset(files, planned, schema, time_column=self._time_column)

    # The pin ---------------------------------------------------------------------------------------------

    async def _hold(self, plan: Plan) -> None:
        pinned = await self._planner.pin(plan.position, seconds=PIN_SECONDS)
        self._pin = pinned.name
        self._renewing = asyncio.create_task(self._renew(plan, pinned.name))

    async def _renew(self, plan: Plan, name: str) -> None:
        while True:
            await self._planner.clock.sleep(PIN_SECONDS / 3)
            with suppress(PenstockError):
                # Tried again in time; should the pin expire, the grace still stands before a deletion.
                await self._planner.pin(plan.position, seconds=PIN_SECONDS, name=name)

    async def _let_go(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewing
        if self._pin is not None:
            name, self._pin = self._pin, None
            with suppress(PenstockError):
                # It expires by itself.
                await self._planner.unpin(name)


def scanner_of(
    dataset: ds.Dataset, columns: Sequence[str] | None, filter: pc.Expression | None, batch_rows: int = BATCH_ROWS
) -> ds.Scanner:
    """A scanner that reads little ahead."""
    return dataset.scanner(
        columns=None if columns is None else list(columns),
        filter=filter,
        batch_size=batch_rows,
        batch_readahead=_BATCHES_AHEAD,
        fragment_readahead=_FILES_AHEAD,
    )
