"""Arrow's views of strings and bytes as plain columns: the same values in the layout that every kernel takes.

Polars and others send views by default. Rows of them can be neither sorted nor taken, so tables do not keep them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

__all__ = ["plain_views"]


def plain_views(table: pa.Table) -> pa.Table:
    """The table with strings and bytes in the place of views of them, however deep."""
    for place, field in enumerate(table.schema):
        kind = _plain(field.type)
        if kind != field.type:
            table = table.set_column(place, field.with_type(kind), table.column(place).cast(kind))
    return table


def _plain(kind: Any) -> Any:
    if pat.is_string_view(kind):
        return pa.string()
    if pat.is_binary_view(kind):
        return pa.binary()
    if pat.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    if not pat.is_nested(kind):
        return kind
    inner = [kind.field(place) for place in range(kind.num_fields)]
    return _rebuilt(kind, [one.with_type(_plain(one.type)) for one in inner])


def _rebuilt(kind: Any, fields: list[Any]) -> Any:
    if pat.is_struct(kind):
        return pa.struct(fields)
    if pat.is_map(kind):
        entries = fields[0].type
        return pa.map_(entries.field(0), entries.field(1), kind.keys_sorted)
    if pat.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    if pat.is_large_list(kind):
        return pa.large_list(fields[0])
    return pa.list_(fields[0]) if pat.is_list(kind) else kind
