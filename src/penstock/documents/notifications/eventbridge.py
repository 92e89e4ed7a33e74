"""AWS EventBridge: one event a delivery, `Object Created` or `Object Deleted`, with a raw key."""

from __future__ import annotations

import msgspec

from penstock.documents import sequencers
from penstock.documents.notifications.received import (
    EventGatherer,
    NotificationMessage,
    Received,
    Router,
    instant,
    read,
)

__all__ = ["parse"]


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct, rename="kebab"):
    key: str
    size: int = 0
    etag: str | None = None
    version_id: str | None = None
    sequencer: str | None = None


class _Detail(msgspec.Struct, rename="kebab"):
    bucket: _Bucket
    object: _Object
    deletion_type: str | None = None


class _Event(msgspec.Struct, rename="kebab"):
    detail_type: str
    time: str
    detail: _Detail
    id: str | None = None


def parse(delivery: NotificationMessage, route: Router) -> Received:
    event = read(delivery.body, _Event, "an event of EventBridge")
    events = EventGatherer(route, delivery.origin)
    bucket, found = event.detail.bucket.name, event.detail.object
    at = instant(event.time, f"{bucket}/{found.key}")
    sequencer = sequencers.s3(found.sequencer) if found.sequencer else None
    if event.detail_type == "Object Created":
        events.upload(
            bucket=bucket,
            key=found.key,
            size=found.size,
            at=at,
            sequencer=sequencer,
            etag=found.etag,
            version_id=found.version_id,
            source_id=event.id,
        )
    elif event.detail_type == "Object Deleted":
        marker = event.detail.deletion_type == "Delete Marker Created"
        version = None if marker else found.version_id
        events.delete(bucket=bucket, key=found.key, at=at, sequencer=sequencer, version_id=version, source_id=event.id)
    else:
        events.ignore(f"{bucket}/{found.key}: {event.detail_type}")
    return events.received()
