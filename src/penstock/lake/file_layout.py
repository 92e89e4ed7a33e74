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
    """How merges are done, and what a compactor does beside them."""

    # Merges at once in one process; on Spark, those of one job.
    tasks_at_once: int = 2
    # Rows of one merge that are held in memory, decoded.
    memory_bytes: int = 256 * MIB
    row_group_rows: int = 131_072
    # Of zstd. Merged files are read for years and written once.
    compression_level: int = 3
    # Chance that a bloom filter says yes to a value that is not there; 0 writes none.
    bloom_probability: float = 0.01
    # Merges that one pass takes on before it looks again what is due.
    tasks_per_pass: int = 16
    # How long `--follow` waits when nothing is due.
    pause_seconds: float = 30.0
    # Rows older than this are dropped, file by file; 0 keeps everything.
    retention_seconds: float = 0.0
    # How often `--follow` drops what is too old, archives closed days and deletes removed files; 0 never does.
    upkeep_seconds: float = 600.0
    # Outputs of merges that died lie below it and are deleted past the catalog's age floor.
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
