"""`penstock index`: lists what it is given, puts notifications on the queue, and runs the indexing job on it.

The job takes them from there exactly as it takes those that a bucket sends. Documents that are current already are not
notified, so that indexing a folder again costs what has changed; documents that are gone are notified as deleted.
Without a path it takes what waits in the queue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.numbers import FiniteRange
from penstock.cli.settings.options import (
    allow_option,
    azure_option,
    bucket_option,
    budget_options,
    chunking_options,
    collection_options,
    engine_option,
    json_option,
    master_option,
    provider_options,
    rate_options,
)

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching
    from penstock.indexing import EmbeddingBudget, Provider

__all__ = ["index"]

# Each look lists every place: often enough for a person who has just saved a file.
_INTERVAL_SECONDS: Final = 10.0


@click.command()
@click.argument("places", nargs=-1, metavar="[PATH_OR_URL]…")
@collection_options
@click.option("--follow", is_flag=True, help="Keep indexing what is queued and what changes, until interrupted.")
@click.option("--queue-only", is_flag=True, help="Only queue notifications, for a job that runs elsewhere.")
@click.option("--dry-run", is_flag=True, help="Only list what would be indexed and removed.")
@click.option("--yes", is_flag=True, help="Do not ask before removing more than half of the index.")
@click.option("--strict", is_flag=True, help="Exit with 1 if any document is set aside.")
@click.option(
    "--interval",
    type=FiniteRange(0.1),
    default=_INTERVAL_SECONDS,
    show_default=True,
    help="Time between two listings with --follow, in seconds.",
)
@bucket_option
@allow_option
@azure_option
@engine_option
@master_option
@budget_options
@rate_options
@provider_options
@chunking_options
@json_option
@long_running
def index(
    places: tuple[str, ...],
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    follow: bool,
    queue_only: bool,
    dry_run: bool,
    yes: bool,
    strict: bool,
    interval: float,
    buckets: Mapping[str, str],
    allowed: tuple[str, ...],
    azure_account: str | None,
    engine: str,
    master: str,
    provider: Provider,
    budget: EmbeddingBudget,
    chunk_tokens: int | None,
    max_tokens: int | None,
    overlap_tokens: int | None,
    as_json: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Make files, folders and buckets searchable.

    Queued notifications are indexed too; without a path, only those.
    """
    if queue_only and follow:
        raise click.UsageError("--queue-only does no work, and --follow does not end: choose one")
    if dry_run and (queue_only or follow):
        raise click.UsageError("--dry-run changes nothing: leave out --queue-only and --follow")
    # Before anything else is loaded, and before a thread begins.
    from penstock.indexing import settle_allocators

    settle_allocators()

    from rich.console import Console

    from penstock.cli.jobs.index_run import IndexRun, has_set_aside
    from penstock.cli.jobs.shelf import Order
    from penstock.cli.running.job import StageEngine
    from penstock.cli.running.stop import ENDING, Stop
    from penstock.cli.settings.wiring import Wiring
    from penstock.errors import BudgetSpent
    from penstock.indexing import Wish, url_of

    wish = Wish(model, None, chunk_tokens, max_tokens, overlap_tokens)
    console = Console(emoji=False, highlight=False, quiet=as_json, soft_wrap=True)
    with watching.opened() as observer, Stop(lambda: console.print(ENDING)) as stop:
        wiring = Wiring(settings, observer)
        order = Order(
            places,
            url_of(store),
            tenant,
            index_name,
            buckets,
            master,
            allowed,
            azure_account,
            StageEngine(engine),
            wiring,
            budget,
        )
        run = IndexRun(order, console, stop, interval if follow else None, queue_only=queue_only, yes=yes)
        shelf = order.laid_out(wish, provider)
        told = run.preview(shelf) if dry_run else run.run(shelf)
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
    if spent := (told["done"] or {}).get("stopped"):
        raise BudgetSpent(**spent)
    if stop.requested and not follow:
        raise SystemExit(stop.exit_code)
    if strict and has_set_aside(told):
        raise SystemExit(1)
