"""Records of the queue, in groups that are planned together and as events by collection. Pure.

A record that is no event becomes an entry that says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from penstock.documents import DocumentReport, DocumentStatus, Notification, ObjectState, decode_notification
from penstock.errors import InvalidInput
from penstock.pipelines.registry import DocumentEntry, registry_name, subject_of
from penstock.vector import CollectionName

__all__ = ["decoded", "plan_groups"]

# Of entries that no event made.
_ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)


def plan_groups(rows: Sequence[Mapping[str, Any]], records_max: int) -> list[list[Mapping[str, Any]]]:
    """Rows, ordered by sequence, in groups of whole batches of the queue, each with so many records if it can."""
    groups: list[list[Mapping[str, Any]]] = []
    for _, batch in groupby(rows, key=lambda row: row["sequence"]):
        records = list(batch)
        if not groups or len(groups[-1]) + len(records) > records_max:
            groups.append([])
        groups[-1] += records
    return groups


def decoded(
    rows: Sequence[Mapping[str, Any]], route: Callable[[Notification], list[Notification]]
) -> tuple[dict[CollectionName, list[Notification]], list[DocumentEntry]]:
    """The events by collection, in their order, and an entry for every record that is none."""
    events: dict[CollectionName, list[Notification]] = {}
    refused: list[DocumentEntry] = []
    for row in rows:
        try:
            event = decode_notification(row["record"])
            _check_names(event)
            routed = route(event)
        except InvalidInput as error:
            refused.append(_refusal(row, error))
            continue
        for event in routed:
            events.setdefault(_collection(event), []).append(event)
    return events, refused


def _collection(event: Notification) -> CollectionName:
    return CollectionName(event.tenant_id, event.index_id, event.model)


def _check_names(event: Notification) -> None:
    """Before an event can make an index: its names must do for the index's collections, and not be those of another's."""
    name = _collection(event)
    registry_name(name)
    if subject_of(name) is not None:
        raise InvalidInput(
            f"model {event.model!r} cannot be used", "its name ends like that of a registry", "name it otherwise"
        )


def _refusal(row: Mapping[str, Any], error: InvalidInput) -> DocumentEntry:
    """Keyed by its place in the queue, so that a replay writes the same entry again."""
    place = f"{row['sequence']}/{row['position']}"
    identity = hashlib.sha256(row["record"]).hexdigest()
    report = DocumentReport(doc_id=identity, status=DocumentStatus.QUARANTINED, reason=str(error))
    return DocumentEntry(
        object_key=f"notification:{place}",
        bucket="",
        key=f"notification {place}",
        state=ObjectState(at=_ORIGIN),
        report=report,
    )
