"""Real Parquet files for tests: written to a store and described as the catalog lists them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.catalog import Catalog, DataFile, column_stats

HOUR = 3_600_000_000_000
NS: Any = pa.timestamp("ns", tz="UTC")


def rows(count: int, *, start: int = 0, step: int = 1_000_000_000, **columns: Any) -> pa.Table:
    """`count` rows, a second apart, with a running number `n` and a host."""
    data: dict[str, Any] = {
        "time": pa.array([start + at * step for at in range(count)], NS),
        "n": pa.array(range(count), pa.int64()),
        "host": pa.array([f"h{at % 7}" for at in range(count)]),
        **columns,
    }
    return pa.table(data)


async def add(catalog: Catalog, path: str, content: pa.Table, **members: Any) -> DataFile:
    """Write a file and register it."""
    file = await put(catalog, path, content, **members)
    await catalog.register([file])
    return file


async def put(catalog: Catalog, path: str, content: pa.Table, row_group_rows: int = 1000, **members: Any) -> DataFile:
    sink = io.BytesIO()
    pq.write_table(content, sink, row_group_size=row_group_rows, compression="zstd")
    data = sink.getvalue()
    await catalog.store.put(catalog.layout.key(path), data)
    return describe(path, content, len(data), **members)


def describe(path: str, content: pa.Table, size: int, **members: Any) -> DataFile:
    ends: Any = pc.min_max(content["time"].cast(pa.int64())).as_py()
    stats = {}
    for name in ("n", "host"):
        if name in content.column_names and not pa.types.is_nested(content[name].type):
            found: Any = pc.min_max(content[name]).as_py()
            stats[name] = column_stats(found["min"], found["max"], has_nulls=content[name].null_count > 0)
    return DataFile(
        path=path,
        min_timestamp=ends["min"],
        max_timestamp=ends["max"],
        row_count=content.num_rows,
        size_bytes=size,
        **{"tenant": "acme", "table": "cpu", "column_stats": stats, **members},
    )
