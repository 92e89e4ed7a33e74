"""A record is an event of a collection, or an entry that says why it is none: nothing in the queue can stop the queue."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents import DocumentStatus, Notification
from penstock.pipelines.events import decoded, plan_groups
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


def test_an_event_may_be_for_several_collections_and_for_none() -> None:
    def twice(event: Notification) -> list[Notification]:
        return [event, msgspec.structs.replace(event, model="other")]

    events, _ = decoded([row(0)], twice)
    assert [name.model for name in events] == ["m", "other"]
    assert decoded([row(0)], lambda _: []) == ({}, [])


@given(st.lists(st.integers(1, 7), max_size=20), st.integers(1, 10))
def test_groups_hold_whole_batches_in_order_and_are_no_larger_than_they_must(sizes: list[int], most: int) -> None:
    rows = [{"sequence": number} for number, size in enumerate(sizes) for _ in range(size)]
    groups = plan_groups(rows, most)
    assert [record for group in groups for record in group] == rows
    for group in groups:
        assert len(group) <= most or len({record["sequence"] for record in group}) == 1
    for before, after in pairwise(groups):
        assert before[-1]["sequence"] < after[0]["sequence"]
