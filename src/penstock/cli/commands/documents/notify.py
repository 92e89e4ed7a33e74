"""`penstock notify`: raw notifications of an object store, from a file or standard input, onto the queue.

The input is one JSON document or one on each line, exactly as the store sent it. With keys or tokens it must also be
signed, or it is refused; with a topic, every document is a message of Amazon SNS around the event, signed by it.
Everything is checked and read before anything is sent: a broken input sends nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.options import collection_options, json_option
from penstock.cli.settings.secrets import read_secret, warn_of_secret
from penstock.cli.terminal.terminal_text import terminal_text

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching
    from penstock.documents import Notification
    from penstock.documents.notifications import Received

__all__ = ["SOURCES", "notify"]

# Events that a terminal shows; `--json` shows all.
_SHOWN_MAX: Final = 20

# The stores whose notifications are understood; a test holds them to the parsers.
SOURCES: Final = ("azure", "ceph", "cloudevents", "eventbridge", "gcs", "minio", "s3", "seaweedfs")


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--source", type=click.Choice(SOURCES), required=True, help="Format of the notifications.")
@collection_options
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    envvar="PENSTOCK_NOTIFY_SECRETS",
    callback=warn_of_secret,
    help="Key that must have signed the input (HMAC-SHA256). Repeatable.",
)
@click.option("--secret-file", "secret_files", multiple=True, metavar="FILE", help="File with such a key. Repeatable.")
@click.option(
    "--bearer",
    "tokens",
    multiple=True,
    envvar="PENSTOCK_NOTIFY_TOKENS",
    callback=warn_of_secret,
    help="Bearer token that the input must carry. Repeatable.",
)
@click.option("--bearer-file", "token_files", multiple=True, metavar="FILE", help="File with such a token. Repeatable.")
@click.option(
    "--sns-topic",
    "topics",
    multiple=True,
    metavar="ARN",
    help="Amazon SNS topic that the messages must come from. Repeatable.",
)
@click.option(
    "--sns-certificate", default=None, metavar="FILE", help="Signing certificate of SNS (PEM), instead of fetching it."
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME:VALUE", help="HTTP header of the delivery. Repeatable."
)
@json_option
@long_running
def notify(
    file: str,
    source: str,
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    secrets: tuple[str, ...],
    secret_files: tuple[str, ...],
    tokens: tuple[str, ...],
    token_files: tuple[str, ...],
    topics: tuple[str, ...],
    sns_certificate: str | None,
    headers: tuple[str, ...],
    as_json: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Queue the notifications of an object store.

    `penstock index` takes them from there.
    """
    from penstock.cli.settings.wiring import Wiring
    from penstock.cli.terminal.input_file import read_file, read_input
    from penstock.clock import SYSTEM_CLOCK
    from penstock.documents.notifications import NotificationMessage
    from penstock.indexing import Credentials, take_delivery, url_of

    delivery = NotificationMessage(read_input(file), _headers(headers), SYSTEM_CLOCK.now_ms())
    credentials = Credentials(
        keys=[*secrets, *map(read_secret, secret_files)],
        tokens=[*tokens, *map(read_secret, token_files)],
        topics=topics,
        sns_certificate=read_file(Path(sns_certificate)) if sns_certificate else None,
    )
    index = (tenant, index_name, model)
    with watching.opened() as observer:
        wiring = Wiring(settings, observer)
        received = take_delivery(url_of(store), index, source, delivery, credentials, wiring)
    if as_json:
        click.echo(json.dumps(_summary(received)))
    else:
        _say(received, index_name)


def _headers(given: Sequence[str]) -> dict[str, str]:
    parts = [each.partition(":") for each in given]
    if any(not (name.strip() and colon) for name, colon, _ in parts):
        raise click.BadParameter("a header is NAME:VALUE", param_hint="--header")
    return {name.strip().lower(): value.strip() for name, _, value in parts}


def _summary(received: Received) -> dict[str, Any]:
    import msgspec

    queued = [json.loads(msgspec.json.encode(event)) for event in received.notifications]
    return {"queued": queued, "ignored": list(received.ignored)}


def _say(received: Received, index_name: str) -> None:
    from penstock.documents import UploadNotification

    uploads = sum(isinstance(event, UploadNotification) for event in received.notifications)
    deletes = len(received.notifications) - uploads
    click.echo(
        f"queued for index {index_name}: {uploads:,} uploads, {deletes:,} deletes; {len(received.ignored):,} ignored"
    )
    lines = [_described(event) for event in received.notifications]
    lines += [terminal_text(f"ignored: {reason}") for reason in received.ignored]
    for line in lines[:_SHOWN_MAX]:
        click.echo(f"  {line}")
    if len(lines) > _SHOWN_MAX:
        click.echo(f"  … and {len(lines) - _SHOWN_MAX:,} more")


def _described(event: Notification) -> str:
    from penstock.documents import UploadNotification

    if isinstance(event, UploadNotification):
        return terminal_text(f"upload {event.bucket}/{event.key} ({event.size_bytes:,} bytes)")
    return terminal_text(f"delete {event.bucket}/{event.key}")
