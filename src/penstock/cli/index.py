"""`penstock index`: lists what it is given, puts notifications on the queue, and runs the indexing job on it.

The job takes them from there exactly as it takes those that a bucket sends. Documents that are current already are not
notified, so that indexing a folder again costs what has changed; documents that are gone are notified as deleted.
Without a path it takes what waits in the queue.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from penstock.cli.entries import read_entries
from penstock.cli.following import Follower
from penstock.cli.handover import await_rebuild
from penstock.cli.left_out import LeftOut, files_left_out
from penstock.cli.listing import Listing, compare, list_places
from penstock.cli.places import (
    Place,
    bucket_option,
    chunking_options,
    collection_options,
    json_option,
    place_of,
    url_of,
)
from penstock.cli.progress import ProgressView, summary_fields, summary_lines
from penstock.cli.providers import Provider, provider_options, rate_options
from penstock.cli.running import ENDING, JobPlan, Stop, opened_job
from penstock.cli.sending import is_waiting, send
from penstock.cli.targets import Target, embedding_for, find_target
from penstock.cli.unreadable import UnreadableFolders
from penstock.documents import ChunkingConfig, UploadNotification
from penstock.errors import Closed, Fenced, InvalidInput, PenstockError
from penstock.objects.url import parse_url
from penstock.pipelines.reading import Reading
from penstock.pipelines.rebuild_notice import read_notice
from penstock.pipelines.reindexing import Wish, cut_wished

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
    order = _Order(places, url_of(store), tenant, index_name, buckets, master)
    console = Console(highlight=False, quiet=as_json, soft_wrap=True)
    with Stop(lambda: console.print(ENDING)) as stop:
        told = _index(
            order.laid_out(wish, provider), order, console, stop, interval if follow else None, queue_only=queue_only
        )
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
    if stop.requested and not follow:
        raise SystemExit(stop.exit_code)


@dataclass(frozen=True)
class _Order:
    """What a person has asked for that holds whatever the index is made with."""

    places: Sequence[str]
    url: str
    tenant: str
    index: str
    buckets: Mapping[str, str]
    master: str

    def again(self, before: _Shelf) -> _Shelf:
        """As a rebuild has left it. A key goes nowhere but to the address it was given for."""
        target = asyncio.run(find_target(self.url, self.tenant, self.index, None))
        asked = before.plan.embedding.endpoint_of(before.target.name.model)
        key = asked.api_key if asked and asked.url == target.endpoint else None
        embedding = before.plan.embedding
        return self.laid_out(Wish(), Provider(key=key, rate=embedding.rate, keys=embedding.keys))

    def laid_out(self, wish: Wish, provider: Provider) -> _Shelf:
        """With the index as it is now."""
        target = asyncio.run(find_target(self.url, self.tenant, self.index, wish.model))
        target.check_model()
        chunking = _chunking(target, wish)
        embedding = embedding_for(target, provider)
        fingerprint = embedding.chunking_of(target.name.model, chunking).fingerprint
        plan = JobPlan(self.url, self.master, embedding, Reading(buckets=self.buckets), chunking)
        return _Shelf([place_of(place, self.buckets) for place in self.places], target, fingerprint, plan)


@dataclass(frozen=True)
class _Shelf:
    """Places, the index that is made of them, and the job that makes it."""

    places: Sequence[Place]
    target: Target
    fingerprint: str
    plan: JobPlan

    @property
    def url(self) -> str:
        return self.plan.url

    async def look(self) -> Listing:
        unreadable = UnreadableFolders()
        found = await list_places(self.places, self.plan.reading, self.url, unreadable)
        known = await read_entries(self.url, self.target.name) if self.places else []
        listing = compare(self.target.name, found, known, self.fingerprint)
        listing.events = unreadable.without_deletions(listing.events)
        return listing

    def left_out(self) -> list[LeftOut]:
        """What lies in the folders among the places and cannot be indexed."""
        own = _folder(self.url)
        folders = [_folder(self.plan.reading.spec_of(place.bucket).url) for place in self.places if place.key is None]
        return [each for folder in folders if folder for each in files_left_out(folder, own)]


def _index(
    shelf: _Shelf, order: _Order, console: Console, stop: Stop, interval: float | None, *, queue_only: bool
) -> dict[str, Any]:
    """Look, send, and run; what was seen and done, as fields."""
    listing = asyncio.run(shelf.look())
    send(shelf.url, listing.events)
    left_out = shelf.left_out()
    uploads = sum(isinstance(event, UploadNotification) for event in listing.events)
    fields: dict[str, Any] = {
        "to_index": uploads,
        "to_remove": len(listing.events) - uploads,
        "unchanged": listing.unchanged,
        "under_way": listing.under_way,
        "set_aside_before": listing.set_aside,
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
    shelf: _Shelf, order: _Order, uploads: int, console: Console, stop: Stop, interval: float | None
) -> dict[str, Any] | None:
    """Work, and while following again after every rebuild that this job had to make way for."""
    notice = await_rebuild(order.url, stop, console)
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


def _worked(shelf: _Shelf, uploads: int, console: Console, stop: Stop, interval: float | None) -> dict[str, Any]:
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


def _following(shelf: _Shelf, interval: float, console: Console) -> Follower:
    def failed(error: PenstockError) -> None:
        console.print(f"could not look at the places: {error}; looking again in {interval:g} s", markup=False)

    return Follower(shelf.look, lambda events: send(shelf.url, events), interval, failed=failed)


def _chunking(target: Target, wish: Wish) -> ChunkingConfig:
    """That of the index; for a new one, what is wished for."""
    cut = cut_wished(target.cut(), wish)
    if target.settings is not None and cut != target.cut():
        raise InvalidInput(
            f"index {target.name.index} is cut in another way",
            f"it has {target.cut().target_tokens} tokens a chunk and {target.cut().overlap_tokens} of overlap",
            "`penstock reindex` changes it",
        )
    return cut.chunking(ChunkingConfig())


def _folder(url: str) -> Path | None:
    """The directory of a store that is one."""
    place = parse_url(url)
    return Path(place.place).resolve() if place.scheme == "file" else None


def _told(listing: Listing, uploads: int) -> str:
    removed = len(listing.events) - uploads
    told = f"{uploads:,} to index, {removed:,} to remove, {listing.unchanged:,} unchanged"
    if listing.under_way:
        told += f", {listing.under_way:,} under way"
    if listing.set_aside:
        told += f", {listing.set_aside:,} set aside before (see `penstock documents list`)"
    return told
