"""SQL over the tables of a catalog, on DuckDB: one SELECT, read-only, within bounds.

The engine sees tables and nothing else: no files, no network, no extensions, no settings. Filters and columns go down
into the plan, so a query reads what it has to. All tables of a query are read at one position of the catalog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from penstock.catalog import Catalog, DataFile, LoopDoor, ObjectFiles, Position, TailCache, union_schema
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import AtCapacity, Closed, DeadlineExceeded, InvalidInput, NotFound, PenstockError
from penstock.lake.planned_dataset import TIME_COLUMN, PlannedDataset
from penstock.lake.statement import checked_select
from penstock.loops import Threads
from penstock.observability import SILENT, Observer, names

if TYPE_CHECKING:
    import duckdb

__all__ = ["SqlAnswer", "SqlConfig", "SqlEngine"]

MIB: Final = 1024 * 1024
_TAILS_BYTES: Final = 64 * MIB
_SCHEMAS_MAX: Final = 50_000
_BATCH_ROWS: Final = 2048
_INTERRUPT_SECONDS: Final = 0.05
# Behind its view, so that a filter on floats stays with DuckDB: Arrow has another mind about NaN.
_BASE: Final = "penstock_base_"


@dataclass(frozen=True, kw_only=True)
class SqlConfig:
    """Bounds of queries."""

    # What DuckDB may hold, over all queries of an engine; joins and sorts of more are refused: nothing is spilled to a disk.
    memory_bytes: int = 1024 * MIB
    # Threads of DuckDB, over all queries of an engine.
    threads: int = 2
    # Rows of an answer; more are cut off, and the answer says so.
    rows_max: int = 10_000
    # Bytes of an answer: whoever asked for it holds it whole, and so does the gateway that passes it on.
    answer_bytes_max: int = 64 * MIB
    # A query that takes longer is interrupted.
    seconds_max: float = 60.0
    # Queries at once in one process; others wait.
    queries_at_once: int = 4

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "threads", "rows_max", "answer_bytes_max", "queries_at_once"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidInput(f"{name} = {value!r}", "it must be a whole number above zero")
        if not 0 < self.seconds_max < inf:
            raise InvalidInput(f"seconds_max = {self.seconds_max!r}", "it must be a finite number above zero")


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
        catalog: Catalog,
        config: SqlConfig | None = None,
        *,
        known: Mapping[str, pa.Schema] | None = None,
        time_column: str = TIME_COLUMN,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        """`known` are schemas of tables that need not be looked for in files, such as those of the signals."""
        self._catalog = catalog
        self._config = config or SqlConfig()
        self._known = dict(known or {})
        self._time_column = time_column
        self._clock = clock
        self._observer = observer
        self._threads = Threads(self._config.queries_at_once, "penstock-sql", "the SQL engine")
        self._tails = TailCache(_TAILS_BYTES)
        # Queries that a thread works on.
        self.running = 0
        # One instance for all queries: making one costs as much as a small query. Each query has a cursor of its own.
        self._database: duckdb.DuckDBPyConnection | None = None
        self._schemas: dict[frozenset[str], pa.Schema] = {}

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
        found = (await self._catalog.plan(tenant=tenant)).table["table"]
        return sorted({*self._known, *(str(name) for name in pc.unique(found).to_pylist())} - {""})

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
            snapshot = await _Snapshot.take(self, tenant, as_of, seconds)
            try:
                await snapshot.open(wanted)
                answer = await self._run(_Query(sql, rows, self._config, snapshot, cursor), seconds, began)
            finally:
                await snapshot.close()
            outcome = "answered"
            return answer
        finally:
            self._observer.count(names.SQL_QUERIES, 1, outcome=outcome)
            self._observer.observe(names.SQL_SECONDS, self._clock.monotonic() - began)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        if self._database is None:
            self._database = _connect(self._config)
        return self._database.cursor()

    async def _run(self, query: _Query, seconds: float, began: float) -> SqlAnswer:
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
        table, is_cut = work.result()
        snapshot = query.snapshot
        self._observer.observe(names.SQL_PLAN_SECONDS, snapshot.plan_seconds)
        return SqlAnswer(
            table=table,
            is_cut=is_cut,
            position=snapshot.position,
            files=snapshot.files,
            plan_seconds=snapshot.plan_seconds,
            seconds=self._clock.monotonic() - began,
        )


class _Snapshot:
    """The catalog at one position, with the tables that a query names."""

    def __init__(self, engine: SqlEngine, tenant: str | None, position: dict[str, int]) -> None:
        self._engine = engine
        self._catalog = engine._catalog
        self._tenant = tenant
        self._door = LoopDoor.here()
        self._pin: str | None = None
        self.position = position
        self.reader = ObjectFiles(self._catalog.store, self._catalog.layout, self._door, engine._tails)
        self.datasets: dict[str, PlannedDataset] = {}
        self.files = 0
        self.plan_seconds = 0.0

    @classmethod
    async def take(cls, engine: SqlEngine, tenant: str | None, as_of: Position | None, seconds: float) -> _Snapshot:
        catalog = engine._catalog
        source: Any = catalog if as_of is None else await catalog.as_of(as_of)
        # No file begins and ends before it begins: only the position is wanted.
        found = cls(engine, tenant, (await source.plan(0, 0)).position)
        if as_of is not None or seconds > catalog.config.grace_seconds / 2:
            # Whatever is visible now stays for the grace, so a short query of the present needs no pin.
            found._pin = (await catalog.pin(found.position, seconds=seconds + 60)).name
        return found

    async def open(self, tables: set[str]) -> None:
        for name in sorted(tables):
            schema = self._engine._known.get(name)
            if schema is None:
                planned = await self._planned(name, None, None)
                if not planned:
                    continue
                schema = await self._schema(planned)
            self.datasets[name] = PlannedDataset(
                schema,
                self.reader,
                partial(self._files_between, name),
                self._add_plan_seconds,
                self._engine._time_column,
            )

    async def close(self) -> None:
        if self._pin is not None:
            await self._catalog.unpin(self._pin)

    async def _schema(self, planned: Sequence[DataFile]) -> pa.Schema:
        """The union of the files' columns; the same files have the same ever after."""
        cache = self._engine._schemas
        key = frozenset(file.path for file in planned)
        if key not in cache:
            self.reader.add(planned)
            schema = await union_schema(self.reader, planned)
            if sum(map(len, cache)) + len(key) > _SCHEMAS_MAX:
                cache.clear()
            cache[key] = schema
        return cache[key]

    def _add_plan_seconds(self, seconds: float) -> None:
        self.plan_seconds += seconds

    def _files_between(self, name: str, start: int | None, end: int | None) -> Sequence[DataFile]:
        """For threads of the engine."""
        planned = self._door.run(self._planned(name, start, end))
        self.files += len(planned)
        return planned

    async def _planned(self, name: str, start: int | None, end: int | None) -> Sequence[DataFile]:
        past = await self._catalog.as_of(self.position)
        plan = await past.plan(start, end, table=name, tenant=self._tenant)
        return plan.files


class _Query:
    """One query on one connection of its own, on a thread."""

    def __init__(
        self,
        sql: str,
        rows_max: int,
        config: SqlConfig,
        snapshot: _Snapshot,
        cursor: duckdb.DuckDBPyConnection,
    ) -> None:
        self._sql = sql
        self._rows_max = rows_max
        self._config = config
        self.snapshot = snapshot
        self._connection = cursor
        self._is_given_up = False

    def run(self) -> tuple[pa.Table, bool]:
        import duckdb

        with self._connection as connection:
            try:
                for name, dataset in self.snapshot.datasets.items():
                    _register(connection, name, dataset)
                self._check()
                return self._answer(connection.execute(self._sql).to_arrow_reader(_BATCH_ROWS))
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                raise self._explained(error) from error

    async def give_up(self, work: asyncio.Future[Any]) -> None:
        """End it and wait for that. DuckDB forgets an interrupt that comes between two steps, so it is repeated."""
        import duckdb

        self._is_given_up = True
        while not work.done():
            with suppress(duckdb.Error):
                # It may be closed by now.
                self._connection.interrupt()
            await asyncio.wait({work}, timeout=_INTERRUPT_SECONDS)
        work.exception()

    def _check(self) -> None:
        if self._is_given_up:
            raise Closed("the query was given up", "nobody waits for its answer")

    def _answer(self, reader: pa.RecordBatchReader) -> tuple[pa.Table, bool]:
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in reader:
            self._check()
            batches.append(batch.slice(0, self._rows_max - rows))
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > self._rows_max:
                return pa.Table.from_batches(batches, reader.schema), True
            if size > self._config.answer_bytes_max:
                raise AtCapacity(
                    "the answer is too large",
                    f"its first {rows:,} rows have {size:,} bytes",
                    "ask for fewer rows or columns, or raise answer_bytes_max",
                )
        return pa.Table.from_batches(batches, reader.schema), False

    def _explained(self, error: Exception) -> PenstockError:
        import duckdb

        if self.snapshot.reader.failure is not None:
            return self.snapshot.reader.failure
        text = str(error).strip()
        if isinstance(error, duckdb.CatalogException) and "Table with name" in text:
            names = ", ".join(sorted(self.snapshot.datasets)) or "none of those that it names"
            return NotFound("the query names a table that is not there", text.splitlines()[0], f"tables found: {names}")
        if isinstance(error, duckdb.OutOfMemoryException):
            return AtCapacity(
                "the query needs too much memory", text.splitlines()[0], "narrow it, or raise memory_bytes"
            )
        return InvalidInput("the query cannot be answered", text, "correct it; the tables are those of the catalog")


def _connect(config: SqlConfig) -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{config.memory_bytes}B",
            "threads": str(config.threads),
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
        },
    )
    # Last: without access to files, not even the folder for temporary ones could be turned off.
    connection.execute("SET TimeZone = 'UTC'; SET enable_external_access = false; SET lock_configuration = true")
    return connection


def _register(connection: duckdb.DuckDBPyConnection, name: str, dataset: PlannedDataset) -> None:
    floats = [field.name for field in dataset.schema if pat.is_floating(field.type)]
    if not floats:
        connection.register(name, dataset)
        return
    connection.register(_BASE + name, dataset)
    opaque = ", ".join(f"coalesce({_quoted(column)}, NULL) AS {_quoted(column)}" for column in floats)
    connection.execute(f"CREATE TEMP VIEW {_quoted(name)} AS SELECT * REPLACE ({opaque}) FROM {_quoted(_BASE + name)}")  # noqa: S608


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
