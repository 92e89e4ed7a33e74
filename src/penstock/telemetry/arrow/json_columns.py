"""What JSON has no types for: moments, numbers of another width, and maps. Pure, and nothing is lost on the way.

Arrow's parser takes whole seconds for times and leaves fractions of them as text, so rows of one sender would have two
types; and it makes a struct of an object. What cannot be told exactly is left as it came, for the caller to refuse.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from penstock.errors import InvalidInput
from penstock.telemetry.columns.schemas import NANOSECONDS, TIME

__all__ = ["moments", "signal_columns"]

_STRINGS: Final[Any] = pa.map_(pa.string(), pa.string())
# Where it is worth trying: of texts that are no times, the first is mostly enough to know.
_TIME_TEXT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def moments(table: pa.Table) -> pa.Table:
    """Times as nanoseconds of UTC, which is what one without a zone counts as; `InvalidInput` for a `time` beyond them."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pat.is_timestamp(field.type):
            found = _cast(column, pa.timestamp("ns"))
            if found is None and field.name == TIME:
                raise InvalidInput("a row has a time beyond the years 1677 to 2262", "", "correct it")
        elif pat.is_string(field.type) and _begins_as_time(column):
            # Either all name a zone or none does: mixed ones stay text.
            found = _cast(column, NANOSECONDS) or _cast(column, pa.timestamp("ns"))
        else:
            continue
        # Seconds reach the year 9999, which some write for never.
        if found is not None:
            table = table.set_column(place, field.with_type(NANOSECONDS), found.cast(NANOSECONDS))
    return table


def _begins_as_time(column: Any) -> bool:
    first = next((value.as_py() for chunk in column.chunks for value in chunk.drop_null()[:1]), "")
    return _TIME_TEXT.match(first) is not None


def _cast(column: Any, kind: Any) -> Any:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return None


def signal_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns in the types of a signal's schema, where JSON cannot tell them from others."""
    for place, field in enumerate(table.schema):
        at = schema.get_field_index(field.name)
        kind: Any = field.type if at < 0 else schema.field(at).type
        if field.type == kind:
            continue
        column = table.column(place)
        if kind == _STRINGS and _is_object_of_texts(field.type):
            table = table.set_column(place, field.with_type(kind), _maps(column))
        elif _is_widened(field.type, kind):
            try:
                table = table.set_column(place, field.with_type(kind), column.cast(kind))
            except pa.ArrowInvalid:
                # A number that the column cannot hold exactly.
                continue
    return table


def _is_widened(given: Any, wanted: Any) -> bool:
    if pat.is_list(given) and pat.is_list(wanted):
        return _is_widened(given.value_type, wanted.value_type)
    if pat.is_null(given):
        return True
    return pat.is_integer(given) and (pat.is_floating(wanted) or pat.is_integer(wanted))


def _is_object_of_texts(kind: Any) -> bool:
    return pat.is_struct(kind) and all(pat.is_string(one.type) or pat.is_null(one.type) for one in kind)


def _maps(column: Any) -> Any:
    """Objects as maps, their keys in order; a key without a value in a row is not in its map."""
    objects = column.combine_chunks()
    names = sorted(one.name for one in objects.type)
    rows = len(objects)
    texts: Any = [objects.field(name).cast(pa.string()) for name in names]
    values = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
    # Row by row: the texts lie name by name.
    order: Any = pa.array(np.arange(len(names) * rows).reshape(len(names), rows).T.ravel())
    values = values.take(order)
    there = np.asarray(values.is_valid()) & np.repeat(np.asarray(objects.is_valid()), len(names))
    counts = there.reshape(rows, len(names)).sum(axis=1) if names else np.zeros(rows, np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    places: Any = pa.array(np.tile(np.arange(len(names)), rows)[there], pa.int64())
    keys = pa.array(names, pa.string()).take(places)
    mask = np.append(~np.asarray(objects.is_valid()), False)
    bounds: Any = pa.array(offsets, pa.int32(), mask=mask)
    return pa.MapArray.from_arrays(bounds, keys, values.filter(pa.array(there)))
