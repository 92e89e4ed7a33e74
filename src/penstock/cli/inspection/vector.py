"""The work of `penstock vector`: reads a vector store beside whoever writes it, and words what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click
from rich.markup import escape
from rich.table import Table

from penstock.cli.settings.wiring import Wiring
from penstock.errors import Corrupt, NotFound, PenstockError
from penstock.indexing import url_of
from penstock.vector import (
    CollectionName,
    CollectionReader,
    CollectionStats,
    RepairReport,
    VectorReader,
    VectorStore,
    VerifyReport,
    unreadable,
)

__all__ = [
    "compact_store",
    "drop_collection",
    "read_rows",
    "read_stats",
    "repair_store",
    "require_collection",
    "show_repair",
    "show_row",
    "size_text",
    "stats_fields",
    "stats_table",
    "verify_store",
]

T = TypeVar("T")

# What a terminal shows of a row's text and of its vector.
_TEXT_CHARACTERS: Final = 200
_COMPONENTS: Final = 6
# Damaged blocks and losses of one thing that a terminal shows.
_LINES: Final = 20
_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


def read_stats(wiring: Wiring, store: str, path: str) -> dict[CollectionName, CollectionStats | PenstockError]:
    return _with_reader(wiring, store, path, lambda reader: _each_collection(reader, CollectionReader.stats))


def verify_store(wiring: Wiring, store: str, path: str) -> list[VerifyReport]:
    """A report of every collection, and one of the store's own records if they are not sound."""

    async def work(reader: VectorReader) -> list[VerifyReport]:
        answers = await _each_collection(reader, CollectionReader.verify)
        found = [unreadable(name, each) if isinstance(each, PenstockError) else each for name, each in answers.items()]
        records = await reader.verify_records()
        return found if records.sound else [*found, records]

    return _with_reader(wiring, store, path, work)


def compact_store(wiring: Wiring, store: str, path: str) -> tuple[list[CollectionStats], list[CollectionStats]]:
    """Before and after."""

    async def work() -> tuple[list[CollectionStats], list[CollectionStats]]:
        async with await wiring.writer(url_of(store), path) as opened:
            before = await opened.stats()
            await opened.compact()
            return before, await opened.stats()

    _require_store(wiring, store, path)
    return asyncio.run(work())


def require_collection(wiring: Wiring, store: str, path: str, *name: str) -> None:
    """Raise if a collection is not there, by reading alone."""
    if CollectionName(*name) not in _with_reader(wiring, store, path, VectorReader.collections):
        raise NotFound(f"there is no collection {CollectionName(*name)}", "", "`penstock vector stats` lists them")


def drop_collection(wiring: Wiring, store: str, path: str, *name: str) -> None:
    async def work() -> None:
        async with await wiring.writer(url_of(store), path) as opened:
            await opened.drop(CollectionName(*name))

    asyncio.run(work())


def repair_store(
    wiring: Wiring,
    store: str,
    path: str,
    *,
    dry_run: bool,
    positions: Mapping[str, int | None],
    metric: str | None,
    keep_doubtful: bool,
    reindex_words: bool,
) -> list[RepairReport]:
    _require_store(wiring, store, path)
    return asyncio.run(
        VectorStore.repair(
            url_of(store),
            path,
            dry_run=dry_run,
            positions=positions,
            metric=metric,
            keep_doubtful=keep_doubtful,
            reindex_words=reindex_words,
            observer=wiring.observer,
            **wiring.service_options(url_of(store)),
        )
    )


def read_rows(
    wiring: Wiring, store: str, path: str, name: tuple[str, str, str], ids: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Those rows that are there, by their ids."""

    async def read(reader: VectorReader) -> list[dict[str, Any]]:
        opened = await reader.collection(*name)
        return (await opened.get(dict.fromkeys(ids))).to_pylist()

    return {row["id"]: row for row in _with_reader(wiring, store, path, read)}


async def _each_collection(
    reader: VectorReader, ask: Callable[[CollectionReader], Awaitable[T]]
) -> dict[CollectionName, T | PenstockError]:
    """What every collection answers; one that cannot be read keeps no other from answering."""
    answers: dict[CollectionName, T | PenstockError] = {}
    for name in await reader.collections():
        try:
            answers[name] = await ask(await reader.collection(name.tenant, name.index, name.model))
        except Corrupt as error:
            answers[name] = error
    return answers


def _with_reader(wiring: Wiring, store: str, path: str, work: Callable[[VectorReader], Awaitable[T]]) -> T:
    async def run() -> T:
        async with await wiring.reader(url_of(store), path) as reader:
            return await work(reader)

    return asyncio.run(run())


def _require_store(wiring: Wiring, store: str, path: str) -> None:
    """Raise if there is no store: opening a writer would make one."""
    _with_reader(wiring, store, path, VectorReader.collections)


def stats_table(stats: CollectionStats) -> Table:
    table = Table(box=None, pad_edge=False, title=f"{escape(str(stats.name))}", title_justify="left", show_header=False)
    shape = f"{stats.lists:,} lists, half of them above {stats.list_rows_median:,} rows, the longest {stats.list_rows_max:,}"
    kinds = ", ".join(
        f"{kind} {size_text(size)}" for kind, size in sorted(stats.bytes_by_kind.items(), key=lambda k: -k[1]) if size
    )
    for what, value in (
        ("vectors", f"{stats.dimensions:,} dimensions, compared by {stats.metric}"),
        ("rows", f"{stats.rows:,}, of which {stats.texts:,} with text"),
        *([("by words only", f"{unplaced:,} rows have no vector")] if (unplaced := stats.rows_without_vector) else []),
        ("not yet current", f"{stats.hidden_rows:,} rows of versions that nobody sees yet"),
        (
            "dead",
            f"{stats.dead_rows:,} rows that are still in blocks" + (", being swept out" if stats.sweeping else ""),
        ),
        ("attributes", ", ".join(f"{name} ({kind})" for name, kind in stats.attributes.items()) or "none"),
        ("shape", shape),
        ("stored", f"{size_text(stats.stored_bytes)} in {stats.blocks:,} blocks: {kinds}"),
        ("in memory", f"{size_text(stats.resident_bytes)} while in use, beside the block cache"),
        *(("damaged", block) for block in stats.damage),
    ):
        table.add_row(f"  {what}", escape(value))
    return table


def show_repair(report: RepairReport, *, dry_run: bool) -> None:
    done = "left as it is" if not report.repaired else "can be repaired" if dry_run else "repaired"
    click.echo(f"{report.what}: {done}")
    for what, lines in (("damaged", report.damage), ("lost", report.losses)):
        for line in lines[:_LINES]:
            click.echo(f"  - {what}: {line}")
        if len(lines) > _LINES:
            click.echo(f"  - and {len(lines) - _LINES:,} more")
    if report.undecided:
        click.echo(f"  - {report.undecided}")


def show_row(row: dict[str, Any]) -> None:
    vector = row["vector"] or ()
    shown = ", ".join(f"{number:.4g}" for number in vector[:_COMPONENTS]) or "none: only its words find it"
    more = f", … {len(vector):,} in all" if len(vector) > _COMPONENTS else ""
    click.echo(row["id"])
    click.echo(f"  vector      {shown}{more}")
    for name, value in (row["attributes"] or {}).items():
        if value is not None:
            click.echo(f"  {name:<11} {value}")
    if row["text"] is not None:
        flat = " ".join(row["text"].split())
        click.echo(f"  text        {flat[:_TEXT_CHARACTERS]}{' …' if len(flat) > _TEXT_CHARACTERS else ''}")


def stats_fields(stats: CollectionStats) -> dict[str, Any]:
    fields = {name: getattr(stats, name) for name in stats.__slots__}
    return fields | {"name": str(stats.name)}


def size_text(size: float) -> str:
    """A number of bytes for a person."""
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"
