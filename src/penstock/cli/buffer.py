"""`penstock buffer`: look at a queue, check it, and collect its garbage. Only `collect` ever writes.

None of these takes the fence, so all are safe beside a running consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final

import click

from penstock.buffer import Collector, CollectorConfig, ConsumedBatch, DeadLetters, Descriptor, Manifest
from penstock.buffer.config import DATA_PATH_PREFIX, GRACE_SECONDS, MANIFEST_PATH
from penstock.buffer.inspection import check_batches, gaps_of, read_batches, read_manifest
from penstock.buffer.lag import lag_of
from penstock.clock import SYSTEM_CLOCK
from penstock.objects import ObjectStore, open_store

__all__ = ["buffer"]

# What a terminal shows of one record or payload.
_PREVIEW_BYTES: Final = 60
_POLL_SECONDS: Final = 1.0

_manifest_option = click.option("--manifest", default=MANIFEST_PATH, show_default=True, help="The manifest's key.")
_prefix_option = click.option("--prefix", default=DATA_PATH_PREFIX, show_default=True, help="Where batch objects lie.")


@click.group()
def buffer() -> None:
    """Look at a queue on object storage, check it, collect its garbage."""


@buffer.command()
@click.argument("url")
@_manifest_option
@_prefix_option
@click.option("--limit", default=20, show_default=True, help="Entries to list from the head of the queue.")
def inspect(url: str, manifest: str, prefix: str, limit: int) -> None:
    """Show the manifest, the lag, and the batches at the head of the queue."""

    async def look(store: ObjectStore) -> None:
        found = await read_manifest(store, manifest)
        letters = await DeadLetters(store, prefix).sequences(0, found.next_sequence)
        for line in (*_summary(found, manifest, len(letters)), *map(_entry, found.after(None, limit))):
            click.echo(line)
        if len(found) > limit:
            click.echo(f"... and {len(found) - limit} more")

    _on(url, look)


@buffer.command()
@click.argument("url")
@_manifest_option
@click.option("--from", "first", type=int, default=None, help="Begin at this sequence instead of the head.")
@click.option("--records", default=5, show_default=True, help="Records to show of each batch.")
@click.option("--follow", is_flag=True, help="Go on with what is produced next, until interrupted.")
def tail(url: str, manifest: str, first: int | None, records: int, follow: bool) -> None:
    """Print what is queued, batch by batch, without consuming it."""

    async def show(store: ObjectStore) -> None:
        last = None if first is None else first - 1
        while True:
            found = await read_manifest(store, manifest)
            async for batch in read_batches(store, found.after(last, len(found))):
                _show(batch, records)
                last = batch.sequence
            if not follow:
                return
            await SYSTEM_CLOCK.sleep(_POLL_SECONDS)

    _on(url, show)


@buffer.command()
@click.argument("url")
@_manifest_option
def verify(url: str, manifest: str) -> None:
    """Check that every queued object exists and decodes, and that no sequence is missing."""

    async def check(store: ObjectStore) -> int:
        found = await read_manifest(store, manifest)
        problems = [f"sequences jump from {before} to {after}" for before, after in gaps_of(found)]
        batches = records = record_bytes = 0
        async for batch in check_batches(store, found):
            batches, records = batches + 1, records + batch.records
            record_bytes += batch.record_bytes
            if batch.error is not None:
                problems.append(f"batch {batch.descriptor.sequence}: {batch.error}")
        for problem in problems:
            click.echo(problem)
        click.echo(f"{batches} batches, {records:,} records, {record_bytes:,} bytes, {len(problems)} problems")
        return len(problems)

    if _on(url, check):
        raise SystemExit(1)


@buffer.command()
@click.argument("url")
@_manifest_option
@_prefix_option
@click.option("--grace", default=GRACE_SECONDS, show_default=True, help="Seconds an object is left alone for.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def collect(url: str, manifest: str, prefix: str, grace: float, dry_run: bool) -> None:
    """Delete batch objects that were consumed or never enqueued.

    The grace must be the one that every producer of this queue is configured with.
    """
    config = CollectorConfig(data_path_prefix=prefix, manifest_path=manifest, grace_seconds=grace)

    async def run(store: ObjectStore) -> None:
        await read_manifest(store, manifest)
        collector = Collector(store, config)
        if dry_run:
            async for page in collector.find():
                for meta in page:
                    click.echo(f"{meta.key}  {meta.size:,} bytes")
        done = await collector.collect(dry_run=dry_run)
        verb = "would be deleted" if dry_run else "deleted"
        click.echo(f"{done.deleted} objects, {done.deleted_bytes:,} bytes {verb}")

    _on(url, run, read_only=dry_run)


def _on(url: str, work: Callable[[ObjectStore], Coroutine[Any, Any, Any]], *, read_only: bool = True) -> Any:
    """Run on the store, which is opened for reading unless the command says otherwise."""

    async def run() -> Any:
        store = await open_store(url, read_only=read_only)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _summary(manifest: Manifest, path: str, dead_letters: int) -> list[str]:
    lag = lag_of(manifest, None, SYSTEM_CLOCK.now_ms())
    return [
        f"manifest      {path}, {len(manifest.body):,} bytes",
        f"queued        {lag.batches:,} batches, the oldest waits for {lag.seconds:,.1f} s",
        f"sequences     {manifest.first_sequence} to {manifest.next_sequence} (next)",
        f"fence         {manifest.fence}",
        f"dead letters  {dead_letters}",
    ]


def _entry(descriptor: Descriptor) -> str:
    line = f"{descriptor.sequence:>8}  {descriptor.location}"
    if not descriptor.metadata:
        return line
    first = descriptor.metadata[0]
    more = f" and {len(descriptor.metadata) - 1} more" if len(descriptor.metadata) > 1 else ""
    return f"{line}  {_moment(first.ingestion_time_ms)}  {_preview(first.payload) or 'no metadata'}{more}"


def _show(batch: ConsumedBatch, records: int) -> None:
    click.echo(f"{batch.sequence}  {batch.location}  {len(batch.records):,} records, {batch.records.nbytes:,} bytes")
    for record in batch.records[:records]:
        click.echo(f"    {_preview(record)}")
    if len(batch.records) > records:
        click.echo(f"    ... and {len(batch.records) - records} more")


def _preview(data: bytes | memoryview) -> str:
    head = bytes(data[:_PREVIEW_BYTES])
    text = head.decode(errors="replace")
    shown = text if text.isprintable() and "\ufffd" not in text else head.hex(" ", 4)
    return f"{shown}{' ...' if len(data) > _PREVIEW_BYTES else ''}"


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
