"""The catalog of data files: shards, files by level and hour, merges and their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from penstock.catalog import Catalog, catalog_stats
from penstock.cli.serving.house_view.figures import FigureHistory
from penstock.cli.serving.house_view.units import byte_text, seconds_text
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound
from penstock.gateway import Fact, Section, TableView
from penstock.observability import names

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KeptCatalog", "catalog_sections"]

_HOUR_NS: Final = 3_600_000_000_000
_HOURS_SHOWN: Final = 48
_LEVELS: Final = (0, 1, 2, 3)
# A catalog may have thousands of tables, and a page with all of them cannot be read.
_ROWS_MAX: Final = 200
_LEASES_MAX: Final = 50


class KeptCatalog:
    """The catalog, opened when it is first looked at: before a job has run there may be none."""

    def __init__(self, open: Callable[[], Awaitable[Catalog]]) -> None:
        self._open, self._opening = open, asyncio.Lock()
        self._catalog: Catalog | None = None

    async def catalog(self) -> Catalog:
        async with self._opening:
            if self._catalog is None:
                self._catalog = await self._open()
            return self._catalog


async def catalog_sections(
    kept: KeptCatalog | None, figures: FigureHistory, clock: Clock = SYSTEM_CLOCK
) -> list[Section]:
    if kept is None:
        return [_nothing("No queries run in this process, so that it opens no catalog.")]
    try:
        catalog = await kept.catalog()
    except NotFound:
        return [_nothing("No telemetry has arrived yet.")]
    now_ns = clock.now_ms() * 1_000_000
    plan = await catalog.plan(now_ns // _HOUR_NS * _HOUR_NS - (_HOURS_SHOWN - 1) * _HOUR_NS, columns=(), partial=True)
    table = plan.table
    sections = [await _shards(catalog), _levels(table), _hours(table), _merges(figures)]
    return [*sections, await _leases(catalog, clock.now_ms())]


def _nothing(text: str) -> Section:
    return Section("Catalog", table=TableView((), (), empty=text))


async def _shards(catalog: Catalog) -> Section:
    stats = await catalog_stats(catalog)
    rows: list[tuple[str, ...]] = [
        (
            one.shard or "root",
            f"{one.seq:,}",
            f"{one.files:,}",
            f"{one.rows:,}",
            byte_text(one.size_bytes),
            byte_text(one.head_bytes),
            f"{one.conflict_rate:.0%}",
            "; ".join(one.advice),
        )
        for one in stats.shards
    ]
    columns = ("shard", "commits", "files", "rows", "size", "head", "conflicts", "advice")
    return Section("Shards", table=TableView(columns, _bounded(rows, _ROWS_MAX), frozenset(range(1, 7))))


def _levels(table: pa.Table) -> Section:
    grouped = table.group_by(["table", "level"]).aggregate(
        [("path", "count"), ("row_count", "sum"), ("size_bytes", "sum")]
    )
    found = sorted(grouped.to_pylist(), key=lambda row: (row["table"] or "", row["level"]))
    rows: list[tuple[str, ...]] = [
        (
            row["table"] or "–",
            str(row["level"]),
            f"{row['path_count']:,}",
            f"{row['row_count_sum']:,}",
            byte_text(row["size_bytes_sum"]),
        )
        for row in found
    ]
    columns = ("table", "level", "files", "rows", "size")
    empty = f"No data files of the last {_HOURS_SHOWN} hours."
    note = "Level 0 is what the telemetry job wrote; merges make levels 1 to 3."
    table_view = TableView(columns, _bounded(rows, _ROWS_MAX), frozenset({1, 2, 3, 4}), empty)
    return Section("Files by level", table=table_view, note=note)


def _hours(table: pa.Table) -> Section:
    import numpy as np

    hours = table["min_timestamp"].to_numpy() // _HOUR_NS
    levels, sizes = table["level"].to_numpy(), table["size_bytes"].to_numpy()
    rows = []
    for hour in np.unique(hours)[::-1][:_HOURS_SHOWN]:
        here = hours == hour
        counts = [f"{int((here & (levels == level)).sum()):,}" for level in _LEVELS]
        start = np.datetime64(int(hour) * 3600, "s").item().strftime("%Y-%m-%d %H:00")
        rows.append((start, *counts, byte_text(float(sizes[here].sum()))))
    columns = ("hour (UTC)", *[f"level {level}" for level in _LEVELS], "size")
    empty = f"No data files of the last {_HOURS_SHOWN} hours."
    return Section("Files by hour", table=TableView(columns, rows, frozenset(range(1, 6)), empty))


def _merges(figures: FigureHistory) -> Section:
    outcomes = figures.by_label(names.COMPACTION_TASKS, "outcome")
    moved = figures.by_label(names.COMPACTION_BYTES, "kind")
    facts = [
        *[Fact(f"merges {outcome}", f"{count:,.0f}") for outcome, count in outcomes.items()],
        *[Fact(f"bytes {kind}", byte_text(count)) for kind, count in moved.items()],
        Fact("rows merged", f"{figures.total(names.COMPACTION_ROWS):,.0f}"),
    ]
    return Section("Compaction since the jobs were started", facts)


async def _leases(catalog: Catalog, now_ms: int) -> Section:
    rows: list[tuple[str, ...]] = []
    for name in catalog.shards:
        head = await catalog.shard(name).head()
        for lease in head.leases.values():
            left = (lease.expires_ms - now_ms) / 1000
            ends = f"in {seconds_text(left)}" if left > 0 else "expired"
            rows.append((name or "root", lease.owner, f"{len(lease.paths):,}", ends))
    shown = _bounded(rows, _LEASES_MAX)
    table = TableView(("shard", "owner", "files", "ends"), shown, frozenset({2}), "No merge is under way.")
    return Section("Leases", table=table)


def _bounded(rows: list[tuple[str, ...]], most: int) -> list[tuple[str, ...]]:
    """The first rows, and one that says how many more there are."""
    if len(rows) <= most:
        return rows
    return [*rows[:most], (f"… and {len(rows) - most:,} more", *[""] * (len(rows[0]) - 1))]
