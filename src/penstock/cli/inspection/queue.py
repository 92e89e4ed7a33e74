"""The work of `penstock buffer`: reads a queue, prints what it finds, and replays or collects where it is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import click

from penstock.buffer import (
    Collector,
    CollectorConfig,
    ConsumedBatch,
    ConsumerConfig,
    DeadLetters,
    Descriptor,
    Manifest,
    ProducerConfig,
    Replayed,
    Replayer,
    lag_of,
    read_batches,
    read_manifest,
)
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.store_access import store_options
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Corrupt, PenstockError
from penstock.indexing import url_of
from penstock.objects import ObjectStore, open_store
from penstock.observability import SILENT, Observer

__all__ = ["QueueStore", "collect_garbage", "inspect_queue", "replay_dead_letters", "tail_queue", "verify_queue"]

# What a terminal shows of one record or payload.
_PREVIEW_BYTES: Final = 60
_POLL_SECONDS: Final = 1.0
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_T = TypeVar("_T")


@dataclass(frozen=True)
class QueueStore:
    """The store of a queue, by its directory or URL."""

    store: str
    settings: Settings
    observer: Observer = SILENT

    def run(self, work: Callable[[ObjectStore], Coroutine[Any, Any, _T]], *, read_only: bool = True) -> _T:
        """Run on the store, which is opened for reading unless the command says otherwise."""
        url = url_of(self.store)
        options = store_options(self.settings, url)

        async def run() -> _T:
            opened = await open_store(url, read_only=read_only, observer=self.observer, **options)
            try:
                return await work(opened)
            finally:
                await opened.close()

        return asyncio.run(run())

    def require(self, manifest: str) -> None:
        """Raise unless there is a queue. By reading alone: a mistyped URL must not become a new, empty store."""
        self.run(lambda opened: read_manifest(opened, manifest))


async def inspect_queue(store: ObjectStore, config: ConsumerConfig, limit: int) -> None:
    """Print the manifest, the lag and the first batches."""
    found = await read_manifest(store, config.manifest_path)
    letters = await DeadLetters(store, config.data_path_prefix).sequences(0, found.next_sequence)
    for line in (*_summary(found, config.manifest_path, len(letters)), *map(_entry, found.after(None, limit))):
        click.echo(line)
    if len(found) > limit:
        click.echo(f"... and {len(found) - limit} more")


async def tail_queue(store: ObjectStore, manifest: str, first: int | None, records: int, *, follow: bool) -> bool:
    """Print what is queued; False if a batch could not be read."""
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


async def verify_queue(store: ObjectStore, manifest: str) -> int:
    """Read every queued object, print what is wrong with some, and return how many problems there are."""
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


async def collect_garbage(store: ObjectStore, config: CollectorConfig, observer: Observer, *, dry_run: bool) -> None:
    """Delete what no consumer needs, or only list it, and print how much that is."""
    collector = Collector(store, config, observer=observer)
    if dry_run:
        async for page in collector.find():
            for meta in page:
                click.echo(f"{meta.key}  {meta.size:,} bytes")
    done = await collector.collect(dry_run=dry_run)
    verb = "would be deleted" if dry_run else "deleted"
    click.echo(f"{done.deleted} objects, {done.deleted_bytes:,} bytes {verb}")
    if done.waiting:
        click.echo(f"{done.waiting} more wait until the manifest is written again: one could still be enqueued")


async def replay_dead_letters(
    store: ObjectStore, config: ProducerConfig, observer: Observer, sequences: Sequence[int], *, again: bool
) -> bool:
    """Put dead letters back into the queue; False if one could not be."""
    end = (await read_manifest(store, config.manifest_path)).next_sequence
    chosen = sequences or sorted(await DeadLetters(store, config.data_path_prefix).sequences(0, end))
    replayer, sound = Replayer(store, config, observer=observer), True
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


def _told(replayed: Replayed) -> str:
    verb = "replayed" if replayed.is_new else "was replayed before"
    return f"{replayed.sequence} {verb}, as {replayed.queued_as}"


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
