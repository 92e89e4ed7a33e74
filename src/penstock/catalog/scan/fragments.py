"""Planned files as an Arrow dataset: each file carries what the catalog has proved of its rows.

Arrow leaves a file out only when a filter contradicts those guarantees, then row groups by the file's own statistics,
and filters the rows that are left. So nothing is pruned that is not proved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.types as pat
from pyarrow import fs

from penstock.catalog.format.data_file import DataFile
from penstock.catalog.format.statistics import ColumnStats
from penstock.catalog.scan.object_file import ObjectFiles
from penstock.catalog.scan.row_filter import conjunction, moment

__all__ = ["file_dataset", "guarantee", "references"]


@lru_cache(maxsize=64)
def _format(repeated: tuple[str, ...]) -> ds.ParquetFileFormat:
    """Parquet, with columns that are handed on as their distinct values and a number for each row."""
    return ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(dictionary_columns=list(repeated)),
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True),
    )


def file_dataset(
    files: ObjectFiles,
    planned: Sequence[DataFile],
    schema: pa.Schema,
    *,
    time_column: str | None,
    columns: Collection[str] = (),
    proved: bool = True,
) -> ds.FileSystemDataset:
    """The files with the guarantees of their times and of `columns`, which are those that a filter speaks of.

    Without a filter to come, nothing has to be `proved` of them.
    """
    files.add(planned)
    system = fs.PyFileSystem(files)
    parquet = _format(tuple(field.name for field in schema if _is_coded_text(field.type)))
    fragments = [
        parquet.make_fragment(
            file.path,
            filesystem=system,
            partition_expression=guarantee(file, schema, time_column, columns) if proved else None,
        )
        for file in planned
    ]
    return ds.FileSystemDataset(fragments, schema, parquet, system)


def guarantee(
    file: DataFile, schema: pa.Schema, time_column: str | None, columns: Collection[str] = ()
) -> pc.Expression | None:
    """What holds for every row of a file."""
    proved: list[pc.Expression | None] = []
    if time_column is not None and time_column in schema.names:
        kind = schema.field(time_column).type
        if pat.is_timestamp(kind):
            low, high = moment(kind, file.min_timestamp), moment(kind, file.max_timestamp)
            column = pc.field(time_column)
            proved.append(((column >= low) & (column <= high)) | column.is_null())
    known = [name for name in columns if name != time_column and name in schema.names and name in file.column_stats]
    return conjunction([*proved, *(_bounds(schema.field(name), file.column_stats[name]) for name in known)])


def references(filter: pc.Expression, schema: pa.Schema, columns: Collection[str]) -> list[str]:
    """Those of `columns` that a filter speaks of: it cannot be bound to a schema that lacks one of them."""
    found = []
    for name in columns:
        place = schema.get_field_index(name)
        if place < 0:
            continue
        try:
            ds.dataset(schema.remove(place).empty_table()).scanner(filter=filter)
        except (pa.ArrowException, KeyError):
            found.append(name)
    return found


def _is_coded_text(kind: Any) -> bool:
    return pat.is_dictionary(kind) and pat.is_string(kind.value_type)


def _bounds(field: pa.Field[pa.DataType], stats: ColumnStats) -> pc.Expression | None:
    """Bounds of text, whole numbers and truth values. Floats prove nothing here: engines disagree about NaN."""
    column, kind = pc.field(field.name), field.type
    if stats.all_null:
        return column.is_null()
    fits = {str: pat.is_string(kind), int: pat.is_integer(kind) or pat.is_timestamp(kind), bool: pat.is_boolean(kind)}
    ends: list[pc.Expression | None] = []
    for bound, is_low in ((stats.min, True), (stats.max, False)):
        if bound is None or not fits.get(type(bound), False):
            continue
        try:
            edge = moment(kind, int(bound)) if pat.is_timestamp(kind) else pa.scalar(bound, kind)
        except (pa.ArrowException, OverflowError):
            continue
        ends.append(column >= edge if is_low else column <= edge)
    proved = conjunction(ends)
    return proved if proved is None or not stats.has_nulls else proved | column.is_null()
