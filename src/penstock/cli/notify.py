"""`penstock notify`: raw notifications of an object store, from a file or standard input, onto the queue.

The input is one JSON document or one on each line, exactly as the store sent it. With keys or tokens it must also be
signed, or it is refused; with a topic, every document is a message of Amazon SNS around the event, signed by it.
Everything is checked and read before anything is sent: a broken input sends nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import httpx
import msgspec

from penstock.cli.places import collection_options, json_option, url_of
from penstock.cli.plain import plain
from penstock.cli.secrets import read_secret, warn_of_secret
from penstock.cli.sending import described, send
from penstock.cli.targets import find_target
from penstock.clock import SYSTEM_CLOCK
from penstock.documents import Notification, UploadNotification
from penstock.documents.notifications import PARSERS, Delivery, Destination, Received, parser_of
from penstock.documents.notifications.cloudevents import BATCHED
from penstock.documents.notifications.replays import StoredReplays
from penstock.documents.notifications.sns import SnsTrust
from penstock.documents.notifications.trust import BearerTrust, HmacTrust
from penstock.errors import AtCapacity, InvalidInput, NotFound, PenstockError, PermissionDenied, Unavailable
from penstock.objects import StoreSpec

__all__ = ["documents_in", "notify", "receive"]

# Held in memory while it is read; a store sends a thousandth of it at a time.
INPUT_BYTES_MAX: Final = 64 << 20
# Events that a terminal shows; `--json` shows all.
_SHOWN_MAX: Final = 20
_FETCH_SECONDS_MAX: Final = 10.0


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--source", type=click.Choice(sorted(PARSERS)), required=True, help="Who wrote the notifications.")
@collection_options
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    envvar="PENSTOCK_NOTIFY_SECRETS",
    callback=warn_of_secret,
    help="Refuse input that this key has not signed (HMAC-SHA256). Repeatable.",
)
@click.option(
    "--secret-file", "secret_files", multiple=True, metavar="FILE", help="File that holds such a key. Repeatable."
)
@click.option(
    "--bearer",
    "tokens",
    multiple=True,
    envvar="PENSTOCK_NOTIFY_TOKENS",
    callback=warn_of_secret,
    help="Refuse input that does not carry this token. Repeatable.",
)
@click.option(
    "--bearer-file", "token_files", multiple=True, metavar="FILE", help="File that holds such a token. Repeatable."
)
@click.option(
    "--sns-topic", "topics", multiple=True, metavar="ARN", help="Take messages of SNS, of this topic alone. Repeatable."
)
@click.option("--sns-certificate", default=None, metavar="FILE", help="Who signs them (PEM), instead of asking Amazon.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header it came with. Repeatable.")
@json_option
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
) -> None:
    """Put notifications of an object store on the queue; `penstock index` takes them from there."""
    url, data = url_of(store), _read(file)
    delivery = Delivery(data, _headers(headers), SYSTEM_CLOCK.now_ms())
    keys, known = [*secrets, *map(read_secret, secret_files)], [*tokens, *map(read_secret, token_files)]
    signed = HmacTrust([os.fsencode(key) for key in keys], replays=StoredReplays(StoreSpec(url))) if keys else None
    if signed:
        signed.verify(delivery)
    if known:
        BearerTrust(known).check(delivery)
    target = asyncio.run(find_target(url, tenant, index_name, model))
    pinned = sns_certificate is not None
    sns = SnsTrust(topics, _certificate_door(sns_certificate), pinned=pinned) if topics else None
    received = receive(source, delivery, Destination(tenant, index_name, target.name.model), sns)
    _send_once(url, received, delivery, signed)
    if as_json:
        click.echo(json.dumps(_summary(received)))
    else:
        _say(received, index_name)


def _send_once(url: str, received: Received, delivery: Delivery, signed: HmacTrust | None) -> None:
    """Send the events, unless this very delivery was sent before. One that could not be sent may be tried again."""
    if signed is None:
        send(url, received.notifications)
        return
    signed.claim(delivery)
    try:
        send(url, received.notifications)
    except BaseException:
        signed.release(delivery)
        raise


def receive(source: str, delivery: Delivery, destination: Destination, sns: SnsTrust | None = None) -> Received:
    """The events of all documents in a delivery, in their order; with `sns`, of the messages that it believes."""
    parse = parser_of(source)
    notifications: list[Notification] = []
    ignored: list[str] = []
    for number, body in enumerate(documents_in(delivery.body), 1):
        one = Delivery(body, _typed(delivery.headers, source, body), delivery.received_at_ms)
        try:
            event = _unwrapped(one, sns) if sns else one
            if event is None:
                ignored.append(f"message {number} is no event: a subscription is confirmed at the address in it")
                continue
            found = parse(event, lambda _bucket, _key: destination)
        except PenstockError as error:
            raise type(error)(f"notification {number} of the input: {error.what}", error.why, error.remedy) from error
        notifications += found.notifications
        ignored += found.ignored
    return Received(tuple(notifications), tuple(ignored))


def documents_in(data: bytes) -> list[bytes]:
    """One JSON document, however it is laid out, or one a line."""
    text = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        raise InvalidInput("there is no notification in the input", "it is empty")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) == 1 or _fault(text) is None:
        lines = [(1, text)]
    for number, line in lines:
        fault = _fault(line)
        if fault is not None:
            raise InvalidInput(f"line {number} of the input is no JSON", fault, "send it as the store wrote it")
    return [line for _, line in lines]


def _unwrapped(delivery: Delivery, sns: SnsTrust) -> Delivery | None:
    """The event in a message of SNS; None when it asks to confirm a subscription."""
    message = sns.message(delivery)
    return replace(delivery, body=message.message.encode()) if message.type == "Notification" else None


def _certificate_door(file: str | None) -> Callable[[str], bytes]:
    """Where the certificate of a signer comes from: a file that was checked by hand, or Amazon."""
    if file is not None:
        pem = _read_file(Path(file))
        return lambda _: pem
    return _fetched


def _fetched(url: str) -> bytes:
    try:
        return httpx.get(url, timeout=_FETCH_SECONDS_MAX).raise_for_status().content
    except httpx.HTTPError as error:
        raise Unavailable(f"the certificate {url} cannot be fetched", str(error), "give --sns-certificate") from error


def _fault(text: bytes) -> str | None:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return None


def _typed(headers: Mapping[str, str], source: str, body: bytes) -> Mapping[str, str]:
    """A file has no content type: a list of CloudEvents is a batch."""
    if source == "cloudevents" and body[:1] == b"[" and "content-type" not in headers:
        return {**headers, "content-type": BATCHED}
    return headers


def _read(file: str) -> bytes:
    data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1) if file == "-" else _read_file(Path(file))
    if len(data) > INPUT_BYTES_MAX:
        raise AtCapacity(
            f"{file} is too large", f"at most {INPUT_BYTES_MAX} bytes are read at once", "send it in parts"
        )
    return data


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(INPUT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no {path}", "the file does not exist", "name a file, or - for the input") from None
    except IsADirectoryError:
        raise InvalidInput(f"{path} cannot be read", "it is a folder", "name a file, or - for the input") from None
    except PermissionError as error:
        raise PermissionDenied(f"{path} cannot be read", str(error.strerror)) from None


def _headers(given: Sequence[str]) -> dict[str, str]:
    parts = [each.partition(":") for each in given]
    if any(not (name.strip() and colon) for name, colon, _ in parts):
        raise click.BadParameter("a header is NAME:VALUE", param_hint="--header")
    return {name.strip().lower(): value.strip() for name, _, value in parts}


def _summary(received: Received) -> dict[str, Any]:
    queued = [json.loads(msgspec.json.encode(event)) for event in received.notifications]
    return {"queued": queued, "ignored": list(received.ignored)}


def _say(received: Received, index_name: str) -> None:
    uploads = sum(isinstance(event, UploadNotification) for event in received.notifications)
    deletes = len(received.notifications) - uploads
    click.echo(
        f"queued for index {index_name}: {uploads:,} uploads, {deletes:,} deletes; {len(received.ignored):,} ignored"
    )
    lines = [described(event) for event in received.notifications]
    lines += [plain(f"ignored: {reason}") for reason in received.ignored]
    for line in lines[:_SHOWN_MAX]:
        click.echo(f"  {line}")
    if len(lines) > _SHOWN_MAX:
        click.echo(f"  … and {len(lines) - _SHOWN_MAX:,} more")
