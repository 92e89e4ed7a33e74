"""`penstock vector`: look at a vector store, check it, read rows, tidy and repair it.

Only `compact`, `drop` and `repair` ever write. All others read beside a running writer, as its followers do, and see
what is durable. Those three have to be the writer: they take the fence, and a writer that runs elsewhere stops with an
error that says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.cli.places import VECTOR_PATH, url_of
from penstock.errors import Corrupt, NotFound, PenstockError
from penstock.vector import (
    CollectionName,
    CollectionReader,
    CollectionStats,
    Metric,
    RepairReport,
    VectorReader,
    VectorStore,
    VerifyReport,
)
from penstock.vector.verify import unreadable

__all__ = ["vector"]

T = TypeVar("T")

# What a terminal shows of a row's text and of its vector.
_TEXT_CHARACTERS: Final = 200
_COMPONENTS: Final = 6
# Damaged blocks and losses of one thing that a terminal shows.
_LINES: Final = 20
_UNITS: Final = ("B", "KB", "MB", "GB", "TB")

_path_option = click.option(
    "--path", default=VECTOR_PATH, show_default=True, help="Where in the store the vectors lie."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_store_argument = click.argument("store", metavar="STORE")


@click.group()
def vector() -> None:
    """Look at a vector store, check it, read rows, tidy or repair it. STORE is a directory or a URL."""


@vector.command()
@_store_argument
@_path_option
@_json_option
def stats(store: str, path: str, as_json: bool) -> None:
    """Show every collection: its rows, its size, and in what shape it is; exit code 1 if one cannot be read."""
    answers = _follow(store, path, lambda reader: _each(reader, CollectionReader.stats))
    console = Console(highlight=False)
    for each in answers.values():
        if isinstance(each, PenstockError):
            continue
        if as_json:
            click.echo(json.dumps(_plain(each)))
        else:
            console.print(_stats_table(each))
    if not answers and not as_json:
        click.echo("There is no collection yet.")
    unread = {name: each for name, each in answers.items() if isinstance(each, PenstockError)}
    for name, error in unread.items():
        click.echo(f"{name}: cannot be read: {error}", err=True)
    if unread:
        raise SystemExit(1)


@vector.command()
@_store_argument
@_path_option
def verify(store: str, path: str) -> None:
    """Read everything and report whatever does not agree; exit code 1 if anything is wrong."""

    async def work(reader: VectorReader) -> list[VerifyReport]:
        answers = await _each(reader, CollectionReader.verify)
        found = [unreadable(name, each) if isinstance(each, PenstockError) else each for name, each in answers.items()]
        records = await reader.verify_records()
        return found if records.sound else [*found, records]

    reports = _follow(store, path, work)
    for report in reports:
        problems = len(report.problems) + report.more_problems
        verdict = "sound" if report.sound else "1 problem" if problems == 1 else f"{problems:,} problems"
        click.echo(f"{report.collection}: {verdict} ({report.rows:,} rows, {report.blocks:,} blocks read)")
        for problem in report.problems:
            click.echo(f"  - {problem}")
        if report.more_problems:
            click.echo(f"  - and {report.more_problems:,} more")
    if not reports:
        click.echo("There is no collection yet.")
    if not all(report.sound for report in reports):
        raise SystemExit(1)


@vector.command()
@_store_argument
@_path_option
@click.option("--yes", is_flag=True, help="Do not ask: a writer that runs elsewhere will be fenced.")
def compact(store: str, path: str, yes: bool) -> None:
    """Drop what is dead, reshape lists and merge small blocks, in small steps that can be interrupted."""
    if not yes:
        click.confirm("Only one process may write: one that writes now will be stopped. Go on?", abort=True)

    async def work() -> tuple[list[CollectionStats], list[CollectionStats]]:
        await _require(url_of(store), path)
        async with await VectorStore.open(url_of(store), path) as opened:
            before = await opened.stats()
            await opened.compact()
            return before, await opened.stats()

    before, after = asyncio.run(work())
    for old, new in zip(before, after, strict=True):
        click.echo(
            f"{new.name}: {_size(old.stored_bytes)} in {old.blocks:,} blocks became "
            f"{_size(new.stored_bytes)} in {new.blocks:,}; {old.lists:,} lists became {new.lists:,}"
        )
    if not after:
        click.echo("There is no collection yet.")


@vector.command()
@_store_argument
@click.argument("collection", metavar="TENANT/INDEX/MODEL")
@_path_option
@click.option("--yes", is_flag=True, help="Do not ask: its rows are lost, and a writer that runs elsewhere is fenced.")
def drop(store: str, collection: str, path: str, yes: bool) -> None:
    """Remove a collection and all its rows for good; exit code 1 if it is not there."""
    name = _name(collection)

    async def work(*, ask: bool) -> None:
        async with await VectorStore.open_reader(url_of(store), path) as reader:
            if name not in await reader.collections():
                raise NotFound(f"there is no collection {name}", "", "`penstock vector stats` lists them")
        if not ask:
            async with await VectorStore.open(url_of(store), path) as opened:
                await opened.drop(name)

    if not yes:
        asyncio.run(work(ask=True))
        click.confirm(
            f"All rows of {name} will be lost, and a process that writes now will be stopped. Go on?", abort=True
        )
    asyncio.run(work(ask=False))
    click.echo(f"{name} is gone")


@vector.command()
@_store_argument
@_path_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@click.option(
    "--position", "positions", multiple=True, metavar="SOURCE=NUMBER", help="Position of a source; none forgets."
)
@click.option("--metric", type=click.Choice(list(Metric)), help="Metric of a collection whose record is lost.")
@click.option("--keep-doubtful", is_flag=True, help="Rows that may have been deleted come back.")
@click.option("--yes", is_flag=True, help="Do not ask: a writer that runs elsewhere will be fenced.")
def repair(
    store: str,
    path: str,
    dry_run: bool,
    positions: tuple[str, ...],
    metric: str | None,
    keep_doubtful: bool,
    yes: bool,
) -> None:
    """Make damaged collections whole from what is left of them; exit code 1 if something is left as it is."""
    stated = dict(_position(each) for each in positions)
    if not dry_run and not yes:
        click.confirm("Only one process may write: one that writes now will be stopped. Go on?", abort=True)

    async def work() -> list[RepairReport]:
        url = url_of(store)
        await _require(url, path)
        return await VectorStore.repair(
            url, path, dry_run=dry_run, positions=stated, metric=metric, keep_doubtful=keep_doubtful
        )

    reports = asyncio.run(work())
    for report in reports:
        _show_repair(report, dry_run=dry_run)
    if not reports:
        click.echo("Nothing is damaged.")
    if not all(report.repaired for report in reports):
        raise SystemExit(1)


@vector.command()
@_store_argument
@click.argument("collection", metavar="TENANT/INDEX/MODEL")
@click.argument("ids", nargs=-1, required=True)
@_path_option
@_json_option
def get(store: str, collection: str, ids: tuple[str, ...], path: str, as_json: bool) -> None:
    """Show rows of a collection by their ids; exit code 1 if one is not there."""
    name = _name(collection)

    async def read(reader: VectorReader) -> list[dict[str, Any]]:
        opened = await reader.collection(name.tenant, name.index, name.model)
        return (await opened.get(dict.fromkeys(ids))).to_pylist()

    rows = {row["id"]: row for row in _follow(store, path, read)}
    for row in rows.values():
        if as_json:
            click.echo(json.dumps(row, ensure_ascii=False, default=str))
        else:
            _show_row(row)
    missing = [wanted for wanted in dict.fromkeys(ids) if wanted not in rows]
    if missing:
        raise NotFound(f"{name} has no row {', '.join(missing)}", "it was never written, was removed, or is hidden")


async def _each(
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


def _follow(store: str, path: str, work: Callable[[VectorReader], Awaitable[T]]) -> T:
    async def run() -> T:
        async with await VectorStore.open_reader(url_of(store), path) as reader:
            return await work(reader)

    return asyncio.run(run())


async def _require(url: str, path: str) -> None:
    """Raise if there is no store: opening a writer would make one."""
    async with await VectorStore.open_reader(url, path) as reader:
        await reader.collections()


def _name(text: str) -> CollectionName:
    parts = text.split("/")
    if len(parts) < 3:
        raise click.BadParameter("name the tenant, the index and the model, joined by slashes")
    return CollectionName(parts[0], parts[1], "/".join(parts[2:]))


def _stats_table(stats: CollectionStats) -> Table:
    table = Table(box=None, pad_edge=False, title=f"{escape(str(stats.name))}", title_justify="left", show_header=False)
    shape = f"{stats.lists:,} lists, half of them above {stats.list_rows_median:,} rows, the longest {stats.list_rows_max:,}"
    kinds = ", ".join(
        f"{kind} {_size(size)}" for kind, size in sorted(stats.bytes_by_kind.items(), key=lambda k: -k[1]) if size
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
        ("stored", f"{_size(stats.stored_bytes)} in {stats.blocks:,} blocks: {kinds}"),
        ("in memory", f"{_size(stats.resident_bytes)} while in use, beside the block cache"),
        *(("damaged", block) for block in stats.damage),
    ):
        table.add_row(f"  {what}", escape(value))
    return table


def _position(text: str) -> tuple[str, int | None]:
    source, _, number = text.rpartition("=")
    if not source or not (number == "none" or number.isdecimal()):
        raise click.BadParameter(
            "name a source and its position, as in source=41, or source=none", param_hint="--position"
        )
    return source, None if number == "none" else int(number)


def _show_repair(report: RepairReport, *, dry_run: bool) -> None:
    done = "left as it is" if not report.repaired else "can be repaired" if dry_run else "repaired"
    click.echo(f"{report.what}: {done}")
    for what, lines in (("damaged", report.damage), ("lost", report.losses)):
        for line in lines[:_LINES]:
            click.echo(f"  - {what}: {line}")
        if len(lines) > _LINES:
            click.echo(f"  - and {len(lines) - _LINES:,} more")
    if report.undecided:
        click.echo(f"  - {report.undecided}")


def _show_row(row: dict[str, Any]) -> None:
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


def _plain(stats: CollectionStats) -> dict[str, Any]:
    fields = {name: getattr(stats, name) for name in stats.__slots__}
    return fields | {"name": str(stats.name)}


def _size(size: float) -> str:
    """A number of bytes for a person."""
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"
