"""`penstock vector`: look at a vector store, check it, read rows, tidy and repair it.

Only `compact`, `consume`, `drop` and `repair` ever write. All others read beside a running writer, as its followers do,
and see what is durable. Those four have to be the writer: they take the fence, and a writer that runs elsewhere stops with an
error that says so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.options import VECTOR_PATH, json_option, settings_option
from penstock.cli.settings.store_options import (
    confirm_writing,
    consume_options,
    end_repair,
    positions_option,
    print_consumed,
    store_argument,
    yes_option,
)
from penstock.errors import NotFound, PenstockError

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching

__all__ = ["METRICS", "vector"]

# The room's own, written again so that help does not load it; a test holds them equal.
METRICS: Final = ("cosine", "dot", "l2")

_collection_argument = click.argument("collection", metavar="TENANT/INDEX/MODEL")
_path_option = click.option("--path", default=VECTOR_PATH, show_default=True, help="Path of the vectors in the store.")


@click.group()
def vector() -> None:
    """Inspect, verify, compact or repair a vector store.

    STORE is a directory or a URL.
    """


@vector.command()
@store_argument
@_path_option
@json_option
@settings_option
def stats(store: str, path: str, as_json: bool, settings: Settings) -> None:
    """Show every collection: its rows, size and shape.

    The exit code is 1 if one cannot be read.
    """
    from rich.console import Console

    from penstock.cli.inspection.vector import read_stats, stats_fields, stats_table
    from penstock.cli.settings.wiring import Wiring

    answers = read_stats(Wiring(settings), store, path)
    console = Console(emoji=False, highlight=False)
    for each in answers.values():
        if isinstance(each, PenstockError):
            continue
        if as_json:
            click.echo(json.dumps(stats_fields(each)))
        else:
            console.print(stats_table(each))
    if not answers and not as_json:
        click.echo("There is no collection yet.")
    unread = {name: each for name, each in answers.items() if isinstance(each, PenstockError)}
    for name, error in unread.items():
        click.echo(f"{name}: cannot be read: {error}", err=True)
    if unread:
        raise SystemExit(1)


@vector.command()
@store_argument
@_path_option
@long_running
def verify(store: str, path: str, settings: Settings, watching: Watching) -> None:
    """Read everything and report inconsistencies.

    The exit code is 1 if anything is wrong.
    """
    from penstock.cli.inspection.vector import verify_store
    from penstock.cli.settings.wiring import Wiring

    with watching.opened() as observer:
        reports = verify_store(Wiring(settings, observer), store, path)
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
@store_argument
@_path_option
@yes_option
@long_running
def compact(store: str, path: str, yes: bool, settings: Settings, watching: Watching) -> None:
    """Drop dead rows, reshape lists and merge small blocks.

    It works in small steps and can be interrupted.
    """
    confirm_writing(yes)
    from penstock.cli.inspection.vector import compact_store, size_text
    from penstock.cli.settings.wiring import Wiring

    with watching.opened() as observer:
        before, after = compact_store(Wiring(settings, observer), store, path)
    for old, new in zip(before, after, strict=True):
        click.echo(
            f"{new.name}: {size_text(old.stored_bytes)} in {old.blocks:,} blocks became "
            f"{size_text(new.stored_bytes)} in {new.blocks:,}; {old.lists:,} lists became {new.lists:,}"
        )
    if not after:
        click.echo("There is no collection yet.")


@vector.command()
@store_argument
@consume_options
@_path_option
@long_running
def consume(
    store: str, queue: str, source: str | None, follow: bool, path: str, settings: Settings, watching: Watching
) -> None:
    """Store the vectors of a queue, each exactly once.

    Records that are not vectors are set aside next to the queue. Any other consumer of the queue and any other writer
    of the store is stopped.
    """
    from penstock.cli.jobs.consuming import consume_vectors

    with watching.opened(warns=True) as observer:
        position, rejected = consume_vectors(settings, observer, (store, path), queue, source, follow=follow)
    print_consumed(position, rejected)


@vector.command()
@store_argument
@_collection_argument
@_path_option
@click.option("--yes", is_flag=True, help="Do not ask whether rows may be lost and a running writer stopped.")
@settings_option
def drop(store: str, collection: str, path: str, yes: bool, settings: Settings) -> None:
    """Remove a collection and all its rows for good.

    The exit code is 1 if there is no such collection.
    """
    from penstock.cli.inspection.vector import drop_collection, require_collection
    from penstock.cli.settings.wiring import Wiring

    name = _name(collection)
    require_collection(Wiring(settings), store, path, *name)
    if not yes:
        click.confirm(
            f"All rows of {collection} will be lost, and a running writer will be stopped. Continue?", abort=True
        )
    drop_collection(Wiring(settings), store, path, *name)
    click.echo(f"removed {collection}")


@vector.command()
@store_argument
@_path_option
@click.option("--dry-run", is_flag=True, help="Only list what would be done.")
@positions_option
@click.option("--metric", type=click.Choice(METRICS), help="Metric of a collection whose record is lost.")
@click.option("--keep-doubtful", is_flag=True, help="Bring back rows that may have been deleted.")
@click.option("--reindex-words", is_flag=True, help="Words of older collections by the present rule.")
@yes_option
@long_running
def repair(
    store: str,
    path: str,
    dry_run: bool,
    positions: dict[str, int | None],
    metric: str | None,
    keep_doubtful: bool,
    reindex_words: bool,
    yes: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Repair damaged collections from what is left of them.

    The exit code is 1 if anything could not be repaired.
    """
    confirm_writing(yes or dry_run)
    from penstock.cli.inspection.vector import repair_store, show_repair
    from penstock.cli.settings.wiring import Wiring

    with watching.opened() as observer:
        reports = repair_store(
            Wiring(settings, observer),
            store,
            path,
            dry_run=dry_run,
            positions=positions,
            metric=metric,
            keep_doubtful=keep_doubtful,
            reindex_words=reindex_words,
        )
    for report in reports:
        show_repair(report, dry_run=dry_run)
    end_repair([report.repaired for report in reports])


@vector.command()
@store_argument
@_collection_argument
@click.argument("ids", nargs=-1, required=True)
@_path_option
@json_option
@settings_option
def get(store: str, collection: str, ids: tuple[str, ...], path: str, as_json: bool, settings: Settings) -> None:
    """Show rows of a collection by their ids.

    The exit code is 1 if a row is missing.
    """
    name = _name(collection)
    from penstock.cli.inspection.vector import read_rows, show_row
    from penstock.cli.settings.wiring import Wiring

    rows = read_rows(Wiring(settings), store, path, name, ids)
    for row in rows.values():
        if as_json:
            click.echo(json.dumps(row, ensure_ascii=False, default=str))
        else:
            show_row(row)
    missing = [wanted for wanted in dict.fromkeys(ids) if wanted not in rows]
    if missing:
        why = "it was never written, was removed, or is hidden"
        raise NotFound(f"{collection} has no row {', '.join(missing)}", why)


def _name(text: str) -> tuple[str, str, str]:
    """Tenant, index and model."""
    parts = text.split("/", 2)
    if len(parts) < 3:
        raise click.BadParameter("name the tenant, the index and the model, joined by slashes")
    return parts[0], parts[1], parts[2]
