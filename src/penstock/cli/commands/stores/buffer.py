"""`penstock buffer`: look at a queue, check it, replay its dead letters, and collect its garbage.

Only `collect` and `replay` ever write.

None of these takes the fence, so all are safe beside a running consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.numbers import FiniteRange
from penstock.cli.settings.options import settings_option

if TYPE_CHECKING:
    from penstock.buffer import ConsumerConfig
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching

__all__ = ["DATA_PATH_PREFIX", "GRACE_SECONDS", "MANIFEST_PATH", "buffer"]

# The room's own defaults, written again so that help does not load it; a test holds them equal.
DATA_PATH_PREFIX: Final = "ingest"
MANIFEST_PATH: Final = "ingest/manifest"
GRACE_SECONDS: Final = 600.0
_COUNT: Final = click.IntRange(min=0)

_store_argument = click.argument("store", metavar="STORE")
_manifest_option = click.option(
    "--manifest", default=None, help=f"Key of the manifest.  [default: from the settings, else {MANIFEST_PATH}]"
)
_prefix_option = click.option(
    "--prefix",
    default=None,
    help=f"Prefix of batch objects.  [default: from the settings, else {DATA_PATH_PREFIX}]",
)


@click.group()
def buffer() -> None:
    """Inspect, verify, replay or clean up a queue on object storage.

    STORE is a directory, or a URL: file:///directory, s3://bucket/prefix, az://container/prefix or
    gs://bucket/prefix; credentials and endpoints come from the service's usual environment variables.
    Only collect and replay write, and no command disturbs a running consumer.
    """


@buffer.command()
@_store_argument
@_manifest_option
@_prefix_option
@click.option("--limit", type=_COUNT, default=20, show_default=True, help="Number of batches to list.")
@settings_option
def inspect(store: str, manifest: str | None, prefix: str | None, limit: int, settings: Settings) -> None:
    """Show the manifest, the lag and the first batches."""
    from penstock.cli.inspection.queue import QueueStore, inspect_queue

    config = _consumer(settings, manifest, prefix)
    QueueStore(store, settings).run(lambda opened: inspect_queue(opened, config, limit))


@buffer.command()
@_store_argument
@_manifest_option
@click.option("--from", "first", type=_COUNT, default=None, help="First sequence to print, instead of the oldest.")
@click.option("--records", type=_COUNT, default=5, show_default=True, help="Number of records to print per batch.")
@click.option("--follow", is_flag=True, help="Print what is produced next, until interrupted.")
@long_running
def tail(
    store: str,
    manifest: str | None,
    first: int | None,
    records: int,
    follow: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Print what is queued, without consuming it.

    A batch that cannot be read is reported and skipped; the exit code is then 1.
    """
    from penstock.cli.inspection.queue import QueueStore, tail_queue

    path = _consumer(settings, manifest).manifest_path
    with watching.opened() as observer:
        queue = QueueStore(store, settings, observer)
        sound = queue.run(lambda opened: tail_queue(opened, path, first, records, follow=follow))
    if not sound:
        raise SystemExit(1)


@buffer.command()
@_store_argument
@_manifest_option
@long_running
def verify(store: str, manifest: str | None, settings: Settings, watching: Watching) -> None:
    """Check that every queued object exists and decodes.

    A manifest with missing sequences is rejected as a whole. The exit code is 1 if there is any problem.
    """
    from penstock.cli.inspection.queue import QueueStore, verify_queue

    path = _consumer(settings, manifest).manifest_path
    with watching.opened() as observer:
        problems = QueueStore(store, settings, observer).run(lambda opened: verify_queue(opened, path))
    if problems:
        raise SystemExit(1)


@buffer.command()
@_store_argument
@_manifest_option
@_prefix_option
@click.option(
    "--grace",
    type=FiniteRange(0),
    default=None,
    help=f"Age below which objects are kept, in seconds.  [default: from the settings, else {GRACE_SECONDS:g}]",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
@long_running
def collect(
    store: str,
    manifest: str | None,
    prefix: str | None,
    grace: float | None,
    dry_run: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Delete batch objects that no consumer needs.

    These are objects that were consumed, and objects that never entered the queue.

    The grace period must equal the one that the producers of this queue are configured with.
    """
    from penstock.buffer import CollectorConfig
    from penstock.cli.inspection.queue import QueueStore, collect_garbage

    config = settings.of(CollectorConfig, data_path_prefix=prefix, manifest_path=manifest, grace_seconds=grace)
    QueueStore(store, settings).require(config.manifest_path)
    with watching.opened() as observer:
        QueueStore(store, settings, observer).run(
            lambda opened: collect_garbage(opened, config, observer, dry_run=dry_run), read_only=dry_run
        )


@buffer.command()
@_store_argument
@click.argument("sequences", type=_COUNT, nargs=-1)
@_manifest_option
@_prefix_option
@click.option("--again", is_flag=True, help="Replay batches that were, or may have been, replayed before.")
@long_running
def replay(
    store: str,
    sequences: tuple[int, ...],
    manifest: str | None,
    prefix: str | None,
    again: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Put dead letters back into the queue.

    Replays all dead letters, or only SEQUENCES. A batch that can be read now (its object was restored, or this
    release knows its version) goes to the end of the queue under a new sequence. A batch that was replayed
    before is skipped, even if that command was killed. If it is unknown whether it was, it is listed, and
    needs --again. The exit code is 1 if any batch could not be replayed.
    """
    from penstock.buffer import ProducerConfig
    from penstock.cli.inspection.queue import QueueStore, replay_dead_letters

    config = settings.of(ProducerConfig, data_path_prefix=prefix, manifest_path=manifest)
    QueueStore(store, settings).require(config.manifest_path)
    with watching.opened() as observer:
        sound = QueueStore(store, settings, observer).run(
            lambda opened: replay_dead_letters(opened, config, observer, sequences, again=again), read_only=False
        )
    if not sound:
        raise SystemExit(1)


def _consumer(settings: Settings, manifest: str | None, prefix: str | None = None) -> ConsumerConfig:
    """Where a queue lies, for those who look at it."""
    from penstock.buffer import ConsumerConfig

    return settings.of(ConsumerConfig, manifest_path=manifest, data_path_prefix=prefix)
