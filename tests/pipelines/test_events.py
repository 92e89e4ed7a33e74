"""A record is an event of a collection, or an entry that says why it is none: nothing in the queue can stop the queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.documents import DocumentStatus, Notification
from penstock.pipelines.events import decoded
from penstock.vector import CollectionName

GOOD: dict[str, Any] = {
    "tenantId": "acme",
    "indexId": "handbook",
    "bucket": "b",
    "key": "note.txt",
    "etag": "e",
    "sizeBytes": 10,
    "model": "m",
    "createdAt": "2026-01-01T00:00:00Z",
}


def row(position: int, **changed: Any) -> dict[str, Any]:
    return {"sequence": 7, "position": position, "record": json.dumps({**GOOD, **changed}).encode()}


def test_events_are_sorted_by_collection_in_their_order() -> None:
    events, refused = decoded([row(0), row(1, tenantId="globex"), row(2, key="other.txt")], lambda event: [event])
    assert {name: [event.key for event in found] for name, found in events.items()} == {
        CollectionName("acme", "handbook", "m"): ["note.txt", "other.txt"],
        CollectionName("globex", "handbook", "m"): ["note.txt"],
    }
    assert refused == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tenantId": "x" * 1025}, "at most 1024 bytes"),
        ({"indexId": "x" * 1025}, "at most 1024 bytes"),
        ({"model": "x" * 1020}, "at most 1024 bytes"),
        ({"model": "m#documents"}, "ends like that of a registry"),
        ({"tenantId": ""}, "not a UploadNotification"),
        ({"sizeBytes": -1}, "not a UploadNotification"),
    ],
)
def test_an_event_with_names_that_no_collection_can_have_is_refused_before_it_makes_an_index(
    changed: dict[str, Any], reason: str
) -> None:
    made: list[Notification] = []

    def route(event: Notification) -> list[Notification]:
        made.append(event)
        return [event]

    events, (refused,) = decoded([row(0, **changed), row(1)], route)
    assert [len(found) for found in events.values()] == [1]
    assert len(made) == 1
    assert refused.report is not None
    assert refused.report.status is DocumentStatus.QUARANTINED
    assert reason in str(refused.report.reason)
    assert refused.object_key == "notification:7/0"
