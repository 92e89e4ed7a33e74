"""Data files as columns: an Arrow table sorted by first timestamp, with NumPy views for planning.

Rows lie in the order of `min_timestamp`, and beside them lies the running maximum of `max_timestamp`, which
never falls: two binary searches bound the rows of a time range, whatever the files' lengths. Statistics lie
in typed columns, one set for each column and kind of value; whatever does not fit them (a member somebody
else wrote, an integer beyond 64 bits) is kept as JSON in `rest`. Format page: docs/format/catalog.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.catalog.format.data_file import INT64_MAX, INT64_MIN, KNOWN_MEMBERS, DataFile, file_json
from penstock.catalog.format.statistics import ColumnStats, stats_json

__all__ = ["FileBlock", "Flag", "Mask", "Row", "Rows", "StatColumn", "foreign_members", "path_hash", "row_json"]

Rows: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class Flag:
    """The bits of a statistic's flags."""

    PRESENT: Final = 1
    HAS_NULLS: Final = 2
    NAN_KNOWN: Final = 4
    HAS_NAN: Final = 8
    ALL_NULL: Final = 16
    MIN_CUT: Final = 32
    MAX_CUT: Final = 64
    TIMESTAMP: Final = 128


class Row(NamedTuple):
    """A file with its history: when it came, when it went, and members that are not ours."""

    file: DataFile
    added_seq: int = 0
    rest: dict[str, Any] | None = None
    removed_seq: int = 0
    removed_ms: int = 0


# Statistics of one kind of value: the letter in the column's name, and its Arrow type.
_KINDS: Final = {"i": pa.int64(), "d": pa.float64(), "s": pa.string(), "b": pa.bool_()}
_KNOWN_STATS: Final = frozenset(ColumnStats.__struct_fields__)
_FIXED: Final = (
    ("path", pa.string()),
    ("path_hash", pa.uint64()),
    ("min_timestamp", pa.int64()),
    ("max_timestamp", pa.int64()),
    ("row_count", pa.int64()),
    ("size_bytes", pa.int64()),
    ("level", pa.uint8()),
    ("shard_id", pa.string()),
    ("tenant", pa.string()),
    ("table", pa.string()),
    ("added_seq", pa.int64()),
    ("removed_seq", pa.int64()),
    ("removed_ms", pa.int64()),
    ("rest", pa.string()),
)


def path_hash(path: str) -> int:
    return xxhash.xxh3_64_intdigest(path.encode())


@dataclass(frozen=True, slots=True)
class StatColumn:
    """The statistics of one column in every file of a block. `bounds` has Arrow arrays by kind: least, greatest."""

    flags: npt.NDArray[np.uint16]
    bounds: dict[str, tuple[pa.Array[Any], pa.Array[Any]]]


class FileBlock:
    """Rows sorted by `min_timestamp`. Immutable, and shared by every head that names it."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()

    def __len__(self) -> int:
        return self.table.num_rows

    @classmethod
    def of(cls, rows: Sequence[Row]) -> FileBlock:
        """The rows in the order of their first timestamp, then of their paths."""
        ordered = sorted(rows, key=lambda row: (row.file.min_timestamp, row.file.path))
        return cls(_table(ordered))

    @classmethod
    def joined(cls, blocks: Sequence[FileBlock], rows: Sequence[Rows]) -> tuple[FileBlock, Rows]:
        """The chosen rows of several blocks as one, and where each came from in the rows laid end to end."""
        tables = [block.table.take(chosen) for block, chosen in zip(blocks, rows, strict=True)]
        whole = pa.concat_tables(tables, promote_options="default")
        order = pc.sort_indices(whole, sort_keys=[("min_timestamp", "ascending"), ("path", "ascending")])
        return cls(whole.take(order)), order.to_numpy().astype(np.int64)

    # What planning looks at ----------------------------------------------------------------------------

    @cached_property
    def min_timestamp(self) -> npt.NDArray[np.int64]:
        return self._numbers("min_timestamp")

    @cached_property
    def max_timestamp(self) -> npt.NDArray[np.int64]:
        return self._numbers("max_timestamp")

    @cached_property
    def latest(self) -> npt.NDArray[np.int64]:
        """The greatest `max_timestamp` up to each row: it never falls, so it can be searched."""
        return np.maximum.accumulate(self.max_timestamp)

    @cached_property
    def size_bytes(self) -> npt.NDArray[np.int64]:
        return self._numbers("size_bytes")

    @cached_property
    def row_count(self) -> npt.NDArray[np.int64]:
        return self._numbers("row_count")

    @cached_property
    def level(self) -> npt.NDArray[np.uint8]:
        found: npt.NDArray[np.uint8] = self.table["level"].to_numpy()
        return found

    @cached_property
    def added_seq(self) -> npt.NDArray[np.int64]:
        return self._numbers("added_seq")

    @cached_property
    def removed_seq(self) -> npt.NDArray[np.int64]:
        return self._numbers("removed_seq")

    @cached_property
    def removed_ms(self) -> npt.NDArray[np.int64]:
        return self._numbers("removed_ms")

    @cached_property
    def _hashes(self) -> tuple[npt.NDArray[np.uint64], Rows]:
        hashes = self.table["path_hash"].to_numpy()
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def find(self, path: str) -> int | None:
        """The row of a path; None when it is not here."""
        hashes, order = self._hashes
        wanted = np.uint64(path_hash(path))
        at = int(np.searchsorted(hashes, wanted))
        while at < len(hashes) and hashes[at] == wanted:
            row = int(order[at])
            if self.table["path"][row].as_py() == path:
                return row
            at += 1
        return None

    def between(self, start: int, end: int) -> Rows:
        """Rows of files that have a time in `[start, end)`; a file's own ends are both included."""
        # Beyond 64 bits NumPy would compare as floats, which cannot tell neighbouring nanoseconds apart.
        first = 0 if start <= INT64_MIN else int(np.searchsorted(self.latest, start, side="left"))
        last = len(self) if end > INT64_MAX else int(np.searchsorted(self.min_timestamp, end, side="left"))
        if first >= last:
            return np.empty(0, np.int64)
        return first + np.flatnonzero(self.max_timestamp[first:last] >= start)

    def where(self, column: str, value: str, rows: Rows) -> Rows:
        """The rows whose text column equals `value`."""
        found: Any = pc.equal(self.table[column].take(rows), pa.scalar(value))
        chosen: Rows = rows[pc.fill_null(found, False).to_numpy(zero_copy_only=False)]
        return chosen

    @cached_property
    def stats(self) -> dict[str, StatColumn]:
        found = {}
        # Asked for once: tables of many tenants have thousands of columns together.
        columns = dict(zip(self.table.column_names, self.table.columns, strict=True))
        for name, given in columns.items():
            if name.startswith("f:"):
                flags: Any = pc.fill_null(given, pa.scalar(0, pa.uint16()))
                found[name[2:]] = StatColumn(flags.to_numpy(), _bounds(columns, name[2:]))
        return found

    def _numbers(self, name: str) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self.table[name].to_numpy()
        return found

    # Back to files -------------------------------------------------------------------------------------

    def paths(self, rows: Rows) -> list[str]:
        found: Any = self.table["path"].take(rows).to_pylist()
        return list(found)

    def rows(self, rows: Rows, columns: Sequence[str] | None = None) -> list[Row]:
        """The rows as files, with the statistics of `columns`, or of all."""
        picked = self._fields(columns).take(rows)
        plain = {name: picked[name].to_pylist() for name, _ in _FIXED if name != "path_hash"}
        stats = self._stats_of(picked, columns)
        return [self._row({name: values[at] for name, values in plain.items()}, stats[at]) for at in range(len(rows))]

    def _fields(self, columns: Sequence[str] | None) -> pa.Table:
        """Without the statistics that nobody asked for, of which a table may have hundreds."""
        if columns is None:
            return self.table
        wanted = [
            name
            for column in columns
            if column in self.stats
            for name in (
                f"f:{column}",
                *(f"{kind}{side}:{column}" for kind in self.stats[column].bounds for side in "<>"),
            )
        ]
        return self.table.select([*(name for name, _ in _FIXED), *wanted])

    def files(self, rows: Rows, columns: Sequence[str] | None = None) -> list[DataFile]:
        return [row.file for row in self.rows(rows, columns)]

    def _row(self, plain: dict[str, Any], stats: dict[str, ColumnStats]) -> Row:
        rest = msgspec.json.decode(plain.pop("rest")) if plain["rest"] else plain.pop("rest")
        history = [plain.pop(name) for name in ("added_seq", "removed_seq", "removed_ms")]
        if rest and (odd := rest.get("column_stats")):
            stats = {**stats, **msgspec.convert(odd, dict[str, ColumnStats])}
        return Row(DataFile(**plain, column_stats=stats), history[0], rest, history[1], history[2])

    def _stats_of(self, picked: pa.Table, columns: Sequence[str] | None) -> list[dict[str, ColumnStats]]:
        found: list[dict[str, ColumnStats]] = [{} for _ in range(picked.num_rows)]
        for column in self.stats if columns is None else [name for name in columns if name in self.stats]:
            flags = picked[f"f:{column}"].to_pylist()
            ends = [
                (picked[f"{kind}<:{column}"].to_pylist(), picked[f"{kind}>:{column}"].to_pylist())
                for kind in self.stats[column].bounds
            ]
            for at, flag in enumerate(flags):
                if flag:
                    low = next((least[at] for least, _ in ends if least[at] is not None), None)
                    high = next((most[at] for _, most in ends if most[at] is not None), None)
                    found[at][column] = _unpacked(flag, low, high)
        return found


def _bounds(columns: Mapping[str, Any], column: str) -> dict[str, tuple[pa.Array[Any], pa.Array[Any]]]:
    """The least and greatest values of one column, by the kind of value."""
    return {
        kind: (_array(columns[f"{kind}<:{column}"]), _array(columns[f"{kind}>:{column}"]))
        for kind in _KINDS
        if f"{kind}<:{column}" in columns
    }


def _array(column: Any) -> pa.Array[Any]:
    found: pa.Array[Any] = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return found


def _unpacked(flag: int, low: Any, high: Any) -> ColumnStats:
    return ColumnStats(
        min=low,
        max=high,
        has_nulls=bool(flag & Flag.HAS_NULLS),
        has_nan=bool(flag & Flag.HAS_NAN) if flag & Flag.NAN_KNOWN else None,
        all_null=bool(flag & Flag.ALL_NULL),
        min_cut=bool(flag & Flag.MIN_CUT),
        max_cut=bool(flag & Flag.MAX_CUT),
        type="timestamp" if flag & Flag.TIMESTAMP else "",
    )


def _packed(stats: ColumnStats) -> int:
    return (
        Flag.PRESENT
        | Flag.HAS_NULLS * stats.has_nulls
        | Flag.NAN_KNOWN * (stats.has_nan is not None)
        | Flag.HAS_NAN * bool(stats.has_nan)
        | Flag.ALL_NULL * stats.all_null
        | Flag.MIN_CUT * stats.min_cut
        | Flag.MAX_CUT * stats.max_cut
        | Flag.TIMESTAMP * (stats.type == "timestamp")
    )


def _kind(value: Any) -> str:
    """The kind of column that holds a bound; empty for none, `?` for one that fits no column."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "b"
    if isinstance(value, int):
        return "i" if INT64_MIN <= value <= INT64_MAX else "?"
    return "d" if isinstance(value, float) else "s"


def _kind_of(stats: ColumnStats) -> str:
    """One kind for both bounds, or `?` when they do not fit one pair of columns."""
    kinds = {_kind(stats.min), _kind(stats.max)} - {""}
    if stats.type not in ("", "timestamp") or len(kinds) > 1:
        return "?"
    return kinds.pop() if kinds else ""


def _table(rows: Sequence[Row]) -> pa.Table:
    files = [row.file for row in rows]
    fields: dict[str, list[Any]] = {name: [] for name, _ in _FIXED}
    for name in ("path", "min_timestamp", "max_timestamp", "row_count", "size_bytes", "level"):
        fields[name] = [getattr(file, name) for file in files]
    for name in ("shard_id", "tenant", "table"):
        fields[name] = [getattr(file, name) for file in files]
    fields["path_hash"] = [path_hash(file.path) for file in files]
    for name in ("added_seq", "removed_seq", "removed_ms"):
        fields[name] = [getattr(row, name) for row in rows]
    rest: list[dict[str, Any]] = [dict(row.rest) if row.rest else {} for row in rows]
    stats = _stat_columns(files, rest)
    fields["rest"] = [msgspec.json.encode(one).decode() if one else None for one in rest]
    arrays = {name: pa.array(fields[name], kind) for name, kind in _FIXED}
    return pa.table({**arrays, **stats})


def _stat_columns(files: Sequence[DataFile], rest: list[dict[str, Any]]) -> dict[str, pa.Array[Any]]:
    """Typed columns of all statistics that fit; the others stay in `rest`, or go there."""
    count = len(files)
    columns: dict[str, list[Any]] = {}
    for at, file in enumerate(files):
        kept = rest[at].get("column_stats", {})
        for column, stats in file.column_stats.items():
            kind = _kind_of(stats)
            if column in kept:
                continue
            if kind == "?":
                rest[at].setdefault("column_stats", {})[column] = stats_json(stats)
                continue
            _column(columns, f"f:{column}", count, 0)[at] = _packed(stats)
            if kind:
                _column(columns, f"{kind}<:{column}", count, None)[at] = stats.min
                _column(columns, f"{kind}>:{column}", count, None)[at] = stats.max
    types = {"f": pa.uint16(), **_KINDS}
    return {name: pa.array(values, types[name[0]]) for name, values in sorted(columns.items())}


def _column(columns: dict[str, list[Any]], name: str, count: int, absent: Any) -> list[Any]:
    """The column of that name, made when a row first has a value for it: never once a row."""
    found = columns.get(name)
    if found is None:
        found = columns[name] = [absent] * count
    return found


def foreign_members(raw: bytes) -> dict[str, Any] | None:
    """What an entry's JSON says beyond what a `DataFile` holds; None when there is nothing."""
    found: dict[str, Any] = msgspec.json.decode(raw)
    rest = {name: value for name, value in found.items() if name not in KNOWN_MEMBERS}
    odd = {name: stats for name, stats in found.get("column_stats", {}).items() if not stats.keys() <= _KNOWN_STATS}
    if odd:
        rest["column_stats"] = odd
    return rest or None


def row_json(row: Row) -> bytes:
    """The entry of a row as version 2 writes it, with the members that somebody else gave it."""
    json = file_json(row.file)
    if row.rest:
        stats = row.rest.get("column_stats", {})
        json = {**json, **row.rest, "column_stats": {**json["column_stats"], **stats}}
    return msgspec.json.encode(json)
