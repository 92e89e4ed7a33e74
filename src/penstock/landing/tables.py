"""Rows of many batches put together by table, and those that do not fit put aside with the reason. Pure.

Columns that are new are united. A column that comes with another type than its table has is a conflict: the rows of
that stream are quarantined, never cast. Tables of signals have the columns of their schema, and more where a later
release or a client adds some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from penstock.landing.port import KnownTables
from penstock.telemetry import plain_views, same_but_for_case, schema_of, signal_of, unstorable, whole_table

__all__ = ["UNFORESEEN", "Gathered", "Misfit", "gather_tables", "merge_known"]

compute: Any = pyarrow.compute
# What work on columns raises where nobody foresaw it; Arrow has an OSError for what Parquet cannot hold.
UNFORESEEN: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError, pa.ArrowException)
# The type of a column without values, which states of an earlier release may have kept for one.
_NOTHING: Final = "null"
# What the time series take.
_NAME_BYTES_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Misfit:
    """Rows that do not fit their table."""

    name: str
    tenant: str
    reason: str
    rows: pa.Table


@dataclass(slots=True)
class Gathered:
    """Rows by tenant and table, each under one schema; what did not fit; and the columns that are known now."""

    tables: dict[tuple[str, str], pa.Table] = field(default_factory=dict)
    misfits: list[Misfit] = field(default_factory=list)
    known: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)


def gather_tables(found: Iterable[tuple[str, pa.Table]], known: KnownTables) -> Gathered:
    """Streams in the order in which they came; an earlier one decides the type of a column that nobody knew."""
    gathered = Gathered()
    parts: dict[tuple[str, str], list[pa.Table]] = {}
    for name, table in found:
        try:
            plain = plain_views(table)
            shares, views = list(_by_tenant(plain)), _views(table, plain)
        except UNFORESEEN as error:
            # It has been acknowledged: a job that stopped at it would stop there again, with everybody's rows behind.
            reason = f"its rows cannot be shared out by tenant: {error}"[:300]
            gathered.misfits.append(Misfit(name, "", reason, table))
            continue
        for tenant, share in shares:
            key = (tenant, name)
            columns = gathered.known.setdefault(key, dict(known.get(key) or _schema_columns(name)))
            rows = _with_known_views(share, views, columns)
            reason = _long_name(tenant, name) or _conflict(rows.schema, columns)
            if reason:
                gathered.misfits.append(Misfit(name, tenant, reason, rows))
                continue
            # A column that holds nothing yet has no type: the first rows that have values decide.
            decided = {one.name: str(one.type) for one in rows.schema if not pa.types.is_null(one.type)}
            columns.update({name: kind for name, kind in decided.items() if columns.get(name, _NOTHING) == _NOTHING})
            parts.setdefault(key, []).append(rows.replace_schema_metadata(None))
    for (tenant, name), tables in parts.items():
        try:
            united = pa.concat_tables(tables, promote_options="default")
        except pa.ArrowException as error:
            # Types of one name that Arrow tells apart.
            reason = f"rows of one table cannot be put together: {error}"[:300]
            gathered.misfits += [Misfit(name, tenant, reason, rows) for rows in tables]
            continue
        gathered.tables[tenant, name] = whole_table(united, name)
    # What is in a schema needs no memory; nor does a table of which nothing was taken.
    gathered.known = {
        key: columns
        for key, columns in gathered.known.items()
        if key in gathered.tables and columns != _schema_columns(key[1])
    }
    return gathered


def merge_known(into: dict[tuple[str, str], dict[str, str]], more: Mapping[tuple[str, str], Mapping[str, str]]) -> bool:
    """Take up the columns that a task met; False when one of them has another type already: nothing was taken up."""
    for key, columns in more.items():
        there = into.get(key, {})
        if any(there.get(name, kind) not in (kind, _NOTHING) for name, kind in columns.items()):
            return False
    for key, columns in more.items():
        into[key] = {**into.get(key, {}), **columns}
    return True


def _views(table: pa.Table, plain: pa.Table) -> dict[str, pa.DataType]:
    """The types of columns that were sent as views; nearly always there are none."""
    if plain is table:
        return {}
    return {sent.name: sent.type for sent, kept in zip(table.schema, plain.schema, strict=True) if sent != kept}


def _with_known_views(rows: pa.Table, views: Mapping[str, pa.DataType], columns: Mapping[str, str]) -> pa.Table:
    """Views as they were sent, where a table has them since before they were made plain."""
    for name, kind in views.items():
        if columns.get(name) == str(kind):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(place).with_type(kind), rows.column(place).cast(kind))
    return rows


def _by_tenant(table: pa.Table) -> Iterable[tuple[str, pa.Table]]:
    """Rows of each tenant; of a table without one, all are nobody's."""
    place = table.schema.get_field_index("tenant")
    if place < 0 or not _is_text(table.schema.field(place).type):
        if place >= 0:
            table = table.drop_columns(["tenant"])
        nobody: Any = pa.repeat("", table.num_rows)
        yield "", table.add_column(0, "tenant", nobody)
        return
    if not pa.types.is_string(table.schema.field(place).type):
        table = table.set_column(place, "tenant", table.column(place).cast(pa.string()))
    coded = compute.fill_null(table.column("tenant"), "").combine_chunks().dictionary_encode()
    tenants = coded.dictionary.to_pylist()
    if len(tenants) == 1:
        yield tenants[0], table
        return
    # Each row is copied once, however many tenants there are.
    numbers = np.asarray(coded.indices)
    order: Any = pa.array(np.argsort(numbers, kind="stable"))
    rows = table.take(order)
    ends = np.cumsum(np.bincount(numbers, minlength=len(tenants)))
    for tenant, start, end in zip(tenants, [0, *ends], ends, strict=False):
        yield tenant, rows.slice(start, end - start)


def _is_text(kind: Any) -> bool:
    """Whether values are strings, in whatever layout a producer has them."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _schema_columns(name: str) -> dict[str, str]:
    signal = signal_of(name)
    return {} if signal is None else {one.name: str(one.type) for one in schema_of(signal)}


def _long_name(tenant: str, name: str) -> str:
    for what, given in (("tenant", tenant), ("table", name)):
        if len(given.encode()) > _NAME_BYTES_MAX:
            return f"the name of its {what} has more than {_NAME_BYTES_MAX:,} bytes"
    return ""


def _conflict(schema: pa.Schema, columns: Mapping[str, str]) -> str:
    if reason := unstorable(schema):
        return reason
    pair = same_but_for_case([*columns, *schema.names])
    # Of a table that has both since before this was looked at, nothing is refused now.
    if pair is not None and same_but_for_case(columns) is None:
        return f"column {pair[1]!r} differs from its table's {pair[0]!r} in case alone"
    for one in schema:
        kind = columns.get(one.name)
        if kind not in (None, _NOTHING, str(one.type)) and not pa.types.is_null(one.type):
            return f"column {one.name!r} has type {one.type}, and in its table {kind}"
    return ""
