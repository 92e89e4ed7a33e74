"""The columns of a table: the union of what its files have, read from their footers.

A column that only some files have is null in the others. Types of one column may be widened (int32 and int64); types
that have nothing in common are an error that names the files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.catalog.format.data_file import DataFile
from penstock.catalog.scan.object_file import ObjectFiles
from penstock.errors import Corrupt, InvalidInput, PenstockError

__all__ = ["damaged", "file_schema", "unified", "union_schema"]

# Footers read at once.
_AT_ONCE = 16


async def union_schema(files: ObjectFiles, planned: Sequence[DataFile]) -> pa.Schema:
    """The columns of all files, in the order in which they were first seen."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(path: str) -> pa.Schema:
        async with gate:
            return await asyncio.to_thread(file_schema, files, path)

    paths = [file.path for file in planned]
    return unified(dict(zip(paths, await asyncio.gather(*map(one, paths)), strict=True)))


def file_schema(files: ObjectFiles, path: str) -> pa.Schema:
    try:
        with pq.ParquetFile(files.open_input_file(path)) as opened:
            return opened.schema_arrow.remove_metadata()
    except PenstockError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error


def unified(schemas: dict[str, pa.Schema]) -> pa.Schema:
    """One schema for files by path. Equal schemas, which is nearly all of them, are looked at once."""
    distinct: dict[pa.Schema, str] = {}
    for path, schema in schemas.items():
        distinct.setdefault(schema, path)
    union = pa.schema([])
    for schema, path in distinct.items():
        try:
            union = pa.unify_schemas([union, schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise InvalidInput(
                f"data file {path!r} cannot be read together with the others of its table",
                f"a column has a different type there: {str(error).splitlines()[0]}",
                "ask for one tenant at a time (--tenant): tenants may give one column two types",
            ) from error
    # A column that must not be null in one file may be missing from another.
    return pa.schema([field.with_nullable(True) for field in union])


def damaged(path: str, error: Exception) -> Corrupt:
    return Corrupt(
        f"data file {path!r} cannot be read",
        str(error).splitlines()[0] if str(error) else type(error).__name__,
        "check it with penstock catalog verify --data, and restore it or delete it from the catalog",
    )
