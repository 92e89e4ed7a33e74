"""Azure Event Grid: a list of events, and the handshake by which a subscription is confirmed.

ETags come in quotation marks, which are no part of them. The key is read from the subject, where it is not escaped. The
subject leaves out the storage account, and containers of two accounts may have one name: a bucket is therefore called
`az://account.container`, where the event tells the account. Neither name can have a dot. A data lake renames a blob
without writing it, and tells of both names in one event: the old one is gone, and of the new one neither the size nor
the ETag is told, so that whoever reads it looks.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.documents import sequencers
from penstock.documents.notifications.received import (
    EventGatherer,
    NotificationMessage,
    Received,
    Router,
    convert,
    instant,
    read,
)
from penstock.errors import InvalidInput

__all__ = ["BlobData", "collect", "parse"]

# As in /subscriptions/…/providers/Microsoft.Storage/storageAccounts/account
_TOPIC: Final = re.compile(r"/storageAccounts/([a-z0-9]{3,24})(?:/|$)", re.IGNORECASE)
# As in https://account.blob.core.windows.net/container/key; an emulator has the account elsewhere.
_HOST: Final = re.compile(r"https?://([a-z0-9]{3,24})\.(?:[a-z0-9]{1,8}\.)?(?:blob|dfs)\.", re.IGNORECASE)
_HANDSHAKE: Final = "Microsoft.EventGrid.SubscriptionValidationEvent"


class _Event(msgspec.Struct, rename="camel"):
    event_type: str
    subject: str
    event_time: str
    data: dict[str, Any]
    id: str | None = None
    topic: str | None = None


class BlobData(msgspec.Struct, rename="camel"):
    e_tag: str | None = None
    content_type: str | None = None
    content_length: int = 0
    sequencer: str | None = None
    url: str | None = None
    # Of a blob that was renamed.
    source_url: str | None = None


def parse(delivery: NotificationMessage, route: Router) -> Received:
    listed = delivery.body.lstrip()[:1] == b"["
    sent = (
        read(delivery.body, list[_Event], "a list of Event Grid events")
        if listed
        else [read(delivery.body, _Event, "an Event Grid event")]
    )
    for event in sent:
        if event.event_type == _HANDSHAKE:
            return _handshake(event.data)
    events = EventGatherer(route, delivery.origin)
    for event in sent:
        collect(
            event.event_type,
            event.subject,
            event.event_time,
            event.data,
            events,
            source_id=event.id,
            topic=event.topic,
        )
    return events.received()


def collect(
    kind: str,
    subject: str,
    time: str,
    data: dict[str, Any],
    events: EventGatherer,
    *,
    source_id: str | None,
    topic: str | None,
) -> None:
    """One event of a blob, also when it came as a CloudEvent, whose source is the topic."""
    if not kind.startswith("Microsoft.Storage.Blob"):
        events.ignore(f"{subject}: {kind}")
        return
    blob = convert(data, BlobData, f"the data of {kind}")
    account = _account(topic, blob.url or blob.source_url)
    container, key = _place(subject, account)
    at, sequencer = instant(time, subject), sequencers.azure(blob.sequencer) if blob.sequencer else None
    if kind == "Microsoft.Storage.BlobRenamed":
        bucket, name = _renamed_from(blob.source_url, account)
        events.delete(bucket=bucket, key=name, at=at, sequencer=sequencer, source_id=source_id)
    if kind in ("Microsoft.Storage.BlobCreated", "Microsoft.Storage.BlobRenamed"):
        events.upload(
            bucket=container,
            key=key,
            size=blob.content_length,
            at=at,
            sequencer=sequencer,
            etag=blob.e_tag,
            content_type=blob.content_type,
            source_id=source_id,
        )
    elif kind == "Microsoft.Storage.BlobDeleted":
        events.delete(bucket=container, key=key, at=at, sequencer=sequencer, source_id=source_id)
    else:
        events.ignore(f"{container}/{key}: {kind}")


def _account(topic: str | None, url: str | None) -> str | None:
    """The storage account, as far as an event tells it."""
    found = _TOPIC.search(topic or "") or _HOST.match(url or "")
    return found[1].lower() if found else None


def _place(subject: str, account: str | None) -> tuple[str, str]:
    _, containers, rest = subject.partition("/containers/")
    container, blobs, key = rest.partition("/blobs/")
    if not (containers and blobs and container and key):
        raise InvalidInput(f"there is no blob in {subject[:120]!r}", "it has no /containers/…/blobs/…")
    if "." in container:
        raise InvalidInput(f"a container cannot be named {container[:80]!r}", "a dot separates it from its account")
    return _bucket(container, account), key


def _renamed_from(url: str | None, account: str | None) -> tuple[str, str]:
    """The place in the URL of a blob, in which names are escaped."""
    try:
        parts = urlsplit(url or "")
    except ValueError as error:
        raise InvalidInput(f"a blob was renamed from {str(url)[:120]!r}", str(error)) from error
    container, slash, key = unquote(parts.path).removeprefix("/").partition("/")
    if parts.scheme not in ("http", "https") or not (slash and container and key) or "." in container:
        raise InvalidInput(f"a blob was renamed from {str(url)[:120]!r}", "it is no https://…/container/name")
    return _bucket(container, account), key


def _bucket(container: str, account: str | None) -> str:
    """By its URL: a bucket without one is read as S3's."""
    return f"az://{account}.{container}" if account else f"az://{container}"


def _handshake(data: dict[str, Any]) -> Received:
    code = data.get("validationCode")
    if not isinstance(code, str) or not code:
        raise InvalidInput("an Event Grid handshake has no code", "validationCode is missing")
    return Received(ignored=("a handshake",), reply=msgspec.json.encode({"validationResponse": code}))
