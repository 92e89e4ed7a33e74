"""`penstock buffer`: look at a queue, check it, replay its dead letters, and collect its garbage.

Only `collect` and `replay` ever write.

None of these takes the fence, so all are safe beside a running consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from penstock.buffer import (
    Collector,
    CollectorConfig,
    ConsumedBatch,
    DeadLetters,
    Descriptor,
    Manifest,
    ProducerConfig,
    Replayed,
    Replayer,
)
from penstock.buffer.config import DATA_PATH_PREFIX, GRACE_SECONDS, MANIFEST_PATH
from penstock.buffer.inspection import read_batches, read_manifest
from penstock.buffer.lag import lag_of
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Corrupt, PenstockError
from penstock.objects import ObjectStore, open_store

__all__ = ["buffer"]

# What a terminal shows of one record or payload.
_PREVIEW_BYTES: Final = 60
_POLL_SECONDS: Final = 1.0
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COUNT: Final = click.IntRange(min=0)

_manifest_option = click.option("--manifest", default=MANIFEST_PATH, show_default=True, help="The manifest's key.")
_prefix_option = click.option("--prefix", default=DATA_PATH_PREFIX, show_default=True, help="Where batch objects lie.")


@click.group()
def buffer() -> None:
    """Look at a queue on object storage, check it, replay its dead letters, collect its garbage.

    URL is file:///directory, s3://bucket/prefix, az://container/prefix or gs://bucket/prefix;
    credentials and endpoints come from the service's usual environment variables. All but collect
    and replay only read, and none disturbs a running consumer.
    """


@buffer.command()
@click.argument("url")
@_manifest_option
@_prefix_option
@click.option("--limit", type=_COUNT, default=20, show_default=True, help="Entries to list from the head.")
def inspect(url: str, manifest: str, prefix: str, limit: int) -> None:
    """Show the manifest, the lag and the first batches."""

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
@click.option("--from", "first", type=_COUNT, default=None, help="Begin at this sequence instead of the head.")
@click.option("--records", type=_COUNT, default=5, show_default=True, help="Records to show of each batch.")
@click.option("--follow", is_flag=True, help="Go on with what is produced next, until interrupted.")
def tail(url: str, manifest: str, first: int | None, records: int, follow: bool) -> None:
    """Print what is queued, without consuming it.

    A batch that cannot be read is named, and those behind it are printed; the exit code is then 1.
    """

    async def show(store: ObjectStore) -> bool:
        last, sound = None if first is None else first - 1, True
        while True:
            found = await read_manifest(store, manifest)
            async for reading in read_batches(store, found.after(last, len(found))):
                last = reading.descriptor.sequence
                if reading.batch is not None:
                    _show(reading.batch, records)
                else:
                    click.echo(str(reading.error))
                    sound = False
            if not follow:
                return sound
            await SYSTEM_CLOCK.sleep(_POLL_SECONDS)

    if not _on(url, show):
        raise SystemExit(1)


@buffer.command()
@click.argument("url")
@_manifest_option
def verify(url: str, manifest: str) -> None:
    """Check that every queued object exists and decodes.

    A manifest in which sequences are missing is refused as a whole. The exit code is 1 if there is any problem.
    """

    async def check(store: ObjectStore) -> int:
        try:
            found = await read_manifest(store, manifest)
        except Corrupt as error:
            click.echo(str(error))
            return 1
        problems: list[str] = []
        batches = records = record_bytes = 0
        async for reading in read_batches(store, list(found)):
            batches += 1
            if reading.batch is not None:
                records += len(reading.batch.records)
                record_bytes += reading.batch.records.nbytes
            else:
                problems.append(str(reading.error))
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
    """Delete batch objects that nobody needs.

    Those are the ones that were consumed, and those that never came into the queue.

    The grace must be the one that every producer of this queue is configured with.
    """
    config = CollectorConfig(data_path_prefix=prefix, manifest_path=manifest, grace_seconds=grace)

    async def run(store: ObjectStore) -> None:
        collector = Collector(store, config)
        if dry_run:
            async for page in collector.find():
                for meta in page:
                    click.echo(f"{meta.key}  {meta.size:,} bytes")
        done = await collector.collect(dry_run=dry_run)
        verb = "would be deleted" if dry_run else "deleted"
        click.echo(f"{done.deleted} objects, {done.deleted_bytes:,} bytes {verb}")
        if done.waiting:
            click.echo(f"{done.waiting} more wait until the manifest is written again: one could still be enqueued")

    # Looked for by reading alone: a mistyped URL must not become a new, empty store.
    _on(url, lambda store: read_manifest(store, manifest))
    _on(url, run, read_only=dry_run)


@buffer.command()
@click.argument("url")
@click.argument("sequences", type=_COUNT, nargs=-1)
@_manifest_option
@_prefix_option
@click.option("--again", is_flag=True, help="Replay also what was replayed before, or may have been.")
def replay(url: str, sequences: tuple[int, ...], manifest: str, prefix: str, again: bool) -> None:
    """Put dead letters back into the queue.

    All of them, or those of SEQUENCES. A batch that can be read by now (its object was put back, or this
    release knows its version) goes to the end of the queue under a new sequence. One that was replayed
    before is left alone, also if that command was killed; where nobody can tell any more, it is named, and
    needs --again. The exit code is 1 if any could not be replayed.
    """
    config = ProducerConfig(data_path_prefix=prefix, manifest_path=manifest)

    async def run(store: ObjectStore) -> bool:
        end = (await read_manifest(store, manifest)).next_sequence
        chosen = sequences or sorted(await DeadLetters(store, prefix).sequences(0, end))
        replayer, sound = Replayer(store, config), True
        try:
            for sequence in chosen:
                try:
                    click.echo(_told(await replayer.replay(sequence, again=again)))
                except PenstockError as error:
                    click.echo(str(error))
                    sound = False
        finally:
            await replayer.close()
        click.echo(f"{len(chosen)} dead letters")
        return sound

    # Looked for by reading alone: a mistyped URL must not become a new, empty store.
    _on(url, lambda store: read_manifest(store, manifest))
    if not _on(url, run, read_only=False):
        raise SystemExit(1)


def _told(replayed: Replayed) -> str:
    verb = "replayed" if replayed.is_new else "was replayed before"
    return f"{replayed.sequence} {verb}, as {replayed.queued_as}"


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
    line = f"{descriptor.sequence:>8}  {_plain(descriptor.location)}"
    if not descriptor.metadata:
        return line
    first = descriptor.metadata[0]
    more = f" and {len(descriptor.metadata) - 1} more" if len(descriptor.metadata) > 1 else ""
    return f"{line}  {_moment(first.ingestion_time_ms)}  {_preview(first.payload) or 'no metadata'}{more}"


def _show(batch: ConsumedBatch, records: int) -> None:
    click.echo(
        f"{batch.sequence}  {_plain(batch.location)}  {len(batch.records):,} records, {batch.records.nbytes:,} bytes"
    )
    for record in batch.records[:records]:
        click.echo(f"    {_preview(record)}")
    if len(batch.records) > records:
        click.echo(f"    ... and {len(batch.records) - records} more")


def _plain(location: str) -> str:
    """As it is, unless it could steer the terminal it is printed on."""
    return location if location.isprintable() else ascii(location)


def _preview(data: bytes | memoryview) -> str:
    head = bytes(data[:_PREVIEW_BYTES])
    text = head.decode(errors="replace")
    shown = text if text.isprintable() and "\ufffd" not in text else head.hex(" ", 4)
    return f"{shown}{' ...' if len(data) > _PREVIEW_BYTES else ''}"


def _moment(time_ms: int) -> str:
    try:
        return (_UNIX_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        # Any 64 bits can stand there; the calendar ends with the year 9999.
        return f"{time_ms} ms"
