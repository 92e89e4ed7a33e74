"""Rows as data files: cut by tenant, table and hour, sorted, and written as Parquet with bounds and bloom filters.

Everything here is a pure function: the same rows and the same place in the queue give the same names and the same
bytes, so a batch that is worked on twice overwrites its own files and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InvalidInput
from penstock.telemetry.columns.building import Ints, pc, places, to_ints
from penstock.telemetry.columns.coded_maps import for_parquet, plain_schema
from penstock.telemetry.columns.schemas import TENANT, TIME

__all__ = ["ColumnBounds", "DataFileConfig", "EncodedFile", "FilePlace", "Partition", "encode_files", "partitioned"]

HOUR_NS: Final = 3_600_000_000_000
# What a catalog lists as one file at most is a little more.
_YEAR_HOURS: Final = 24 * 366
# What rows of each table are ordered by; queries of metrics ask for one name, all others for a time.
_ORDERS: Final = {"metrics": ("metric", TIME), "traces": (TIME, "trace_id")}
# Columns that are looked up by value, of which nearly every row has another: bounds would prune nothing.
_BLOOM_COLUMNS: Final = {"traces": ("trace_id", "span_id"), "logs": ("trace_id",)}
# Directories have names of 255 bytes at most, and object stores keys of 1,024.
_SEGMENT_MAX: Final = 180
_SEGMENT_HEAD: Final = 120
_ARROW_SCHEMA: Final = b"ARROW:schema"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DataFileConfig:
    """Layout of Parquet files."""

    # Maximum rows of one file.
    rows_max: int = 2_000_000
    # Rows of one row group.
    row_group_rows: int = 131_072
    # Compression level of zstd.
    compression_level: int = 3
    # False-positive probability of bloom filters; 0 writes none.
    bloom_probability: float = 0.01


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """What the rows of a data file have in common; `hour_ns` is the start of the hour."""

    tenant: str
    table: str
    hour_ns: int


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where in the queue rows come from: the first and last sequence, and which part of the batch."""

    source: str
    first: int
    last: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The minimum and maximum of one column, as Python values; None if there is none or it is unknown."""

    min: int | float | str | bool | None
    max: int | float | str | bool | None
    has_nulls: bool
    has_nan: bool | None = None
    all_null: bool = False
    # "timestamp" for nanoseconds since 1970.
    type: str = ""


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """One data file: its name below the catalog's prefix, its bytes, and what is known of its rows."""

    path: str
    partition: Partition
    body: bytes
    rows: int
    min_time_ns: int
    max_time_ns: int
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict)


def partitioned(
    table: pa.Table, name: str, received_ns: int, partitions_max: int | None = None
) -> list[tuple[Partition, pa.Table]]:
    """The rows by tenant and hour, in that order. Rows of a table without a column of times belong to when they came.

    A tenant whose rows are of more hours than `partitions_max` has them put together by day, then by year: one batch
    with a row an hour for a century would be a million files.
    """
    if table.num_rows == 0:
        return []
    tenants = pc.dictionary_encode(_tenants(table).combine_chunks())
    codes = to_ints(tenants.indices)
    hours = _coarser(row_times(table, received_ns) // HOUR_NS, codes, partitions_max)
    order = np.lexsort((np.arange(len(hours)), hours, codes))
    breaks = np.flatnonzero((np.diff(hours[order]) != 0) | (np.diff(codes[order]) != 0)) + 1
    if not len(breaks):
        return [(Partition(tenants.dictionary[0].as_py(), name, int(hours[0]) * HOUR_NS), table)]
    found = []
    for rows in np.split(order, breaks):
        partition = Partition(tenants.dictionary[int(codes[rows[0]])].as_py(), name, int(hours[rows[0]]) * HOUR_NS)
        found.append((partition, table.take(places(rows))))
    return sorted(found, key=lambda one: one[0])


def _coarser(hours: Ints, codes: Ints, partitions_max: int | None) -> Ints:
    """The hour at which each row's partition begins."""
    if partitions_max is None:
        return hours
    hours = hours.copy()
    for code in np.unique(codes):
        mine = codes == code
        for step in (24, _YEAR_HOURS):
            if len(np.unique(hours[mine])) > partitions_max:
                hours[mine] = hours[mine] // step * step
    return hours


def encode_files(
    partition: Partition,
    table: pa.Table,
    place: FilePlace,
    received_ns: int,
    config: DataFileConfig | None = None,
    first_number: int = 0,
) -> Iterator[EncodedFile]:
    """The rows of one partition as Parquet, sorted; more than one file only when there are very many.

    Files of one partition and place are told apart by their numbers, which begin at `first_number`.
    """
    config = config or DataFileConfig()
    table = _sorted(table, partition.table)
    for number, start in enumerate(range(0, table.num_rows, config.rows_max), first_number):
        yield _encoded(partition, table.slice(start, config.rows_max), place, number, received_ns, config)


def row_times(table: pa.Table, received_ns: int) -> Ints:
    """The time of each row, in nanoseconds."""
    if not has_times(table.schema):
        return np.full(table.num_rows, received_ns, np.int64)
    try:
        times = table.column(TIME).cast(pa.timestamp("ns")).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InvalidInput("a row has a time beyond the year 2262", str(error)[:200]) from error
    return to_ints(pc.fill_null(times, received_ns).combine_chunks())


def has_times(schema: pa.Schema) -> bool:
    """Whether rows have a time of their own: a column `time` that is a timestamp."""
    return TIME in schema.names and pa.types.is_timestamp(schema.field(TIME).type)


def _encoded(
    partition: Partition, table: pa.Table, place: FilePlace, number: int, received_ns: int, config: DataFileConfig
) -> EncodedFile:
    times = row_times(table, received_ns)
    return EncodedFile(
        path_of(partition, place, number),
        partition,
        parquet_bytes(table, partition.table, config),
        table.num_rows,
        int(times.min()),
        int(times.max()),
        {name: bounds for name in table.schema.names if (bounds := _bounds(table.column(name))) is not None},
    )


def path_of(partition: Partition, place: FilePlace, number: int = 0) -> str:
    """`acme/metrics/2026/11/16/21/queue-00000000000000000041-00000000000000000043-0-0.parquet`"""
    hour = _EPOCH + timedelta(hours=partition.hour_ns // HOUR_NS)
    folder = f"{path_segment(partition.tenant)}/{path_segment(partition.table)}/{hour:%Y/%m/%d/%H}"
    return f"{folder}/{path_segment(place.source)}-{place.first:020}-{place.last:020}-{place.part}-{number}.parquet"


def path_segment(name: str) -> str:
    """A name as one segment of a path: what a path cannot carry is written as %XX, and a long name ends in its hash."""
    if not name:
        return "_"
    safe = quote(name, safe="")
    if len(safe) > _SEGMENT_MAX:
        # No other name has this sign in it.
        safe = f"{safe[:_SEGMENT_HEAD]}!{hashlib.sha256(safe.encode()).hexdigest()[:32]}"
    # No segment is a folder's own name or looks hidden, and none is that of no name.
    return f"%{ord(safe[0]):02X}{safe[1:]}" if safe[0] in "._" else safe


def parquet_bytes(table: pa.Table, name: str, config: DataFileConfig) -> bytes:
    """The same bytes for the same rows."""
    sink = pa.BufferOutputStream()
    schema, plain = _written_schema(table.schema), plain_schema(table.schema)
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=config.compression_level,
        # Bounds over the keys or values of all maps of a file leave nothing out, and cost as much as the values.
        write_statistics=[field.name for field in plain if not pa.types.is_nested(field.type)],
        bloom_filter_options=_bloom(table, name, config),
        use_content_defined_chunking=False,
        # Readers of Arrow get the types that rows came with; that keys are written as dictionaries is our affair.
        store_schema=False,
    ) as writer:
        for start in range(0, table.num_rows, config.row_group_rows):
            writer.write_table(for_parquet(table.slice(start, config.row_group_rows)))
        writer.add_key_value_metadata(_footer(plain))
    body: bytes = sink.getvalue().to_pybytes()
    return body


@lru_cache(maxsize=256)
def _written_schema(schema: pa.Schema) -> pa.Schema:
    """As Parquet's writer is given rows; files of one table nearly always have the same."""
    return for_parquet(schema.empty_table()).schema


def _footer(schema: pa.Schema) -> Any:
    """The schema and its metadata, where Arrow looks for them."""
    return {**(schema.metadata or {}), _ARROW_SCHEMA: base64.b64encode(schema.serialize().to_pybytes())}


def _bloom(table: pa.Table, name: str, config: DataFileConfig) -> dict[str, Any] | None:
    if config.bloom_probability <= 0 or not table.num_rows:
        return None
    rows = min(table.num_rows, config.row_group_rows)
    wanted = [column for column in _BLOOM_COLUMNS.get(name, ()) if column in table.schema.names]
    return {column: {"ndv": rows, "fpp": config.bloom_probability} for column in wanted} or None


def _sorted(table: pa.Table, name: str) -> pa.Table:
    """Rows that compare as equal stay in the order in which they came."""
    wanted = [column for column in _ORDERS.get(name, (TIME,)) if column in table.schema.names]
    keys = [column for column in wanted if not pa.types.is_nested(table.schema.field(column).type)]
    if not keys:
        return table
    ranked = table.select(keys).append_column("row", pa.array(np.arange(table.num_rows)))
    try:
        order = pc.sort_indices(ranked, sort_keys=[(key, "ascending") for key in [*keys, "row"]])
    except (pa.ArrowTypeError, pa.ArrowNotImplementedError):
        # A `time` of a type that has no order, in a table of somebody's own.
        return table
    in_order = np.array_equal(np.asarray(order), np.arange(table.num_rows))
    return table if in_order else table.take(order)


def _tenants(table: pa.Table) -> Any:
    if TENANT not in table.schema.names or not _is_text(table.schema.field(TENANT).type):
        raise InvalidInput("rows have no tenant", f"a column {TENANT!r} of strings is needed")
    return pc.fill_null(table.column(TENANT).cast(pa.string()), "")


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _bounds(column: Any) -> ColumnBounds | None:
    """None for columns that cannot be compared: lists, maps, structs, bytes."""
    kind = column.type
    nulls = column.null_count
    if nulls == len(column):
        return ColumnBounds(None, None, has_nulls=True, all_null=True)
    is_float = pa.types.is_floating(kind)
    is_time = pa.types.is_timestamp(kind)
    if not (is_float or is_time or _is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return None
    if is_time:
        try:
            column = column.cast(pa.timestamp("ns")).cast(pa.int64())
        except pa.ArrowInvalid:
            return None
    has_nan = bool(pc.any(pc.is_nan(column)).as_py()) if is_float else None
    extremes = pc.min_max(column.cast(pa.string()) if _is_text(kind) else column).as_py()
    low, high = extremes["min"], extremes["max"]
    if has_nan and (low is None or low != low):
        low = high = None
    return ColumnBounds(low, high, has_nulls=nulls > 0, has_nan=has_nan, type="timestamp" if is_time else "")


def unified(tables: list[pa.Table]) -> pa.Table:
    """Rows of several schemas under one, with nulls where a column was new; `InvalidInput` names a conflict of types."""
    known: dict[str, pa.DataType] = {}
    for table in tables:
        for one in table.schema:
            kind = known.setdefault(one.name, one.type)
            if kind != one.type and not pa.types.is_null(one.type):
                raise InvalidInput(f"column {one.name!r} has type {one.type}", f"in the same table it has {kind}")
    return pa.concat_tables(tables, promote_options="default")
