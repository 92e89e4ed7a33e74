"""`penstock index`: lists what it is given, puts notifications on the queue, and runs the indexing job on it.

The job takes them from there exactly as it takes those that a bucket sends. Documents that are current already are not
notified, so that indexing a folder again costs what has changed; documents that are gone are notified as deleted.
Without a path it takes what waits in the queue.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.cli.doctor import java_shim_directory
from penstock.cli.entries import read_entries
from penstock.cli.listing import Listing, compare, list_place
from penstock.cli.places import Place, bucket_option, collection_options, embedding_options, place_of, url_of
from penstock.cli.sending import count_waiting, send
from penstock.documents import ChunkingConfig, UploadNotification
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.reading import Reading
from penstock.vector import CollectionName

__all__ = ["index"]

_QUIET: Final = {"spark.log.level": "ERROR"}


@click.command()
@click.argument("places", nargs=-1, metavar="[PATH_OR_URL]…")
@collection_options
@click.option("--follow", is_flag=True, help="Go on taking notifications from the queue until interrupted.")
@bucket_option
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@embedding_options
def index(
    places: tuple[str, ...],
    store: str,
    index_name: str,
    tenant: str,
    model: str,
    follow: bool,
    buckets: Mapping[str, str],
    master: str,
    embedding_url: str | None,
    embedding_key: str | None,
) -> None:
    """Make documents searchable: files, folders and buckets, and whatever waits in the queue."""
    url, name = url_of(store), CollectionName(tenant, index_name, model)
    embedding, reading = Embedding(embedding_url, embedding_key), Reading(buckets=buckets)
    console = Console(highlight=False)
    fingerprint = embedding.chunking_of(model, ChunkingConfig()).fingerprint
    named = [place_of(place, buckets) for place in places]
    listing = asyncio.run(_look(named, url, name, fingerprint, reading))
    send(url, listing.events)
    uploads = sum(isinstance(event, UploadNotification) for event in listing.events)
    if places:
        console.print(_told(listing, uploads))
    if follow or listing.events or listing.under_way or asyncio.run(count_waiting(url)):
        _run(url, embedding, reading, master, follow, uploads, console)
    elif not places:
        console.print("nothing waits in the queue")


async def _look(places: Sequence[Place], url: str, name: CollectionName, fingerprint: str, reading: Reading) -> Listing:
    found = {place: await list_place(place, reading, url) for place in places}
    known = await read_entries(url, name) if places else []
    return compare(name, found, known, fingerprint)


def _told(listing: Listing, uploads: int) -> str:
    removed = len(listing.events) - uploads
    told = f"{uploads:,} to index, {removed:,} to remove, {listing.unchanged:,} unchanged"
    if listing.under_way:
        told += f", {listing.under_way:,} under way"
    if listing.set_aside:
        told += f", {listing.set_aside:,} set aside before (see `penstock documents list`)"
    return told


# The job -------------------------------------------------------------------------------------------------


def _run(
    url: str, embedding: Embedding, reading: Reading, master: str, follow: bool, documents: int, console: Console
) -> None:
    from penstock.pipelines.indexing import IndexingConfig, IndexingJob, IndexingSummary
    from penstock.pipelines.session import open_session, prepare_environment

    prepare_environment(os.environ, java_shim_directory())
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,} documents  {task.fields[figures]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("starting Spark", total=documents, figures="")

        def show(summary: IndexingSummary) -> None:
            figures = f"{summary.chunks:,} chunks  {summary.tokens:,} tokens"
            done = summary.documents + len(summary.set_aside)
            bar.update(task, description="indexing", completed=done, total=max(documents, done), figures=figures)

        spark = open_session(master, settings=_QUIET)
        try:
            config = IndexingConfig(url, _checkpoint(url), embedding=embedding, reading=reading)
            with IndexingJob(spark, config, progress=show) as job:
                bar.update(task, description="indexing")
                if follow:
                    _follow(job)
                else:
                    job.run_available()
        finally:
            spark.stop()
    _summarise(job.summary, console)


def _follow(job: Any) -> None:
    query = job.start()
    try:
        job.await_end(query)
    except KeyboardInterrupt:
        query.stop()


def _checkpoint(url: str) -> str:
    """Beside the store when it is a directory. Losing it costs nothing: the position lies in the store."""
    if url.startswith("file://"):
        return str(Path(url.removeprefix("file://")) / "checkpoint")
    return str(Path.cwd() / "penstock-checkpoint")


def _summarise(summary: Any, console: Console) -> None:
    console.print(
        f"[bold]{summary.documents:,}[/] documents, {summary.chunks:,} chunks, {summary.tokens:,} tokens, "
        f"{summary.deleted:,} removed, {summary.unchanged:,} unchanged, {len(summary.set_aside):,} set aside"
        + (f", ${summary.cost_usd:.4f}" if summary.cost_usd else "")
    )
    for key, status, reason in summary.set_aside:
        console.print(f"  {status}: {key}: {reason}", markup=False, soft_wrap=True)
