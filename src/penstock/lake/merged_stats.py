"""Statistics of a merged file, from those of its sources: the same rows have the same bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.catalog import ColumnStats, DataFile

__all__ = ["merged_stats"]


def merged_stats(sources: Sequence[DataFile], columns: Mapping[str, frozenset[str]]) -> dict[str, ColumnStats]:
    """Of all columns that every source knows, or does not have. `columns` are those of each source, by its path."""
    names = {name: None for file in sources for name in file.column_stats}
    found = {name: _merged([_stats_of(file, name, columns[file.path]) for file in sources]) for name in names}
    return {name: stats for name, stats in found.items() if stats is not None}


def _stats_of(file: DataFile, name: str, columns: frozenset[str]) -> ColumnStats | None:
    if name not in columns:
        return ColumnStats(has_nulls=True, all_null=True)
    return file.column_stats.get(name)


def _merged(each: Sequence[ColumnStats | None]) -> ColumnStats | None:
    known = [stats for stats in each if stats is not None]
    if len(known) < len(each):
        return None
    valued = [stats for stats in known if not stats.all_null]
    if not valued:
        return ColumnStats(has_nulls=True, all_null=True)
    nan = {stats.has_nan for stats in valued}
    low, high = (
        _bound([stats.min for stats in valued], least=True),
        _bound([stats.max for stats in valued], least=False),
    )
    return ColumnStats(
        min=low,
        max=high,
        has_nulls=any(stats.has_nulls for stats in known),
        has_nan=True if True in nan else (None if None in nan else False),
        min_cut=any(stats.min_cut for stats in valued if stats.min == low),
        max_cut=any(stats.max_cut for stats in valued if stats.max == high),
        type=valued[0].type if len({stats.type for stats in valued}) == 1 else "",
    )


def _bound(bounds: Sequence[int | float | str | bool | None], *, least: bool) -> int | float | str | bool | None:
    """Unknown where one is, or where they are of different kinds."""
    if any(bound is None for bound in bounds):
        return None
    kinds = {str if isinstance(bound, str) else bool if isinstance(bound, bool) else float for bound in bounds}
    if len(kinds) > 1:
        return None
    return min(bounds) if least else max(bounds)  # type: ignore[type-var]
