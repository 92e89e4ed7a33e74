"""The catalog at one position, with the tables that a query names: what all its scans read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from penstock.catalog import (
    DataFile,
    LoopDoor,
    ObjectFiles,
    Position,
    TailCache,
    union_schema,
)
from penstock.errors import InvalidInput
from penstock.lake.planned_dataset import OPAQUE, PlannedDataset
from penstock.lake.sql_source import SqlSource, SqlState
from penstock.lake.statement import check_table
from penstock.lake.text_columns import columns_to_read, mark_repeated

__all__ = ["SqlSnapshot", "TableColumns"]

_TAILS_BYTES: Final = 64 << 20
_SCHEMAS_MAX: Final = 50_000


class TableColumns:
    """The columns of tables: those that are known, and those that were read from the footers of files."""

    def __init__(self, known: Mapping[str, pa.Schema], time_column: str) -> None:
        self.known = dict(known)
        self.time_column = time_column
        self.tails = TailCache(_TAILS_BYTES)
        self._schemas: dict[frozenset[str], pa.Schema] = {}

    async def union(self, reader: ObjectFiles, planned: Sequence[DataFile]) -> pa.Schema:
        """The union of the files' columns; the same files have the same ever after."""
        cache, key = self._schemas, frozenset(file.path for file in planned)
        if key not in cache:
            reader.add(planned)
            schema = await union_schema(reader, planned)
            sample = max(planned, key=lambda file: file.row_count)
            schema = _readable(mark_repeated(schema, await asyncio.to_thread(_footer, reader, sample.path)))
            if sum(map(len, cache)) + len(key) > _SCHEMAS_MAX:
                cache.clear()
            cache[key] = schema
        return cache[key]


class SqlSnapshot:
    """What one query sees. Make it with `take`; its datasets are read on the engine's threads."""

    def __init__(self, catalog: SqlSource, columns: TableColumns, tenant: str | None, held: SqlState) -> None:
        self._catalog = catalog
        self._columns = columns
        self._tenant = tenant
        self._held = held
        self._door = LoopDoor.here()
        self._pin: str | None = None
        self.position = held.position
        self.reader = ObjectFiles(catalog.store, catalog.layout, self._door, columns.tails)
        self.datasets: dict[str, PlannedDataset] = {}
        self.files = 0
        self.plan_seconds = 0.0

    @classmethod
    async def take(
        cls, catalog: SqlSource, columns: TableColumns, tenant: str | None, as_of: Position | None, seconds: float
    ) -> SqlSnapshot:
        found = cls(catalog, columns, tenant, await catalog.hold(as_of))
        if as_of is not None or seconds > catalog.config.grace_seconds / 2:
            # Whatever is visible now stays for the grace, so a short query of the present needs no pin.
            found._pin = (await catalog.pin(found.position, seconds=seconds + 60)).name
        return found

    async def open(self, tables: Collection[str], sql: str) -> None:
        """Each name means the table of that very name, or else the only one whose name differs in case alone."""
        spelled: dict[str, str] = {}
        for name in sorted(tables):
            table, schema = name, await self._schema(name)
            if schema is None:
                table = await self._spelled_otherwise(name)
                schema = await self._schema(table) if table else None
            if schema is None:
                check_table(name)
                continue
            if (there := spelled.setdefault(_folded(name), table)) != table:
                raise InvalidInput(
                    f"the query names both tables {there!r} and {table!r}",
                    "names that differ only in case are the same name in SQL",
                    "query one of them at a time",
                )
            if any(_folded(one) == _folded(name) for one in self.datasets):
                continue
            self.datasets[name] = PlannedDataset(
                columns_to_read(schema, sql),
                self.reader,
                partial(self._files_between, table),
                self._add_plan_seconds,
                self._columns.time_column,
            )

    async def tables(self) -> list[str]:
        """Names of the tables that have files, and of those that are known."""
        return sorted({*self._columns.known, *await self._held.tables(tenant=self._tenant)})

    async def _schema(self, table: str) -> pa.Schema | None:
        """The columns of a table; None when it has no files."""
        known = self._columns.known.get(table)
        if known is not None:
            return known
        planned = (await self._held.plan(table=table, tenant=self._tenant)).files
        return await self._columns.union(self.reader, planned) if planned else None

    async def _spelled_otherwise(self, name: str) -> str:
        """The table whose name is this one but for case; empty when there is none, or more than one."""
        listed = await self._held.tables(tenant=self._tenant)
        found = {one for one in (*listed, *self._columns.known) if _folded(one) == _folded(name)}
        return found.pop() if len(found) == 1 else ""

    async def close(self) -> None:
        if self._pin is not None:
            await self._catalog.unpin(self._pin)

    def _add_plan_seconds(self, seconds: float) -> None:
        self.plan_seconds += seconds

    def _files_between(
        self, name: str, start: int | None, end: int | None, columns: Sequence[str] | None
    ) -> Sequence[DataFile]:
        """For threads of the engine."""
        # The way to the loop and back costs as much as all the rest of a plan, and much more on a busy machine.
        found = self._held.known_plan(start, end, columns, table=name, tenant=self._tenant)
        if found is None:
            found = self._door.run(self._held.plan(start, end, columns, table=name, tenant=self._tenant))
        self.files += len(found.files)
        return found.files


def _folded(name: str) -> str:
    """As DuckDB compares names: letters of ASCII alone have no case."""
    return "".join(one.lower() if one.isascii() else one for one in name)


def _readable(schema: pa.Schema) -> pa.Schema:
    """Decimals of more than 38 digits, which tables of an earlier release may have, as text: DuckDB has none."""
    return pa.schema(
        [
            one.with_type(pa.string()).with_metadata({OPAQUE: b"decimal256"}) if pat.is_decimal256(one.type) else one
            for one in schema
        ]
    )


def _footer(reader: ObjectFiles, path: str) -> pq.FileMetaData:
    with pq.ParquetFile(reader.open_input_file(path)) as opened:
        return opened.metadata
