"""Columns of maps that repeat, as numbers of distinct maps.

Rows of metrics and spans carry the same labels and resources again and again. Hashed once, a map is a number of four
bytes: rows are sorted, partitioned and mapped to series by it, and Parquet is given keys and values as dictionaries.
The maps that a reader finds in a file are the same. A coded column is an Arrow dictionary whose values are maps, none
of them null; a row without a map has no number.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.telemetry.columns.attributes import AttributeColumns
from penstock.telemetry.columns.building import Ints, pc
from penstock.telemetry.columns.label_sets import distinct_sets, map_entries

__all__ = ["coded_maps", "for_parquet", "is_coded", "map_numbers", "plain_maps", "plain_schema"]

_MAP: Final[Any] = pa.map_(pa.string(), pa.string())


def coded_maps(table: pa.Table) -> pa.Table:
    """The table with its columns of maps of strings as numbers of distinct maps; a map with a null value stays as it is."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        # Of a column that holds nothing, numbers cost more than they spare: most rows of small tenants have such.
        if field.type != _MAP or column.null_count == table.num_rows:
            continue
        entries = [map_entries(chunk) for chunk in column.chunks if len(chunk)]
        if any(one.keys.null_count or one.values.null_count for one in entries):
            continue
        numbers, first = distinct_sets(*entries)
        mask = np.asarray(column.is_null()) if column.null_count else None
        indices = pa.array(numbers, pa.int32(), mask=mask)
        coded = pa.DictionaryArray.from_arrays(indices, _heads(entries, first))
        table = table.set_column(place, field.with_type(coded.type), coded)
    return table


def is_coded(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.DictionaryType) and kind.value_type == _MAP


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """With maps in the place of numbers."""
    fields = [field.with_type(field.type.value_type) if is_coded(field.type) else field for field in schema]
    metadata: Any = schema.metadata
    return pa.schema(fields, metadata)


def plain_maps(table: pa.Table) -> pa.Table:
    """The rows as they were."""
    for place, field in enumerate(plain_schema(table.schema)):
        if is_coded(table.schema.field(place).type):
            coded = _one(table.column(place))
            table = table.set_column(place, field, coded.dictionary.take(coded.indices))
    return table


def for_parquet(table: pa.Table) -> pa.Table:
    """Coded columns as maps whose keys and values are dictionaries, which hold what these rows need and no more."""
    for place, field in enumerate(table.schema):
        if is_coded(field.type):
            maps = _dictionary_maps(_one(table.column(place)))
            table = table.set_column(place, field.with_type(maps.type), maps)
    return table


def map_numbers(column: Any) -> tuple[AttributeColumns, Ints, Ints]:
    """Some maps, for each row the number of its map among the distinct ones, and where among the maps each of those is.

    Of a coded column some numbers may belong to no row. A row without a map has the number of the empty one.
    """
    if is_coded(column.type):
        entries = map_entries(column.dictionary)
        numbers = column.indices
        if numbers.null_count:
            empty = np.flatnonzero(np.diff(entries.offsets) == 0)
            numbers = numbers.fill_null(int(empty[0]))
        return entries, np.asarray(numbers, np.int64), np.arange(len(column.dictionary))
    entries = map_entries(column)
    return entries, *distinct_sets(entries)


def _heads(chunks: list[AttributeColumns], first: Ints) -> Any:
    """The maps at some rows, in their order, taken from each chunk: Arrow would put all chunks together before."""
    found, start = [], 0
    for chunk in chunks:
        rows = len(chunk.offsets) - 1
        mine = first[(first >= start) & (first < start + rows)] - start
        # A copy of a whole chunk is spared where nothing in it repeats.
        if len(mine):
            found.append((chunk if len(mine) == rows else chunk.taken(mine)).map())
        start += rows
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


# Writing --------------------------------------------------------------------------------------------------------


def _dictionary_maps(coded: Any) -> Any:
    numbers, missing = _filled(coded.indices)
    is_used = np.zeros(len(coded.dictionary), np.bool_)
    is_used[numbers] = True
    entries = map_entries(coded.dictionary.filter(pa.array(is_used)))
    keys, values = pc.dictionary_encode(entries.keys), pc.dictionary_encode(entries.values)
    mine = (np.cumsum(is_used) - 1)[numbers]
    lengths = np.diff(entries.offsets)[mine]
    if missing is not None:
        lengths[missing] = 0
    offsets = np.zeros(len(mine) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    at = np.arange(offsets[-1], dtype=np.int32)
    at += np.repeat((entries.offsets[:-1][mine] - offsets[:-1]).astype(np.int32), lengths)
    bounds: Any = pa.array(offsets, pa.int32(), mask=None if missing is None else np.append(missing, False))
    return pa.MapArray.from_arrays(bounds, _taken(keys, at), _taken(values, at))


def _filled(indices: Any) -> tuple[Ints, npt.NDArray[np.bool_] | None]:
    """Numbers with 0 for rows that have none, and which those are."""
    if not indices.null_count:
        return np.asarray(indices), None
    return np.asarray(indices.fill_null(0)), np.asarray(indices.is_null())


def _taken(encoded: Any, at: Any) -> Any:
    return pa.DictionaryArray.from_arrays(np.asarray(encoded.indices)[at], encoded.dictionary)


def _one(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
