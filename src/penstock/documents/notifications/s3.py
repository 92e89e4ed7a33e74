"""AWS S3 events: `Records[]`, from SQS, SNS or a webhook; also the test event that S3 sends when it is set up.

Keys are form-encoded. Only the major part of `eventVersion` is checked: minor ones add members. MinIO and Ceph send
the same records with differences; `Dialect` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_plus

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
from penstock.errors import InvalidInput, Unsupported

__all__ = ["AWS", "Dialect", "S3Record", "parse", "parse_record"]

_MAJOR: Final = "2"
_REQUEST_ID: Final = "x-amz-request-id"
_REMOVALS: Final = ("ObjectRemoved:", "LifecycleExpiration:")
# Ceph's expiry has more kinds: an upload that was never completed, and markers without an object, are no objects.
_EXPIRED_CURRENT: Final = "ObjectLifecycle:Expiration:Current"
_EXPIRED_VERSION: Final = "ObjectLifecycle:Expiration:NonCurrent"
# A delete marker has a version of its own, and all versions are told by the last: what goes is the object.
_WHOLE_OBJECT: Final = ("MarkerCreated", ":DeleteAllVersions")


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct, rename="camel"):
    key: str
    # Ceph writes it as text.
    size: int = 0
    e_tag: str | None = None
    version_id: str | None = None
    sequencer: str | None = None
    content_type: str | None = None


class _Entity(msgspec.Struct):
    bucket: _Bucket
    object: _Object


class S3Record(msgspec.Struct, rename="camel"):
    event_name: str
    event_time: str
    s3: _Entity
    event_version: str = "2.0"
    response_elements: dict[str, Any] | None = None

    @property
    def request_id(self) -> str | None:
        """The request that brought the event about, as the store's own logs name it."""
        found = (self.response_elements or {}).get(_REQUEST_ID)
        return found if isinstance(found, str) else None


class _Body(msgspec.Struct):
    records: list[S3Record] | None = msgspec.field(name="Records", default=None)
    event: str | None = msgspec.field(name="Event", default=None)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a store does differently with the records of S3."""

    name: str
    key: Callable[[str], str]
    sequencer: Callable[[str], str]
    # Events whose object may not be there yet.
    unready: frozenset[str] = frozenset()
    # Other names of events.
    synonyms: Mapping[str, str] = field(default_factory=dict)


AWS: Final = Dialect("AWS S3", unquote_plus, sequencers.s3)


def parse(delivery: NotificationMessage, route: Router, dialect: Dialect = AWS) -> Received:
    body = read(delivery.body, _Body, f"an event of {dialect.name}")
    if body.records is None and body.event is None:
        raise InvalidInput(f"not an event of {dialect.name}: {delivery.body[:80]!r}", "it has no Records")
    events = EventGatherer(route, delivery.origin)
    if body.event == "s3:TestEvent":
        events.ignore("a test event")
    for record in body.records or ():
        parse_record(record, events, dialect)
    return events.received()


def parse_record(record: S3Record, events: EventGatherer, dialect: Dialect = AWS) -> None:
    if record.event_version.partition(".")[0] != _MAJOR:
        raise Unsupported(
            f"version {record.event_version[:40]} of an event of {dialect.name}",
            f"version {_MAJOR}.x is understood",
            "send version 2 events",
        )
    name, entity = record.event_name.removeprefix("s3:"), record.s3.object
    name = dialect.synonyms.get(name, name)
    bucket, key = record.s3.bucket.name, dialect.key(entity.key)
    at, source = instant(record.event_time, f"{bucket}/{key}"), record.request_id
    sequencer = dialect.sequencer(entity.sequencer) if entity.sequencer else None
    if name in dialect.unready:
        events.ignore(f"{bucket}/{key}: {name}, the object is not complete")
    elif name.startswith("ObjectCreated:"):
        events.upload(
            bucket=bucket,
            key=key,
            size=entity.size,
            at=at,
            sequencer=sequencer,
            etag=entity.e_tag,
            version_id=entity.version_id,
            content_type=entity.content_type,
            source_id=source,
        )
    elif name.startswith(_REMOVALS) or name == _EXPIRED_CURRENT:
        is_whole = name.endswith(_WHOLE_OBJECT) or name == _EXPIRED_CURRENT
        version = None if is_whole else entity.version_id
        events.delete(bucket=bucket, key=key, at=at, sequencer=sequencer, version_id=version, source_id=source)
    elif name == _EXPIRED_VERSION and entity.version_id:
        version = entity.version_id
        events.delete(bucket=bucket, key=key, at=at, sequencer=sequencer, version_id=version, source_id=source)
    else:
        events.ignore(f"{bucket}/{key}: {name}")
