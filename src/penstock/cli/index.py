"""`penstock index`: lists what it is given, puts notifications on the queue, and runs the indexing job on it.

The job takes them from there exactly as it takes those that a bucket sends. Documents that are current already are not
notified, so that indexing a folder again costs what has changed; documents that are gone are notified as deleted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.buffer import ConsumerConfig, Manifest, SyncProducer
from penstock.cli.doctor import java_shim_directory
from penstock.cli.places import Place, collection_options, place_of, url_of
from penstock.cli.search import read_entries
from penstock.clock import SYSTEM_CLOCK
from penstock.documents import ChunkingConfig, DeleteNotification, Notification, UploadNotification, doc_id_of, encode
from penstock.documents.sequencers import stamped
from penstock.errors import NotFound
from penstock.objects import ObjectMeta, open_store
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.registry import SOURCE, VECTOR_PATH, DocumentEntry
from penstock.vector import CollectionName, VectorStore

__all__ = ["index"]

# Notifications in one record of the queue's batch: a folder of any size is sent in bounded steps.
_EVENTS_PER_CALL: Final = 1000
_QUIET: Final = {"spark.log.level": "ERROR"}


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="PATH_OR_URL…")
@collection_options
@click.option("--follow", is_flag=True, help="Go on taking notifications from the queue until interrupted.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option("--embedding-url", default=None, metavar="URL", help="An OpenAI-compatible endpoint for the model.")
@click.option("--embedding-key", default=None, envvar="PENSTOCK_EMBEDDING_KEY", help="Its key.")
def index(
    places: tuple[str, ...],
    store: str,
    index_name: str,
    tenant: str,
    model: str,
    follow: bool,
    master: str,
    embedding_url: str | None,
    embedding_key: str | None,
) -> None:
    """Make documents searchable: files, folders and buckets."""
    url, name = url_of(store), CollectionName(tenant, index_name, model)
    embedding = Embedding(embedding_url, embedding_key)
    console = Console(highlight=False)
    fingerprint = embedding.chunking_of(model, ChunkingConfig()).fingerprint
    events, unchanged = asyncio.run(_events([place_of(place) for place in places], url, name, fingerprint))
    _send(url, events)
    uploads = sum(isinstance(event, UploadNotification) for event in events)
    console.print(f"{uploads:,} to index, {len(events) - uploads:,} to remove, {unchanged:,} unchanged")
    if follow or events or asyncio.run(_waiting(url)):
        _run(url, embedding, master, follow, uploads, console)


# What to notify ------------------------------------------------------------------------------------------


async def _events(
    places: Sequence[Place], url: str, name: CollectionName, fingerprint: str
) -> tuple[list[Notification], int]:
    """The notifications that are needed, and how many documents need none."""
    known = {(entry.bucket, entry.key): entry for entry in await read_entries(url, name)}
    events: list[Notification] = []
    unchanged = 0
    for place in places:
        listed = await _listed(place, url)
        for meta in listed:
            upload = UploadNotification(etag=meta.version, size_bytes=meta.size, **_event(name, place.bucket, meta.key))
            if _is_current(known.get((place.bucket, meta.key)), upload, fingerprint):
                unchanged += 1
            else:
                events.append(upload)
        if place.key is None:
            events += _gone(known.values(), place.bucket, listed, name)
    return events, unchanged


async def _listed(place: Place, url: str) -> list[ObjectMeta]:
    store = await open_store(place.bucket, read_only=True)
    try:
        if place.key is not None:
            return [await store.head(place.key)]
        pages = [page async for page in store.list()]
    finally:
        await store.close()
    # The store's own directory may lie in the folder that is indexed.
    own = url.removeprefix(place.bucket).lstrip("/") + "/" if url.startswith(f"{place.bucket}/") else None
    found = [meta for page in pages for meta in page]
    return [meta for meta in found if not _is_hidden(meta.key) and not (own and meta.key.startswith(own))]


def _is_hidden(key: str) -> bool:
    return any(segment.startswith(".") for segment in key.split("/"))


def _is_current(entry: DocumentEntry | None, upload: UploadNotification, fingerprint: str) -> bool:
    if entry is None or entry.pending is not None:
        return False
    return entry.current == doc_id_of(upload) and entry.fingerprint == fingerprint


def _gone(
    known: Iterable[DocumentEntry], bucket: str, listed: Sequence[ObjectMeta], name: CollectionName
) -> list[DeleteNotification]:
    present = {meta.key for meta in listed}
    missing = [e.key for e in known if e.bucket == bucket and not e.state.tombstone and e.key not in present]
    return [DeleteNotification(**_event(name, bucket, key)) for key in missing]


def _event(name: CollectionName, bucket: str, key: str) -> dict[str, Any]:
    now_ms = SYSTEM_CLOCK.now_ms()
    return {
        "tenant_id": name.tenant,
        "index_id": name.index,
        "model": name.model,
        "bucket": bucket,
        "key": key,
        "created_at": datetime.fromtimestamp(now_ms / 1000, UTC),
        # A listing has no order of its own: what is seen now is newer than what was seen before.
        "sequencer": stamped(now_ms * 1_000_000),
    }


def _send(url: str, events: Sequence[Notification]) -> None:
    if not events:
        return
    with SyncProducer(url) as producer:
        for start in range(0, len(events), _EVENTS_PER_CALL):
            producer.produce([encode(event) for event in events[start : start + _EVENTS_PER_CALL]]).durable()


async def _waiting(url: str) -> bool:
    """Whether an earlier run has left something in the queue."""
    try:
        store = await open_store(url, read_only=True)
    except NotFound:
        return False
    try:
        manifest = Manifest((await store.get(ConsumerConfig().manifest_path)).data)
        async with await VectorStore.open_reader(url, VECTOR_PATH) as reader:
            return manifest.count_after(await reader.position(SOURCE)) > 0
    except NotFound:
        return False
    finally:
        await store.close()


# The job -------------------------------------------------------------------------------------------------


def _run(url: str, embedding: Embedding, master: str, follow: bool, documents: int, console: Console) -> None:
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
            config = IndexingConfig(url, _checkpoint(url), embedding=embedding)
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
