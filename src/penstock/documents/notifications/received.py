"""What a parser of notifications is given and what it gives back.

A parser is a pure function from one delivery (headers and body) to the uploads and deletes in it. It refuses what it
cannot read with `InvalidInput`, whole: a delivery is taken entirely or not at all, so that the sender may send it
again. What it can read but does not concern the index is `ignored`, with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from penstock.documents.contracts import DeleteNotification, Notification, UploadNotification
from penstock.documents.metadata import bounded_metadata
from penstock.errors import InvalidInput
from penstock.observability import checked_traceparent
from penstock.undecodable import UNDECODABLE

__all__ = [
    "Destination",
    "EventGatherer",
    "NotificationMessage",
    "Origin",
    "Parser",
    "Received",
    "Router",
    "instant",
    "is_text",
    "number_text",
    "read",
]

_T = TypeVar("_T")

# A bucket of S3 or its look-alikes by its bare name, one of Google or Azure by the URL that its parser gave it.
_BUCKET: Final = re.compile(r"((gs|az)://)?[A-Za-z0-9][A-Za-z0-9._-]{0,254}")

# What fits 64 bits, as in the record of the event.
_SIZE_BYTES_MAX: Final = (1 << 63) - 1

# Of what a refusal quotes, in characters: a member may be as long as a delivery.
_NAME_QUOTED_MAX: Final = 120
_REASON_QUOTED_MAX: Final = 300
# A longer number is told by its length: to write it out takes a while, and a float does not hold it.
_NUMBER_BITS_QUOTED_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Destination:
    """Which tenant, index and model a bucket's objects go to: no store's event says it."""

    tenant_id: str
    index_id: str
    model: str


# Bucket and key to a destination, or None for objects that are not indexed.
Router: TypeAlias = Callable[[str, str], Destination | None]


@dataclass(frozen=True, slots=True)
class Origin:
    """What its sender calls an event, the trace it is of, and what it says of the object, as far as that is told."""

    source_id: str | None = None
    traceparent: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NotificationMessage:
    """One HTTP request or one message, with header names in lower case. `received_at_ms` stands in for missing times.

    `target` is where it was sent: the source whose shape it has and the index it is for, `s3/handbook`. `source_id` is what whoever passed the event on calls it; an event's own name comes before it.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    received_at_ms: int = 0
    source_id: str | None = None
    target: str = ""

    @property
    def origin(self) -> Origin:
        """Of events that do not say it themselves."""
        source_id = self.source_id or self.headers.get("x-request-id")
        is_named = bool(source_id) and is_text(source_id or "")
        return Origin(source_id if is_named else None, checked_traceparent(self.headers.get("traceparent")))

    @property
    def received_at(self) -> datetime:
        return datetime.fromtimestamp(self.received_at_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class Received:
    """The events of one delivery, in its order; `reply` is a body the sender waits for (a handshake)."""

    notifications: tuple[Notification, ...] = ()
    ignored: tuple[str, ...] = ()
    reply: bytes | None = None


class Parser(Protocol):
    def __call__(self, delivery: NotificationMessage, route: Router) -> Received: ...


class EventGatherer:
    """Gathers the events of one delivery and routes them. `origin` is that of the events that come next."""

    def __init__(self, route: Router, origin: Origin = Origin()) -> None:  # noqa: B008 - it cannot change
        self._route = route
        self.origin = origin
        self._notifications: list[Notification] = []
        self._ignored: list[str] = []

    def upload(
        self,
        *,
        bucket: str,
        key: str,
        size: int,
        at: datetime,
        sequencer: str | None,
        etag: str | None = None,
        version_id: str | None = None,
        content_type: str | None = None,
        source_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        if not 0 <= size <= _SIZE_BYTES_MAX:
            raise InvalidInput(
                f"{bucket[:80]}/{key[:80]} has {number_text(size)} bytes", f"a size is 0 to {_SIZE_BYTES_MAX}"
            )
        if key.endswith("/") and not size:
            self.ignore(f"{bucket}/{key}: a marker of a folder")
            return
        destination = self._destination(bucket, key)
        if destination:
            self._notifications.append(
                UploadNotification(
                    tenant_id=destination.tenant_id,
                    index_id=destination.index_id,
                    model=destination.model,
                    bucket=bucket,
                    key=key,
                    size_bytes=size,
                    etag=(etag or "").strip('"') or None,
                    version_id=_version(version_id),
                    content_type=content_type or None,
                    source_id=source_id or self.origin.source_id,
                    traceparent=self.origin.traceparent,
                    created_at=at,
                    sequencer=sequencer,
                    # Bounded here: a record that is too large would not be taken at all.
                    metadata=bounded_metadata(metadata or self.origin.metadata or {})[0] or None,
                )
            )

    def delete(
        self,
        *,
        bucket: str,
        key: str,
        at: datetime,
        sequencer: str | None,
        version_id: str | None = None,
        source_id: str | None = None,
    ) -> None:
        """`version_id` only when one version was removed: a delete marker hides the object whatever its version."""
        destination = self._destination(bucket, key)
        if destination:
            self._notifications.append(
                DeleteNotification(
                    tenant_id=destination.tenant_id,
                    index_id=destination.index_id,
                    model=destination.model,
                    bucket=bucket,
                    key=key,
                    version_id=_version(version_id),
                    source_id=source_id or self.origin.source_id,
                    traceparent=self.origin.traceparent,
                    created_at=at,
                    sequencer=sequencer,
                )
            )

    def ignore(self, reason: str) -> None:
        self._ignored.append(reason)

    def received(self) -> Received:
        return Received(tuple(self._notifications), tuple(self._ignored))

    def _destination(self, bucket: str, key: str) -> Destination | None:
        if not bucket or not key:
            raise InvalidInput("an event does not name an object", f"bucket {bucket[:80]!r}, key {key[:80]!r}")
        if not _BUCKET.fullmatch(bucket):
            # Else whoever may send events could have any store and any folder of ours read.
            raise InvalidInput(f"an event names the bucket {bucket[:80]!r}", "this is not a valid bucket name")
        destination = self._route(bucket, key)
        if destination is None:
            self.ignore(f"{bucket}/{key}: not indexed")
        return destination


def read(data: bytes | str | msgspec.Raw, kind: type[_T], what: str) -> _T:
    """Decode a store's own shape, or refuse it naming the member that is wrong."""
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except UNDECODABLE as error:
        raise InvalidInput(f"not {what}: {bytes_of(data)[:80]!r}", str(error)[:_REASON_QUOTED_MAX]) from error


def convert(value: Any, kind: type[_T], what: str) -> _T:
    """Like `read`, for what is already decoded."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except UNDECODABLE as error:
        raise InvalidInput(f"not {what[:_NAME_QUOTED_MAX]}", str(error)[:_REASON_QUOTED_MAX]) from error


def instant(text: str, what: str) -> datetime:
    """A time of RFC 3339 with its zone; several stores leave the zone out and mean UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(
            f"{what[:_NAME_QUOTED_MAX]} has no time: {text[:40]!r}", str(error)[:_NAME_QUOTED_MAX]
        ) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def number_text(number: int) -> str:
    """A number as a refusal quotes it, however long it is."""
    bits = number.bit_length()
    return str(number) if bits <= _NUMBER_BITS_QUOTED_MAX else f"{'-' if number < 0 else ''}2^{bits - 1} or more"


def is_text(value: str) -> bool:
    """Whether UTF-8 can write it: a header may hold halves of characters, which no record can."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def bytes_of(data: bytes | str | msgspec.Raw) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)


def _version(version_id: str | None) -> str | None:
    """S3 writes `null` for objects from before versioning was switched on."""
    return None if version_id in ("", "null") else version_id
