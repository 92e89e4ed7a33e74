"""Records of the queue, in groups that are planned together and as events by collection. Pure.

A record that is no event becomes an entry that says so, under its place in the queue. Whatever a record holds, nothing
is raised for it: everybody's events come through here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, NamedTuple

from penstock.documents import DocumentReport, DocumentStatus, Notification, ObjectState, decode_notification
from penstock.errors import InvalidInput
from penstock.indexing.registry.entries import DocumentEntry, check_names
from penstock.vector import CollectionName

__all__ = ["QueueRecord", "QueuedEvent", "decoded", "plan_groups", "queued_ms", "refusal"]

# Of entries that no event made.
_ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
# A notification is a few hundred bytes, and its entry is written with every round of its document.
RECORD_BYTES_MAX: Final = 1 << 16
# Of the reason that is kept of a record.
_REASON_CHARACTERS_MAX: Final = 1000
# The year 9000: batches carry their time as a date, and a calendar ends.
_QUEUED_MS_MAX: Final = 221_845_392_000_000


class QueueRecord(NamedTuple):
    """A record of the queue: the sequence of its batch and its place in it, and when the batch says that it came."""

    sequence: int
    position: int
    record: bytes
    ingestion_time_ms: int | None = None


class QueuedEvent(NamedTuple):
    """An event, and the record of the queue that it was read from."""

    event: Notification
    record: QueueRecord


def plan_groups(sequences: Sequence[int], records_max: int) -> list[range]:
    """Records, by the sequences of their batches and in that order, as ranges that are planned together.

    Each is of whole batches of the queue, and has so many records at most if it can.
    """
    groups: list[range] = []
    start = end = 0
    for _, batch in groupby(sequences):
        size = sum(1 for _ in batch)
        if end > start and end - start + size > records_max:
            groups.append(range(start, end))
            start = end
        end += size
    return [*groups, range(start, end)] if end > start else groups


def decoded(
    records: Sequence[QueueRecord], route: Callable[[Notification], list[Notification]]
) -> tuple[dict[CollectionName, list[QueuedEvent]], list[DocumentEntry]]:
    """The events by collection, in their order, and an entry for every record that is none.

    `route` tells which collections an event is for; it may read, and so what it raises is raised, but for a refusal.
    """
    events: dict[CollectionName, list[QueuedEvent]] = {}
    refused: list[DocumentEntry] = []
    for record in records:
        try:
            routed = route(_event(record.record))
        except InvalidInput as error:
            refused.append(refusal(record, str(error)))
            continue
        for event in routed:
            events.setdefault(_collection(event), []).append(QueuedEvent(event, record))
    return events, refused


def queued_ms(records: Sequence[QueueRecord]) -> int:
    """When the last of some records reached the queue, as it says; a time that no calendar has is brought into it."""
    return min(_QUEUED_MS_MAX, max((record.ingestion_time_ms or 0 for record in records), default=0))


def refusal(record: QueueRecord, reason: str) -> DocumentEntry:
    """The entry of a record that is set aside: keyed by its place in the queue, so that a replay writes it again."""
    place = f"{record.sequence}/{record.position}"
    identity = hashlib.sha256(record.record).hexdigest()
    report = DocumentReport(doc_id=identity, status=DocumentStatus.QUARANTINED, reason=reason[:_REASON_CHARACTERS_MAX])
    return DocumentEntry(
        object_key=f"notification:{place}",
        bucket="",
        key=f"notification {place}",
        state=ObjectState(at=_ORIGIN),
        report=report,
    )


def _event(record: bytes) -> Notification:
    """The event in a record; `InvalidInput` for whatever is none."""
    if len(record) > RECORD_BYTES_MAX:
        raise InvalidInput(
            f"not a notification: {record[:80]!r}", f"it has {len(record)} bytes, and the limit is {RECORD_BYTES_MAX}"
        )
    try:
        event = decode_notification(record)
        # Before it can make an index.
        check_names(_collection(event))
    except InvalidInput:
        raise
    except Exception as error:  # a decoder's own fault is the record's too: it would be raised again for ever
        raise InvalidInput(f"not a notification: {record[:80]!r}", f"{type(error).__name__}: {error}") from error
    return event


def _collection(event: Notification) -> CollectionName:
    return CollectionName(event.tenant_id, event.index_id, event.model)
