"""One SELECT on one connection of DuckDB: run on a thread, cut at its bounds, its errors in our words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pat

from penstock.errors import AtCapacity, Closed, InvalidInput, NotFound, PenstockError
from penstock.lake.planned_dataset import OPAQUE, PlannedDataset
from penstock.lake.sql_config import SqlConfig
from penstock.lake.sql_snapshot import SqlSnapshot

if TYPE_CHECKING:
    import duckdb

__all__ = ["SqlRun", "connect"]

_BATCH_ROWS: Final = 2048
_INTERRUPT_SECONDS: Final = 0.05
# Behind its view, so that a filter on floats stays with DuckDB: Arrow has another mind about NaN.
_BASE: Final = "penstock_base_"
# What DuckDB says when it cannot hand a time to Arrow.
_NO_NANOSECONDS: Final = "to Timestamp(NS)"
# What DuckDB and Arrow say of a condition that one of them cannot hand to the other.
_NO_SUCH_FILTER: Final = ("Arrow Scan Pushdown", "ArrowNotImplementedError")
# Of which types conditions stay with DuckDB.
Hidden: TypeAlias = Callable[[pa.DataType], bool]


class SqlRun:
    """One query on one connection of its own, on a thread."""

    def __init__(
        self,
        sql: str,
        rows_max: int,
        config: SqlConfig,
        snapshot: SqlSnapshot,
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
                try:
                    return self._answered(connection, _is_float)
                except (duckdb.Error, pa.ArrowException) as error:
                    hidden = _judged_by_duckdb(error)
                    if hidden is None or self.snapshot.reader.failure is not None:
                        raise
                    return self._answered(connection, hidden)
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                raise self._explained(error) from error

    def _answered(self, connection: duckdb.DuckDBPyConnection, hidden: Hidden) -> tuple[pa.Table, bool]:
        base = _base_of(self.snapshot.datasets)
        for name, dataset in self.snapshot.datasets.items():
            _register(connection, name, dataset, base, hidden)
        self._check()
        return self._answer(connection.execute(self._sql).to_arrow_reader(_BATCH_ROWS))

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
            raise Closed("the query was cancelled", "its caller has gone")

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
            return NotFound(
                "the query names a table that does not exist", text.splitlines()[0], f"tables found: {names}"
            )
        if isinstance(error, duckdb.OutOfMemoryException):
            return AtCapacity(
                "the query needs too much memory", text.splitlines()[0], "narrow it, or raise memory_bytes"
            )
        return InvalidInput("the query cannot be answered", text, "correct it; the tables are those of the catalog")


def connect(config: SqlConfig) -> duckdb.DuckDBPyConnection:
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


def _register(
    connection: duckdb.DuckDBPyConnection, name: str, dataset: PlannedDataset, base: str, is_hidden: Hidden
) -> None:
    hidden = [field.name for field in dataset.schema if is_hidden(field.type) or OPAQUE in (field.metadata or {})]
    if not hidden:
        connection.register(name, dataset)
        return
    connection.unregister(name)
    connection.register(base + name, dataset)
    opaque = ", ".join(f"coalesce({_quoted(column)}, NULL) AS {_quoted(column)}" for column in hidden)
    select = f"SELECT * REPLACE ({opaque}) FROM {_quoted(base + name)}"  # noqa: S608
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(name)} AS {select}")


def _is_float(kind: pa.DataType) -> bool:
    return pat.is_floating(kind)


def _is_float_or_time(kind: pa.DataType) -> bool:
    return pat.is_floating(kind) or pat.is_timestamp(kind)


def _judged_by_duckdb(error: Exception) -> Hidden | None:
    """Columns whose conditions are left to DuckDB when the query is run again; None when that would not help."""
    text = str(error)
    if _NO_NANOSECONDS in text:
        # A condition names a time that nanoseconds do not reach, such as the year 9999.
        return _is_float_or_time
    if any(one in text for one in _NO_SUCH_FILTER):
        # IS DISTINCT FROM beside an OR, or an IN over structs.
        return lambda _: True
    return None


def _base_of(tables: Iterable[str]) -> str:
    """What no table of the query begins with."""
    base = _BASE
    while any(name.lower().startswith(base) for name in tables):
        base += "_"
    return base


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
