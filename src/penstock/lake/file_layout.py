"""How rows of a table lie in its data files: their order, bloom filters, row groups and compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InvalidInput
from penstock.lake.sort_keys import is_sortable

__all__ = ["CompactionConfig", "bloom_columns", "parquet_options", "sort_columns"]

MIB: Final = 1024 * 1024
# As the files were written: metrics are asked for by name, everything else by time.
_ORDERS: Final = {"metrics": ("metric", "time"), "traces": ("time", "trace_id")}
_BLOOM: Final = {"traces": ("trace_id", "span_id"), "logs": ("trace_id",)}


@dataclass(frozen=True, kw_only=True)
class CompactionConfig:
    """How files are merged, and the upkeep that goes with it."""

    # Merges at once in one process. On Spark, merges at once in one job.
    tasks_at_once: int = 2
    # Memory for the decoded rows of one merge, in bytes.
    memory_bytes: int = 256 * MIB
    # Rows of one row group in a merged file.
    row_group_rows: int = 131_072
    # Compression level of zstd. Merged files are written once and read for years.
    compression_level: int = 3
    # False-positive probability of bloom filters; 0 writes none.
    bloom_probability: float = 0.01
    # Merges leased in one pass, before the next one is planned.
    tasks_per_pass: int = 16
    # Pause of `--follow` when nothing is due, in seconds.
    pause_seconds: float = 30.0
    # Age from which files are dropped, in seconds, once all of their rows are that old; 0 keeps everything.
    retention_seconds: float = 0.0
    # Time between two upkeeps of `--follow`, in seconds: retention, archive, vacuum; 0 turns them off.
    upkeep_seconds: float = 600.0
    # Folder of merged files below the catalog's prefix. Outputs of merges that died are deleted there once they
    # are older than `age_floor_seconds`.
    target_prefix: str = "compacted"

    def __post_init__(self) -> None:
        for name in ("tasks_at_once", "memory_bytes", "row_group_rows", "compression_level", "tasks_per_pass"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidInput(f"{name} = {value!r}", "it must be a whole number above zero")
        for name in ("pause_seconds", "retention_seconds", "upkeep_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidInput(f"{name} = {getattr(self, name)!r}", "it must be a finite number, not below zero")
        if not 0 <= self.bloom_probability < 1:
            raise InvalidInput(f"bloom_probability = {self.bloom_probability!r}", "it must be from 0 to below 1")
        if not self.target_prefix or self.target_prefix.startswith("metadata") or "/" in self.target_prefix:
            why = "it must be one segment of a path, and not the catalog's own metadata"
            raise InvalidInput(f"target_prefix = {self.target_prefix!r}", why)


def sort_columns(table: str, schema: pa.Schema) -> list[str]:
    """The columns that rows of a table are sorted by, as far as it has them."""
    wanted = _ORDERS.get(table, ("time",))
    return [name for name in wanted if name in schema.names and is_sortable(schema.field(name).type)]


def bloom_columns(table: str, schema: pa.Schema) -> list[str]:
    return [name for name in _BLOOM.get(table, ()) if name in schema.names]


def parquet_options(table: str, schema: pa.Schema, order: list[str], config: CompactionConfig) -> dict[str, Any]:
    """For `pq.ParquetWriter`."""
    blooms = bloom_columns(table, schema) if config.bloom_probability > 0 else []
    filters = {name: {"ndv": config.row_group_rows, "fpp": config.bloom_probability} for name in blooms}
    return {
        "compression": "zstd",
        "compression_level": config.compression_level,
        "bloom_filter_options": filters or None,
        "sorting_columns": [pq.SortingColumn(schema.get_field_index(name)) for name in order] or None,
    }
