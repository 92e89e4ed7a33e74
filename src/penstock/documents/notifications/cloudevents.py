"""CloudEvents 1.0 over HTTP, in its structured, binary and batched forms.

An event of a known type is read by the parser of its store: S3's adapter types, Google's and Azure's storage events.
Other types are ignored by name. A batch with one broken event is refused whole, so that the sender keeps it.
"""

from __future__ import annotations

import base64
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from penstock.documents.notifications import azure, gcs, s3
from penstock.documents.notifications.received import (
    EventGatherer,
    NotificationMessage,
    Origin,
    Received,
    Router,
    convert,
    instant,
    is_text,
    read,
)
from penstock.errors import InvalidInput, Unsupported
from penstock.observability import checked_traceparent

__all__ = ["CloudEvent", "parse", "read_events"]

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
# The adapter of the CloudEvents project says amazonaws, a widely used source says amazon.
_S3_TYPES: Final = ("com.amazonaws.s3.", "com.amazon.s3.")
_GCS_TYPES: Final = "google.cloud.storage.object.v1."


class CloudEvent(msgspec.Struct):
    """The attributes that are read, and the data."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str | None = None
    time: str | None = None
    # Of the extension for distributed tracing.
    traceparent: Any = None
    # An extension of ours: what is said of the object beside its content, an object of JSON or its text.
    metadata: Any = None
    data: Any = None
    data_base64: str | None = None


def parse(delivery: NotificationMessage, route: Router) -> Received:
    events = EventGatherer(route, delivery.origin)
    for event in read_events(delivery):
        trace = checked_traceparent(event.traceparent) or delivery.origin.traceparent
        events.origin = Origin(event.id, trace, _metadata(event))
        _collect(event, delivery, events)
    return events.received()


def read_events(delivery: NotificationMessage) -> list[CloudEvent]:
    """The events of a delivery, whichever form its content type names."""
    kind = delivery.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == BATCHED:
        found = read(delivery.body, list[CloudEvent], "a batch of CloudEvents")
    elif kind == STRUCTURED or "ce-specversion" not in delivery.headers:
        found = [read(delivery.body, CloudEvent, "a CloudEvent")]
    else:
        found = [_binary(delivery)]
    for event in found:
        _check(event)
    return found


def _binary(delivery: NotificationMessage) -> CloudEvent:
    """Attributes are headers, percent-encoded; the body is the data."""
    names = ("specversion", "id", "source", "type", "subject", "time", "traceparent", "metadata")
    attributes = {name: unquote(delivery.headers[f"ce-{name}"]) for name in names if f"ce-{name}" in delivery.headers}
    for name, value in attributes.items():
        if not is_text(value):
            raise InvalidInput(f"the header ce-{name} cannot be read", "it is not text", "send it percent-encoded")
    event = convert(attributes, CloudEvent, "a CloudEvent in binary form")
    event.data = read(delivery.body, Any, "the data of a CloudEvent") if delivery.body else None
    return event


def _check(event: CloudEvent) -> None:
    if event.specversion != "1.0":
        raise Unsupported(f"CloudEvents {event.specversion[:40]}", "version 1.0 is understood", "send specversion 1.0")
    if not (event.id and event.source and event.type):
        raise InvalidInput("a CloudEvent has no id, source or type", "all three are required")
    if event.data_base64 is not None:
        try:
            event.data = read(base64.b64decode(event.data_base64, validate=True), Any, "data_base64")
        except ValueError as error:
            raise InvalidInput(f"the data of CloudEvent {event.id[:80]!r} is not base64", str(error)) from error


def _metadata(event: CloudEvent) -> dict[str, Any] | None:
    """What an event says of its object; attributes of CloudEvents are texts, so that it may be JSON in one."""
    said = event.metadata
    if isinstance(said, str):
        said = read(said, Any, f"the metadata of CloudEvent {event.id[:80]!r}")
    if said is not None and not isinstance(said, dict):
        raise InvalidInput(f"the metadata of CloudEvent {event.id[:80]!r}", "it is not a JSON object", "send an object")
    return said or None


def _collect(event: CloudEvent, delivery: NotificationMessage, events: EventGatherer) -> None:
    data = event.data if isinstance(event.data, dict) else {}
    time = event.time or delivery.received_at.isoformat()
    if event.type.lower().startswith(_S3_TYPES):
        for record in _s3_records(event, data, time):
            s3.parse_record(convert(record, s3.S3Record, f"the data of {event.type}"), events)
    elif event.type.startswith(_GCS_TYPES):
        resource = convert(data, gcs.GcsObject, f"the data of {event.type}")
        at = instant(time, event.id)
        gcs.collect(event.type.removeprefix(_GCS_TYPES), resource, at, events, source_id=event.id)
    elif event.type.startswith("Microsoft.Storage."):
        subject = event.subject or ""
        azure.collect(event.type, subject, time, data, events, source_id=event.id, topic=event.source)
    else:
        events.ignore(f"{event.id}: events of type {event.type}")


def _s3_records(event: CloudEvent, data: dict[str, Any], time: str) -> list[Any]:
    """The adapter passes the record on, or only its `s3` part, or all of the original event."""
    if "Records" in data:
        return convert(data["Records"], list[Any], f"the records of {event.type}")
    if "s3" in data:
        return [{"eventName": _event_name(event.type), "eventTime": time, **data}]
    return [{"eventName": _event_name(event.type), "eventTime": time, "s3": data}]


def _event_name(kind: str) -> str:
    name = kind.rpartition(".s3.")[2]
    known = {"objectcreated": "ObjectCreated:Put", "objectremoved": "ObjectRemoved:Delete"}
    return known.get(name.lower(), name)
