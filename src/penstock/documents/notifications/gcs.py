"""Google Cloud Storage through a Pub/Sub push: the event in attributes, the object as base64 JSON.

An overwrite is told twice, as a deletion of the old generation and a creation of the new one; the deletion is ignored.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

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
from penstock.errors import InvalidInput

__all__ = ["GcsObject", "collect", "parse"]


class _Attributes(msgspec.Struct, rename="camel"):
    event_type: str
    bucket_id: str
    object_id: str
    object_generation: str
    event_time: str | None = None
    overwritten_by_generation: str | None = None


class _Message(msgspec.Struct, rename="camel"):
    attributes: _Attributes
    data: str = ""
    message_id: str | None = None
    publish_time: str | None = None


class _Push(msgspec.Struct):
    message: _Message


class GcsObject(msgspec.Struct, rename="camel"):
    """The part of an object's resource that is read."""

    size: int = 0
    content_type: str | None = None
    bucket: str = ""
    name: str = ""
    generation: str = ""
    # What the uploader said of the object.
    metadata: dict[str, Any] | None = None


def parse(delivery: NotificationMessage, route: Router) -> Received:
    message = read(delivery.body, _Push, "a push of Pub/Sub").message
    told = message.attributes
    events = EventGatherer(route, delivery.origin)
    if told.overwritten_by_generation:
        events.ignore(f"{told.bucket_id}/{told.object_id}: generation {told.object_generation} was overwritten")
        return events.received()
    resource = read(_decoded(message.data), GcsObject, "an object of Google storage") if message.data else GcsObject()
    resource.bucket, resource.name, resource.generation = told.bucket_id, told.object_id, told.object_generation
    time = told.event_time or message.publish_time
    at = instant(time, told.object_id) if time else delivery.received_at
    kind = {"OBJECT_FINALIZE": "finalized", "OBJECT_DELETE": "deleted", "OBJECT_ARCHIVE": "archived"}
    collect(kind.get(told.event_type, told.event_type), resource, at, events, source_id=message.message_id)
    return events.received()


def collect(kind: str, resource: GcsObject, at: datetime, events: EventGatherer, *, source_id: str | None) -> None:
    """One event of `kind` (finalized, deleted, archived), also when it came as a CloudEvent."""
    # By its URL: a bucket without one is read as S3's.
    bucket = f"gs://{resource.bucket}" if resource.bucket else ""
    if kind == "finalized":
        events.upload(
            bucket=bucket,
            key=resource.name,
            size=resource.size,
            at=at,
            sequencer=sequencers.gcs(resource.generation, deleted=False),
            # What reads are conditional on at Google, and what the object store calls its version.
            etag=resource.generation,
            version_id=resource.generation,
            content_type=resource.content_type,
            source_id=source_id,
            metadata=resource.metadata,
        )
    elif kind in ("deleted", "archived"):
        # Archived is what a bucket with versions says when the live generation goes. Its order is before the next one.
        sequencer = sequencers.gcs(resource.generation, deleted=True)
        events.delete(bucket=bucket, key=resource.name, at=at, sequencer=sequencer, source_id=source_id)
    else:
        events.ignore(f"{resource.bucket}/{resource.name}: {kind}")


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidInput("the data of a Pub/Sub message is not base64", str(error)) from error
