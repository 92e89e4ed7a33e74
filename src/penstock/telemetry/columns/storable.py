"""Which columns a table of your own can have: those that Parquet holds and that every engine reads again.

Arrow has types that Parquet has not, and types that can be written and then make a whole table unreadable. Both are
refused when they come, with the column named, so that a sender hears of it; nothing is cast in silence. What was
acknowledged nevertheless is put aside when it lands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from penstock.errors import InvalidInput
from penstock.telemetry.columns.building import Ints, lists, pc

__all__ = ["check_storable", "rows_with_repeated_keys", "same_but_for_case", "unstorable"]

# Lists in Parquet take two levels each, and its readers stop at a hundred.
_DEPTH_MAX: Final = 32
_NAME_BYTES_MAX: Final = 4096


def check_storable(table: pa.Table) -> None:
    """`InvalidInput` names the column that no table can have, and why."""
    if reason := unstorable(table.schema):
        raise InvalidInput("the rows cannot be kept", reason, "rename or cast that column")
    for name in table.schema.names:
        if rows_with_repeated_keys(table.column(name)).any():
            raise InvalidInput(
                "the rows cannot be kept",
                f"column {name!r} has a map with a duplicate key",
                "remove duplicate keys",
            )


def unstorable(schema: pa.Schema) -> str:
    """Why no table can have these columns; empty if one can."""
    if reason := _wrong_name(schema.names):
        return reason
    if pair := same_but_for_case(schema.names):
        return f"columns {pair[0]!r} and {pair[1]!r} differ in case alone, which SQL does not tell apart"
    for field in schema:
        if reason := _wrong_type(field.type, 0):
            return f"column {field.name!r} has type {str(field.type)[:200]}: {reason}"
    return ""


def same_but_for_case(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that SQL takes for one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            return other, name
    return None


def _wrong_name(names: Iterable[str]) -> str:
    for name in names:
        if not name:
            return "a column has no name"
        if "\0" in name:
            return f"the name of column {name!r} has a null character"
        if len(name.encode(errors="replace")) > _NAME_BYTES_MAX:
            return f"the name of column {name[:40]!r}… has more than {_NAME_BYTES_MAX:,} bytes"
    return ""


def _wrong_type(given: Any, depth: int) -> str:
    kind = given.storage_type if isinstance(given, pa.BaseExtensionType) else given
    if depth > _DEPTH_MAX:
        return f"it is nested more than {_DEPTH_MAX} levels deep"
    if pat.is_struct(kind):
        names = [field.name for field in kind]
        if not names:
            return "it has structs without fields"
        if len(set(names)) != len(names):
            return "it has structs with two fields of one name"
    if pat.is_fixed_size_list(kind) and kind.list_size < 1:
        return "it has lists of the fixed size 0"
    reason = _wrong_scalar(kind)
    return reason or next((found for one in _inner(kind) if (found := _wrong_type(one, depth + 1))), "")


def _wrong_scalar(kind: Any) -> str:
    if pat.is_decimal(kind) and (pat.is_decimal256(kind) or kind.scale < 0):
        return "decimals have 38 digits at most and no negative scale"
    if pat.is_dictionary(kind) and pat.is_nested(kind.value_type):
        return "the values of a dictionary cannot be nested"
    if pat.is_list_view(kind) or pat.is_large_list_view(kind):
        return "views of lists are read wrong by some engines; plain lists are not"
    if pat.is_float16(kind) or pat.is_interval(kind) or pat.is_union(kind) or pat.is_run_end_encoded(kind):
        return "Parquet has no such type"
    return ""


def _inner(kind: Any) -> list[Any]:
    """The types within a type."""
    if pat.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(place).type for place in range(kind.num_fields)] if pat.is_nested(kind) else []


# Maps -----------------------------------------------------------------------------------------------------------


def rows_with_repeated_keys(column: Any) -> npt.NDArray[np.bool_]:
    """Which rows hold a map, however deep, in which a key occurs twice. Engines refuse a whole table for one of them."""
    if column.null_count == len(column) or not _has_maps(column.type):
        # Most columns have no maps, and most of those that have hold nothing in the rows of a small tenant.
        return np.zeros(len(column), np.bool_)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [_repeating(chunk) for chunk in chunks]
    return np.concatenate(found) if found else np.zeros(0, np.bool_)


def _repeating(array: Any) -> npt.NDArray[np.bool_]:
    kind = array.type
    rows = np.zeros(len(array), np.bool_)
    if not _has_maps(kind) or not len(array):
        return rows
    if isinstance(array, pa.ExtensionArray):
        return _repeating(array.storage)
    if pat.is_dictionary(kind):
        return _of_coded(_repeating(array.dictionary), array.indices)
    if pat.is_struct(kind):
        for part in array.flatten():
            rows |= _repeating(part)
        return rows
    entries, offsets = _opened(array)
    parents = np.repeat(np.arange(len(array)), np.diff(offsets))
    rows[parents[_repeating(entries)]] = True
    if pat.is_map(kind):
        rows[_parents_with_equal(pc.struct_field(entries, [0]), parents)] = True
    return rows


def _has_maps(kind: Any) -> bool:
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if kind.num_fields == 0 and not pat.is_dictionary(kind):
        return False
    return pat.is_map(kind) or any(_has_maps(one) for one in _inner(kind))


def _of_coded(values: npt.NDArray[np.bool_], indices: Any) -> npt.NDArray[np.bool_]:
    if not values.any():
        return np.zeros(len(indices), np.bool_)
    found = values[np.asarray(pc.fill_null(indices, 0), np.int64)]
    found[np.asarray(indices.is_null())] = False
    return found


def _opened(array: Any) -> tuple[Any, Ints]:
    """The entries of lists or maps; those of a map as structs."""
    if pat.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    return lists(array)


def _parents_with_equal(keys: Any, parents: Ints) -> Ints:
    """The parents that have one key twice."""
    if pat.is_nested(keys.type):
        # Keys that are structs or lists are rare: their text tells them apart.
        keys = pa.array([repr(one) for one in keys.to_pylist()], pa.string())
    codes = np.asarray(pc.dictionary_encode(keys, null_encoding="encode").indices, np.int64)
    places = np.sort(parents * (int(codes.max(initial=0)) + 1) + codes)
    twice = places[1:][np.diff(places) == 0]
    return np.asarray(twice // (int(codes.max(initial=0)) + 1), np.int64)
