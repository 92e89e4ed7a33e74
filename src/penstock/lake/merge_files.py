"""One merge: the rows of several data files into one, sorted, without loss.

Small merges are done in memory, in one sort. Others go through a k-way merge, with as many rows of each source in memory
as the bound allows, and a file on the local disk. The target is uploaded under a name that nobody used before, and
counts for nothing until the catalog lists it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from penstock.catalog import DataFile, ObjectFiles, damaged, unified
from penstock.errors import Corrupt, PenstockError
from penstock.lake.file_layout import CompactionConfig, parquet_options, sort_columns
from penstock.lake.merge import Run, Unsorted, merged
from penstock.lake.merged_stats import merged_stats
from penstock.lake.sort_keys import order_of, packed_keys

__all__ = ["MergeWork", "Upload", "merge_files"]

# Gets the key's path and the bytes.
Upload = Callable[[str, memoryview], None]
# A source up to this size is read in one request.
_WHOLE_BYTES: Final = 32 * 1024 * 1024
# Arrow in memory beside what a footer says of its uncompressed size: offsets, validity, and the copy of a sort.
_GROWTH: Final = 3
_BATCH_ROWS: Final = (1024, 65_536)
_STREAM_BYTES: Final = (16 * 1024, 1024 * 1024)


class MergeWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one task. Travels to executors as JSON."""

    sources: tuple[DataFile, ...]
    target: str
    level: int
    config: CompactionConfig


@dataclass
class _Source:
    file: DataFile
    opened: pq.ParquetFile
    schema: pa.Schema

    @property
    def uncompressed(self) -> int:
        meta = self.opened.metadata
        return sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))


def merge_files(files: ObjectFiles, work: MergeWork, upload: Upload) -> DataFile:
    """Merge and upload; the target as the catalog is to list it."""
    files.add(work.sources)
    sources = [_opened(files, file) for file in work.sources]
    try:
        table = work.sources[0].table
        schema = unified({source.file.path: source.schema for source in sources})
        order = sort_columns(table, schema)
        options = parquet_options(table, schema, order, work.config)
        rows = sum(source.opened.metadata.num_rows for source in sources)
        if _GROWTH * sum(source.uncompressed for source in sources) <= work.config.memory_bytes:
            written, size = _in_memory(sources, schema, order, options, work, upload)
        else:
            written, size = _by_runs(sources, schema, order, options, work, upload)
    finally:
        for source in sources:
            source.opened.close()
    if written != rows:
        raise Corrupt(f"the merge into {work.target!r} has {written:,} rows", f"its sources have {rows:,}")
    return _target(work, sources, rows, size)


def _in_memory(
    sources: Sequence[_Source],
    schema: pa.Schema,
    order: list[str],
    options: dict[str, Any],
    work: MergeWork,
    upload: Upload,
) -> tuple[int, int]:
    tables = [_conformed(_read(source, None), schema) for source in sources]
    table = pa.concat_tables(tables)
    if order:
        table = table.combine_chunks().take(order_of(packed_keys(table, order)))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, **options) as writer:
        writer.write_table(table, work.config.row_group_rows)
    body = memoryview(sink.getvalue())
    upload(work.target, body)
    return table.num_rows, len(body)


def _by_runs(
    sources: Sequence[_Source],
    schema: pa.Schema,
    order: list[str],
    options: dict[str, Any],
    work: MergeWork,
    upload: Upload,
) -> tuple[int, int]:
    """Files that turn out not to be sorted are cut into row groups, each sorted by itself, and it begins again."""
    unsorted: set[str] = set()
    while True:
        runs = [run for source in sources for run in _runs(source, schema, order, len(sources), unsorted, work.config)]
        try:
            with TemporaryDirectory(prefix="penstock-merge-") as folder:
                path = Path(folder, "target.parquet")
                written = _write(path, merged(runs, schema, order), schema, options, work.config.row_group_rows)
                with path.open("rb") as opened:
                    mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
                # Never closed here: a store's own threads may hold the bytes a little longer. It goes with the last of
                # those who do, and the file, without a name by then, with it.
                upload(work.target, memoryview(mapped))
                return written, len(mapped)
        except Unsorted as found:
            if found.name in unsorted:
                raise
            unsorted.add(found.name)


def _write(path: Path, tables: Iterator[pa.Table], schema: pa.Schema, options: dict[str, Any], group_rows: int) -> int:
    """Row groups of full size, whatever the sizes of the pieces."""
    written = 0
    pending: list[pa.Table] = []
    with pq.ParquetWriter(str(path), schema, **options) as writer:
        for table in tables:
            pending.append(table)
            if sum(piece.num_rows for piece in pending) >= group_rows:
                whole = pa.concat_tables(pending)
                for start in range(0, whole.num_rows - group_rows + 1, group_rows):
                    writer.write_table(whole.slice(start, group_rows), group_rows)
                    written += group_rows
                pending = [whole.slice(whole.num_rows - whole.num_rows % group_rows)]
        rest = pa.concat_tables(pending) if pending else schema.empty_table()
        if rest.num_rows or not written:
            writer.write_table(rest, group_rows)
    return written + rest.num_rows


def _runs(
    source: _Source,
    schema: pa.Schema,
    order: list[str],
    count: int,
    unsorted: set[str],
    config: CompactionConfig,
) -> Iterator[Run]:
    path, meta = source.file.path, source.opened.metadata
    if path in unsorted:
        for at in range(meta.num_row_groups):
            yield Run(path, iter([_sorted(_conformed(_read(source, [at]), schema), order)]))
        return
    row_bytes = max(1, _GROWTH * source.uncompressed // max(1, meta.num_rows))
    rows = min(max(config.memory_bytes // (count * row_bytes), _BATCH_ROWS[0]), _BATCH_ROWS[1])
    batches = (_conformed(pa.Table.from_batches([batch]), schema) for batch in source.opened.iter_batches(rows))
    is_by_time = bool(order) and order[0] == "time" and pat.is_timestamp(schema.field("time").type)
    yield Run(path, batches, _begins(source.file, schema) if is_by_time else None)


def _begins(file: DataFile, schema: pa.Schema) -> int:
    kind: Any = schema.field("time").type
    return file.min_timestamp // {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[kind.unit]


def _sorted(table: pa.Table, order: list[str]) -> pa.Table:
    return table.combine_chunks().take(order_of(packed_keys(table, order))) if order else table


def _read(source: _Source, groups: list[int] | None) -> pa.Table:
    try:
        return source.opened.read() if groups is None else source.opened.read_row_groups(groups)
    except PenstockError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise damaged(source.file.path, error) from error


def _opened(files: ObjectFiles, file: DataFile) -> _Source:
    try:
        if file.size_bytes <= _WHOLE_BYTES:
            opened = pq.ParquetFile(pa.BufferReader(files.whole(file.path)))
        else:
            opened = pq.ParquetFile(files.open_input_file(file.path), buffer_size=_STREAM_BYTES[1])
        return _Source(file, opened, opened.schema_arrow.remove_metadata())
    except PenstockError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise damaged(file.path, error) from error


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows with the columns of all sources; what was missing is null."""
    if table.schema.equals(schema):
        return table.replace_schema_metadata(None)
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _target(work: MergeWork, sources: Sequence[_Source], rows: int, size: int) -> DataFile:
    files = work.sources
    columns = {source.file.path: frozenset(source.schema.names) for source in sources}
    return DataFile(
        path=work.target,
        min_timestamp=min(file.min_timestamp for file in files),
        max_timestamp=max(file.max_timestamp for file in files),
        row_count=rows,
        size_bytes=size,
        level=work.level,
        shard_id=files[0].shard_id,
        tenant=files[0].tenant,
        table=files[0].table,
        column_stats=merged_stats(files, columns),
    )
