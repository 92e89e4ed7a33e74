"""SeaweedFS's filer webhook: a path and the entry before and after.

The webhook tells nothing of an order, so a write is ordered by its own time of modification and a delete by the time it
was received. Only paths under `/buckets/` are objects.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Final

import msgspec

from penstock.documents import sequencers
from penstock.documents.notifications.received import (
    EventGatherer,
    NotificationMessage,
    Received,
    Router,
    number_text,
    read,
)
from penstock.errors import InvalidInput

__all__ = ["parse"]

_BUCKETS: Final = "/buckets/"


class _Attributes(msgspec.Struct):
    file_size: int = 0
    mtime: int = 0
    mtime_ns: int = 0
    mime: str | None = None
    md5: str | None = None


class _Entry(msgspec.Struct):
    name: str = ""
    is_directory: bool = False
    attributes: _Attributes = msgspec.field(default_factory=_Attributes)


class _Change(msgspec.Struct):
    old_entry: _Entry | None = None
    new_entry: _Entry | None = None
    new_parent_path: str = ""


class _Webhook(msgspec.Struct):
    key: str
    message: _Change | None = None
    message_data: _Change | None = None


def parse(delivery: NotificationMessage, route: Router) -> Received:
    told = read(delivery.body, _Webhook, "a webhook of SeaweedFS")
    change = told.message or told.message_data or _Change()
    events = EventGatherer(route, delivery.origin)
    old, new = change.old_entry, change.new_entry
    entry = new or old
    if not told.key.startswith(_BUCKETS) or entry is None or entry.is_directory:
        events.ignore(f"{told.key}: no object")
        return events.received()
    path = told.key
    if new and change.new_parent_path:
        path = f"{change.new_parent_path}/{new.name}"
    if old and path != told.key:
        _delete(told.key, delivery, events)  # a rename leaves its old name
    if new:
        _upload(path, new.attributes, events)
    elif old:
        _delete(told.key, delivery, events)
    return events.received()


def _upload(path: str, attributes: _Attributes, events: EventGatherer) -> None:
    bucket, _, key = path.removeprefix(_BUCKETS).partition("/")
    nanoseconds = attributes.mtime * 1_000_000_000 + attributes.mtime_ns
    events.upload(
        bucket=bucket,
        key=key,
        size=attributes.file_size,
        at=_moment(nanoseconds),
        sequencer=sequencers.stamped(nanoseconds),
        etag=_etag(attributes.md5),
        content_type=attributes.mime,
    )


def _delete(path: str, delivery: NotificationMessage, events: EventGatherer) -> None:
    bucket, _, key = path.removeprefix(_BUCKETS).partition("/")
    sequencer = sequencers.stamped(delivery.received_at_ms * 1_000_000)
    events.delete(bucket=bucket, key=key, at=delivery.received_at, sequencer=sequencer)


def _moment(nanoseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(nanoseconds // 1_000_000 / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(
            f"a file has the time {number_text(nanoseconds)} ns", f"it is not a valid time: {error}"
        ) from error


def _etag(md5: str | None) -> str | None:
    try:
        return base64.b64decode(md5, validate=True).hex() if md5 else None
    except ValueError:
        return None
