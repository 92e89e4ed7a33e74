"""SQL over the tables of a catalog, on DuckDB: one SELECT, read-only, within bounds.

The engine sees tables and nothing else: no files, no network, no extensions, no settings. Filters and columns go down
into the plan, so a query reads what it has to. All tables of a query are read at one position of the catalog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog import Position
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import DeadlineExceeded
from penstock.lake.planned_dataset import TIME_COLUMN
from penstock.lake.sql_config import SqlConfig
from penstock.lake.sql_run import SqlRun, connect
from penstock.lake.sql_snapshot import SqlSnapshot, TableColumns
from penstock.lake.sql_source import SqlSource
from penstock.lake.statement import checked_select, lists_tables
from penstock.loops import Threads
from penstock.observability import SILENT, Observer, names

if TYPE_CHECKING:
    import duckdb

__all__ = ["SqlAnswer", "SqlEngine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlAnswer:
    """The rows of a query, and what they cost."""

    table: pa.Table
    # Whether there were more rows than were asked for.
    is_cut: bool
    # Where the catalog stood: what `as_of` takes.
    position: dict[str, int]
    files: int
    plan_seconds: float
    seconds: float


class SqlEngine:
    """Answers queries over one catalog. Belongs to its loop; queries run on threads of their own."""

    def __init__(
        self,
        catalog: SqlSource,
        config: SqlConfig | None = None,
        *,
        known: Mapping[str, pa.Schema] | None = None,
        time_column: str = TIME_COLUMN,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        """`known` are schemas of tables that need not be looked for in files, such as those of the signals.

        Columns of the type dictionary are text that repeats: see `text_columns`.
        """
        self._catalog = catalog
        self._config = config or SqlConfig()
        self._columns = TableColumns(known or {}, time_column)
        self._clock = clock
        self._observer = observer
        self._threads = Threads(self._config.queries_at_once, "penstock-sql", "the SQL engine")
        # Queries that a thread works on.
        self.running = 0
        # One instance for all queries: making one costs as much as a small query. Each query has a cursor of its own.
        self._database: duckdb.DuckDBPyConnection | None = None

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.close)
        if self._database is not None:
            self._database.close()
            self._database = None

    async def __aenter__(self) -> SqlEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def tables(self, *, tenant: str | None = None) -> list[str]:
        """Tables that have files, and those that are known."""
        return await SqlSnapshot(self._catalog, self._columns, tenant, await self._catalog.hold()).tables()

    async def query(
        self,
        sql: str,
        *,
        tenant: str | None = None,
        as_of: Position | None = None,
        rows_max: int | None = None,
        seconds_max: float | None = None,
    ) -> SqlAnswer:
        """Answer one SELECT. With `tenant`, files of other tenants do not exist."""
        began = self._clock.monotonic()
        seconds = self._config.seconds_max if seconds_max is None else min(seconds_max, self._config.seconds_max)
        rows = self._config.rows_max if rows_max is None else min(rows_max, self._config.rows_max)
        outcome = "failed"
        try:
            cursor = self._cursor()
            wanted = checked_select(sql, cursor)
            is_listing = lists_tables(sql, cursor)
            snapshot = await SqlSnapshot.take(self._catalog, self._columns, tenant, as_of, seconds)
            try:
                if is_listing:
                    listed = pa.table({"name": pa.array(await snapshot.tables(), pa.string())})
                    answer = self._answer(listed.slice(0, rows), listed.num_rows > rows, snapshot, began)
                else:
                    await snapshot.open(wanted, sql)
                    answer = await self._run(SqlRun(sql, rows, self._config, snapshot, cursor), seconds, began)
            finally:
                await snapshot.close()
            outcome = "answered"
            return answer
        finally:
            self._observer.count(names.SQL_QUERIES, 1, outcome=outcome)
            self._observer.observe(names.SQL_SECONDS, self._clock.monotonic() - began)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        if self._database is None:
            self._database = connect(self._config)
        return self._database.cursor()

    async def _run(self, query: SqlRun, seconds: float, began: float) -> SqlAnswer:
        work = asyncio.ensure_future(self._threads(query.run))
        self.running += 1
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({work, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise DeadlineExceeded(
                    "the query was interrupted",
                    f"it took longer than {seconds:g} s",
                    "narrow its time range, or allow more with seconds_max",
                )
        finally:
            timer.cancel()
            self.running -= 1
            if not work.done():
                await query.give_up(work)
        self._observer.observe(names.SQL_PLAN_SECONDS, query.snapshot.plan_seconds)
        return self._answer(*work.result(), query.snapshot, began)

    def _answer(self, table: pa.Table, is_cut: bool, snapshot: SqlSnapshot, began: float) -> SqlAnswer:
        return SqlAnswer(
            table=table,
            is_cut=is_cut,
            position=snapshot.position,
            files=snapshot.files,
            plan_seconds=snapshot.plan_seconds,
            seconds=self._clock.monotonic() - began,
        )
