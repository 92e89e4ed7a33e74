"""`penstock index`: lists what it is given, puts notifications on the queue, and runs the indexing job on it.

The job takes them from there exactly as it takes those that a bucket sends. Documents that are current already are not
notified, so that indexing a folder again costs what has changed; documents that are gone are notified as deleted.
Without a path it takes what waits in the queue.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import click
from rich.console import Console

from penstock.cli.following import Follower
from penstock.cli.handover import await_rebuild
from penstock.cli.listing import Listing
from penstock.cli.places import (
    allow_option,
    azure_option,
    bucket_option,
    chunking_options,
    collection_options,
    json_option,
    url_of,
)
from penstock.cli.progress import ProgressView, summary_fields, summary_lines
from penstock.cli.providers import Provider, provider_options, rate_options
from penstock.cli.running import ENDING, Stop, opened_job
from penstock.cli.sending import is_waiting, send
from penstock.cli.shelf import Order, Shelf
from penstock.documents import UploadNotification
from penstock.errors import Closed, Fenced, PenstockError
from penstock.pipelines.rebuild_notice import read_notice
from penstock.pipelines.reindexing import Wish

__all__ = ["index"]

# For a person; `--json` names them all.
_LEFT_OUT_SHOWN_MAX: Final = 10
_ENDED: Final = "ended as asked: nothing is lost, and the next run goes on from here"
# A look costs a listing of every place: often enough for a person who has just saved a file.
_INTERVAL_SECONDS: Final = 10.0


@click.command()
@click.argument("places", nargs=-1, metavar="[PATH_OR_URL]…")
@collection_options
@click.option("--follow", is_flag=True, help="Go on with the queue and with changes in the places, until interrupted.")
@click.option("--queue-only", is_flag=True, help="Only notify: a job that runs elsewhere does the work.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    default=_INTERVAL_SECONDS,
    show_default=True,
    help="Seconds between two looks at the places while following.",
)
@bucket_option
@allow_option
@azure_option
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@rate_options
@provider_options
@chunking_options
@json_option
def index(
    places: tuple[str, ...],
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    follow: bool,
    queue_only: bool,
    interval: float,
    buckets: Mapping[str, str],
    allowed: tuple[str, ...],
    azure_account: str | None,
    master: str,
    provider: Provider,
    chunk_tokens: int | None,
    max_tokens: int | None,
    overlap_tokens: int | None,
    as_json: bool,
) -> None:
    """Make documents searchable: files, folders and buckets, and whatever waits in the queue."""
    if queue_only and follow:
        raise click.UsageError("--queue-only does no work, and --follow does not end: choose one")
    wish = Wish(model, None, chunk_tokens, max_tokens, overlap_tokens)
    order = Order(places, url_of(store), tenant, index_name, buckets, master, allowed, azure_account)
    console = Console(highlight=False, quiet=as_json, soft_wrap=True)
    with Stop(lambda: console.print(ENDING)) as stop:
        told = _index(
            order.laid_out(wish, provider), order, console, stop, interval if follow else None, queue_only=queue_only
        )
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
    if stop.requested and not follow:
        raise SystemExit(stop.exit_code)


def _index(
    shelf: Shelf, order: Order, console: Console, stop: Stop, interval: float | None, *, queue_only: bool
) -> dict[str, Any]:
    """Look, send, and run; what was seen and done, as fields."""
    listing = asyncio.run(shelf.look(first=True))
    if listing.failures:
        # Whoever waits for an answer gets it before any work; a follower goes on without the place.
        raise listing.failures[0]
    send(shelf.url, listing.events)
    left_out = shelf.left_out()
    uploads = sum(isinstance(event, UploadNotification) for event in listing.events)
    fields: dict[str, Any] = {
        "to_index": uploads,
        "to_remove": len(listing.events) - uploads,
        "unchanged": listing.unchanged,
        "under_way": listing.under_way,
        "set_aside_before": listing.set_aside,
        "forgotten_before": listing.forgotten,
        "left_out": [each._asdict() for each in left_out],
    }
    for each in left_out[:_LEFT_OUT_SHOWN_MAX]:
        console.print(f"  left out: {each.path!r}: {each.reason}", markup=False)
    if len(left_out) > _LEFT_OUT_SHOWN_MAX:
        console.print(f"  … and {len(left_out) - _LEFT_OUT_SHOWN_MAX:,} more are left out: see --json")
    if queue_only or stop.requested:
        console.print(_told(listing, uploads))
        return {"listed": fields, "done": None}
    waiting = bool(listing.events) or bool(listing.under_way) or asyncio.run(is_waiting(shelf.url))
    idle = interval is None and not waiting
    if shelf.places:
        console.print(_told(listing, uploads) + (": nothing is to be done" if idle else ""))
    if idle:
        if not shelf.places:
            console.print("nothing waits in the queue")
        return {"listed": fields, "done": None}
    return {"listed": fields, "done": _run(shelf, order, uploads, console, stop, interval)}


def _run(
    shelf: Shelf, order: Order, uploads: int, console: Console, stop: Stop, interval: float | None
) -> dict[str, Any] | None:
    """Work, and while following again after every rebuild that this job had to make way for."""
    notice = await_rebuild(order.url, stop, console)
    shelf = order.as_left(shelf)
    while not stop.requested:
        try:
            return _worked(shelf, uploads, console, stop, interval)
        except Fenced:
            # Another job that has taken over is no rebuild: it goes on instead of this one.
            if interval is None or asyncio.run(read_notice(order.url)).number == notice.number:
                raise
            notice = await_rebuild(order.url, stop, console)
        except Closed as error:
            _check_asked(stop, error)
            console.print(_ENDED)
            return None
        # With the model and the chunks that it has now, whatever this command was started with.
        shelf, uploads = order.again(shelf), 0
        console.print(f"going on with index {order.index}, made with {shelf.target.name.model}")
    return None


def _check_asked(stop: Stop, error: Closed) -> None:
    """Only somebody who asks for the end keeps a job from being opened in good order."""
    if not stop.requested:
        raise error


def _worked(shelf: Shelf, uploads: int, console: Console, stop: Stop, interval: float | None) -> dict[str, Any]:
    with ProgressView(console, uploads) as view, opened_job(shelf.plan, view, stop) as job:
        try:
            if interval is None:
                job.run_available()
            else:
                view.working("following")
                with _following(shelf, interval, console):
                    job.await_end(job.start())
        except Exception:
            # Whoever asked for the end knows why the work was not done, and may have ended Spark with it.
            if not stop.requested:
                raise
        summary, seconds = job.summary, view.seconds
    for line in summary_lines(summary, seconds):
        console.print(line, markup=False)
    if stop.requested:
        console.print(_ENDED)
    return summary_fields(summary, seconds)


def _following(shelf: Shelf, interval: float, console: Console) -> Follower:
    def failed(error: PenstockError) -> None:
        console.print(f"could not look at the places: {error}; looking again in {interval:g} s", markup=False)

    return Follower(shelf.look, lambda events: send(shelf.url, events), interval, failed=failed)


def _told(listing: Listing, uploads: int) -> str:
    removed = len(listing.events) - uploads
    told = f"{uploads:,} to index, {removed:,} to remove, {listing.unchanged:,} unchanged"
    if listing.under_way:
        told += f", {listing.under_way:,} under way"
    if listing.set_aside:
        told += f", {listing.set_aside:,} set aside before (see `penstock documents list`)"
    if listing.forgotten:
        told += f", {listing.forgotten:,} forgotten before (see `penstock documents retry`)"
    return told
