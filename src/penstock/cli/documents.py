"""`penstock documents`: what became of documents, and a second chance or an end for some of them.

`list` and `show` read beside whoever writes. `retry` and `forget` change nothing themselves: they put notifications on
the queue, behind everything the index has heard of the object, and the indexing job takes them from there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.cli.entries import find_entries, read_entries
from penstock.cli.listing import deletion, upload_of
from penstock.cli.places import bucket_option, collection_options, json_option, url_of
from penstock.cli.plain import plain
from penstock.cli.sending import described, send
from penstock.cli.targets import find_target
from penstock.clock import SYSTEM_CLOCK
from penstock.documents import DocumentStatus, Notification, UploadNotification
from penstock.errors import InvalidInput, NotFound
from penstock.objects import ObjectMeta, ObjectStore
from penstock.pipelines.reading import Reading
from penstock.pipelines.registry import DocumentEntry, Pending

__all__ = ["documents", "heads_of", "status_of"]

_NEXT: Final = "`penstock index` takes them from the queue"
# Requests to one bucket at once.
_HEADS_AT_ONCE: Final = 16


@click.group()
def documents() -> None:
    """What became of documents; read some again, or forget them."""


@documents.command("list")
@collection_options
@click.option(
    "--status",
    type=click.Choice(["pending", *(each.value for each in DocumentStatus)]),
    default=None,
    help="Only these.",
)
@json_option
def list_documents(
    store: str, index_name: str, tenant: str, model: str | None, status: str | None, as_json: bool
) -> None:
    """List the documents of an index with their last reports."""
    target = asyncio.run(find_target(url_of(store), tenant, index_name, model))
    entries = asyncio.run(read_entries(url_of(store), target.name))
    rows = [_row(entry) for entry in entries if status in (None, status_of(entry))]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
        return
    if not rows:
        click.echo(f"Index {index_name} has no such documents." if status else f"Index {index_name} has no documents.")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("document", "status", "chunks", "tokens", "reason"):
        table.add_column(heading, justify="right" if heading in ("chunks", "tokens") else "left")
    for row in rows:
        cells = (row["key"], row["status"], f"{row['chunks']:,}", f"{row['tokens']:,}", row["reason"] or _warned(row))
        table.add_row(*(escape(plain(cell)) for cell in cells))
    Console(highlight=False).print(table)


@documents.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@collection_options
@json_option
def show(keys: tuple[str, ...], store: str, index_name: str, tenant: str, model: str | None, as_json: bool) -> None:
    """Show everything that is known of documents."""
    target = asyncio.run(find_target(url_of(store), tenant, index_name, model))
    entries = asyncio.run(read_entries(url_of(store), target.name))
    for entry in find_entries(entries, keys):
        if as_json:
            click.echo(json.dumps({**_row(entry), **_details(entry)}, ensure_ascii=False))
            continue
        click.echo(plain(entry.key))
        for what, value in _lines(entry):
            click.echo(f"  {what:<11} {plain(value)}")


@documents.command()
@click.argument("keys", nargs=-1, metavar="[KEY]…")
@click.option("--all-quarantined", is_flag=True, help="All that could not be read or parsed.")
@collection_options
@bucket_option
@json_option
def retry(
    keys: tuple[str, ...],
    all_quarantined: bool,
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    buckets: Mapping[str, str],
    as_json: bool,
) -> None:
    """Read documents anew, also those that have not changed."""
    if bool(keys) == all_quarantined:
        raise click.UsageError("name documents, or give --all-quarantined")
    url = url_of(store)
    name = asyncio.run(find_target(url, tenant, index_name, model)).name
    entries = asyncio.run(read_entries(url, name))
    quarantined = [entry for entry in entries if status_of(entry) == DocumentStatus.QUARANTINED]
    chosen = quarantined if all_quarantined else find_entries(entries, keys)
    heads = asyncio.run(heads_of(chosen, Reading(buckets=buckets)))
    gone = [entry.key for entry in chosen if entry.object_key not in heads]
    if gone and not all_quarantined:
        raise NotFound(f"{', '.join(gone)} cannot be read again", "gone from the bucket", "`penstock documents forget`")
    now_ms = SYSTEM_CLOCK.now_ms()
    events = [
        upload_of(
            name, entry.bucket, heads[entry.object_key], now_ms, state=entry.state, told=entry.upload, reread=True
        )
        for entry in chosen
        if entry.object_key in heads
    ]
    send(url, events)
    _tell(events, [f"{key}: gone from its bucket" for key in gone], as_json)


@documents.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@collection_options
@json_option
def forget(keys: tuple[str, ...], store: str, index_name: str, tenant: str, model: str | None, as_json: bool) -> None:
    """Remove documents from the index, until they change, are named to `index` or retried."""
    url = url_of(store)
    name = asyncio.run(find_target(url, tenant, index_name, model)).name
    chosen = find_entries(asyncio.run(read_entries(url, name)), keys)
    now_ms = SYSTEM_CLOCK.now_ms()
    events = [
        deletion(name, entry, now_ms, forgotten=entry.upload.etag if entry.upload else None)
        for entry in chosen
        if not entry.state.tombstone
    ]
    send(url, events)
    _tell(events, [f"{entry.key}: removed already" for entry in chosen if entry.state.tombstone], as_json)


def status_of(entry: DocumentEntry) -> str:
    return "pending" if entry.pending or entry.report is None else entry.report.status.value


async def heads_of(entries: Sequence[DocumentEntry], reading: Reading) -> dict[str, ObjectMeta]:
    """The objects of documents as they are now, by objectKey; those that are gone are left out."""
    heads: dict[str, ObjectMeta] = {}
    for bucket in dict.fromkeys(entry.bucket for entry in entries):
        if not bucket:
            raise InvalidInput("a record of the queue cannot be read again", "it was no notification of a document")
        store = await reading.spec_of(bucket).open()
        try:
            heads |= await _heads_in(store, [entry for entry in entries if entry.bucket == bucket])
        finally:
            await store.close()
    return heads


async def _heads_in(store: ObjectStore, entries: Sequence[DocumentEntry]) -> dict[str, ObjectMeta]:
    gate = asyncio.Semaphore(_HEADS_AT_ONCE)

    async def head(entry: DocumentEntry) -> tuple[str, ObjectMeta] | None:
        async with gate:
            try:
                return entry.object_key, await store.head(entry.key)
            except NotFound:
                return None

    return dict([found for found in await asyncio.gather(*map(head, entries)) if found])


def _row(entry: DocumentEntry) -> dict[str, Any]:
    report = entry.report
    return {
        "bucket": entry.bucket,
        "key": entry.key,
        "status": status_of(entry),
        "chunks": report.chunks if report else 0,
        "tokens": report.tokens if report else 0,
        "reason": _reason(entry),
        "warnings": list(report.warnings) if report else [],
    }


def _warned(row: Mapping[str, Any]) -> str:
    """The first warning of a document, and how many more there are."""
    first, *more = row["warnings"] or [""]
    return f"warning: {first}" + (f" (and {len(more)} more)" if more else "") if first else ""


def _reason(entry: DocumentEntry) -> str | None:
    """Why a document waits, or what its last report says."""
    if entry.pending is None:
        return entry.report.reason if entry.report else None
    return f"waits: {entry.pending.wait.reason}" if entry.pending.wait else None


def _details(entry: DocumentEntry) -> dict[str, Any]:
    """Beyond a row of the list."""
    report, upload = entry.report, entry.upload
    return {
        "cost_usd": report.cost_usd if report else 0.0,
        "missing_seqs": list(report.missing_seqs) if report else [],
        "current": entry.current,
        "chunking": entry.fingerprint,
        "revision": entry.state.revision,
        "told_at": entry.state.at.isoformat(),
        "sequencer": entry.state.sequencer,
        "upload": msgspec.to_builtins(upload) if upload else None,
        "pending": _progress(entry.pending) if entry.pending else None,
    }


def _progress(pending: Pending) -> dict[str, Any]:
    return {
        "document": pending.doc_id,
        "chunks": pending.chunks,
        "tokens": pending.tokens,
        "next_byte_start": pending.progress.next_byte_start,
        "text_bytes": pending.upload.size_bytes if pending.text_bytes is None else pending.text_bytes,
        "warnings": list(pending.warnings),
        "tries": pending.wait.tries if pending.wait else 0,
        "next_try": _time(pending.wait.until_ms) if pending.wait and pending.wait.until_ms else None,
    }


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _lines(entry: DocumentEntry) -> list[tuple[str, str]]:
    """The same for a person; what says nothing is left out."""
    row, more = _row(entry), _details(entry)
    upload, pending = entry.upload, more["pending"]
    size = f"{upload.size_bytes:,} bytes" if upload else "gone"
    lines = [
        ("bucket", entry.bucket),
        ("status", row["status"] + (f": {row['reason']}" if row["reason"] else "")),
        ("searchable", f"version {entry.current[:12]}" if entry.current else "no version"),
        ("object", size + (f", etag {upload.etag}" if upload and upload.etag else "")),
        ("told", f"{more['told_at']}, event {more['revision']}, order {more['sequencer'] or 'by time'}"),
        ("chunks", f"{row['chunks']:,}"),
        ("tokens", f"{row['tokens']:,}"),
        ("cost", f"${more['cost_usd']:.6f}"),
    ]
    if upload and upload.version_id:
        lines.append(("version", upload.version_id))
    if pending:
        reached = f"up to byte {pending['next_byte_start']:,} of {pending['text_bytes']:,}"
        done = f"{pending['chunks']:,} chunks, {pending['tokens']:,} tokens, {reached}"
        lines.append(("being built", f"version {pending['document'][:12]}: {done}"))
    if pending and pending["tries"]:
        lines.append(("tried", f"{pending['tries']} times, next {pending['next_try'] or 'at once'}"))
    return [*lines, *(("warning", warning) for warning in row["warnings"])]


def _tell(events: Sequence[Notification], skipped: Sequence[str], as_json: bool) -> None:
    if as_json:
        queued = [{"bucket": event.bucket, "key": event.key, "event": _kind(event)} for event in events]
        click.echo(json.dumps({"queued": queued, "skipped": list(skipped)}, ensure_ascii=False))
        return
    for line in [*map(described, events), *(f"skipped: {reason}" for reason in skipped)]:
        click.echo(line)
    click.echo(f"{len(events):,} queued" + (f": {_NEXT}" if events else ""))


def _kind(event: Notification) -> str:
    return "upload" if isinstance(event, UploadNotification) else "delete"
