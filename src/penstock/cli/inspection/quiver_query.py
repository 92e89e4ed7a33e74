"""SQL over what waits in a quiver, through DuckDB, which reads the mapped Arrow files as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from penstock.disk import RealDisk
from penstock.errors import InvalidInput
from penstock.quiver import gather, stored_tables

__all__ = ["query_rows"]

# Rows that are in memory at once.
_PAGE_ROWS: Final = 10_000


@contextmanager
def query_rows(path: str, sql: str) -> Iterator[tuple[list[str], Iterator[tuple[Any, ...]]]]:
    """Column names, and rows as they come. A slot is a table of its name, with the columns of all its schemas."""
    import duckdb

    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        for name, table in _named_tables(stored_tables(RealDisk(), str(Path(path).resolve()))):
            connection.register(name, _readable(connection, table))
        try:
            answer = connection.execute(sql)
            if answer is None:
                raise InvalidInput("the query cannot be answered", "it is empty", "write a SELECT")
            yield _unique([column[0] for column in answer.description or ()]), _rows(answer)
        except duckdb.Error as error:
            raise InvalidInput("the query cannot be answered", str(error), "see the tables with inspect") from error


def _rows(answer: Any) -> Iterator[tuple[Any, ...]]:
    while page := answer.fetchmany(_PAGE_ROWS):
        yield from page


def _named_tables(slots: dict[str, list[pa.Table]]) -> list[tuple[str, pa.Table]]:
    """DuckDB's names have no case: of slots that differ in nothing else, the later ones get a number."""
    named: dict[str, tuple[str, pa.Table]] = {}
    for slot in sorted(slots):
        for name, table in _tables(slot, slots[slot]):
            unique, number = name, 1
            while unique.lower() in named:
                number += 1
                unique = f"{name}_{number}"
            named[unique.lower()] = unique, table
    return list(named.values())


def _tables(slot: str, tables: list[pa.Table]) -> list[tuple[str, pa.Table]]:
    """One table; where the schemas do not fit into one, a numbered table for each schema."""
    try:
        return [(slot, gather(tables, None))]
    except InvalidInput:
        schemas: dict[pa.Schema, list[pa.Table]] = {}
        for table in tables:
            schemas.setdefault(table.schema.remove_metadata(), []).append(table.replace_schema_metadata(None))
        return [(f"{slot}_{at}", pa.concat_tables(found)) for at, found in enumerate(schemas.values(), start=1)]


def _readable(connection: Any, table: pa.Table) -> pa.Table:
    """The table without what DuckDB cannot read: a column of such a type is left out, an equal name gets a number."""
    import duckdb

    names, columns = [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            connection.from_arrow(pa.table({"column": column.slice(0, 0)})).fetchall()
        except duckdb.Error:
            continue
        names.append(name)
        columns.append(column)
    # A table of no columns cannot be asked for anything, and DuckDB takes none.
    return pa.table(columns, names=_unique(names)) if columns else pa.table({"no_columns": pa.nulls(table.num_rows)})


def _unique(names: list[str]) -> list[str]:
    """An equal name gets a number."""
    found: list[str] = []
    for name in names:
        number, unique = 1, name
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        found.append(unique)
    return found
