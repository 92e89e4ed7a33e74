"""Rows by the queue that takes them: of several tenants' rows, those of each shard. Pure, and the same each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from penstock.buffer import ShardLayout

__all__ = ["rows_by_shard"]

compute: Any = pyarrow.compute

_TENANT: Final = "tenant"
# Slots of requests as they came: rows of the table behind it.
_AS_THEY_CAME: Final = "otlp_"

Tables = Mapping[str, Sequence[pa.Table]]


def rows_by_shard(tables: Tables, layout: ShardLayout) -> dict[int, dict[str, list[pa.Table]]]:
    """Tables of each shard that has rows, by the number of the shard. Without any rows, everything is the first one's."""
    if layout.shards == 1:
        return {0: {name: list(some) for name, some in tables.items()}}
    found: dict[int, dict[str, list[pa.Table]]] = {}
    for name, some in tables.items():
        for table in some:
            for shard, rows in _split(name, table, layout):
                found.setdefault(shard, {}).setdefault(name, []).append(rows)
    return dict(sorted(found.items())) or {0: {name: list(some) for name, some in tables.items()}}


def _split(name: str, table: pa.Table, layout: ShardLayout) -> list[tuple[int, pa.Table]]:
    if not table.num_rows:
        return []
    name = name.removeprefix(_AS_THEY_CAME)
    # Whoever lands them takes rows without a text as tenant for nobody's too.
    if _TENANT not in table.schema.names or not pa.types.is_string(table.schema.field(_TENANT).type):
        return [(layout.shard_of("", name), table)]
    column = table.column(_TENANT)
    tenants = compute.unique(column).to_pylist()
    owners: dict[int, list[str | None]] = {}
    for tenant in tenants:
        owners.setdefault(layout.shard_of(tenant or "", name), []).append(tenant)
    if len(owners) == 1:
        return [(next(iter(owners)), table)]
    return [
        (shard, table.filter(compute.is_in(column, value_set=pa.array(own, pa.string()))))
        for shard, own in owners.items()
    ]
