"""SQL over what waits in a quiver, through DuckDB, which reads the mapped Arrow files as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.disk import RealDisk
from penstock.errors import InvalidInput
from penstock.quiver import gather, stored_tables

__all__ = ["rows_of_query"]


def rows_of_query(path: str, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows. A slot is a table of its name, with the columns of all its schemas."""
    import duckdb

    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        for slot, tables in stored_tables(RealDisk(), str(Path(path).resolve())).items():
            for name, table in _tables(slot, tables):
                connection.register(name, table)
        try:
            answer = connection.execute(sql)
        except duckdb.Error as error:
            raise InvalidInput("the query cannot be answered", str(error), "see the tables with inspect") from error
        return [column[0] for column in answer.description or ()], answer.fetchall()


def _tables(slot: str, tables: list[pa.Table]) -> list[tuple[str, pa.Table]]:
    """One table; where the schemas do not fit into one, a numbered table for each schema."""
    try:
        return [(slot, gather(tables, None))]
    except InvalidInput:
        schemas: dict[pa.Schema, list[pa.Table]] = {}
        for table in tables:
            schemas.setdefault(table.schema.remove_metadata(), []).append(table.replace_schema_metadata(None))
        return [(f"{slot}_{at}", pa.concat_tables(found)) for at, found in enumerate(schemas.values(), start=1)]
