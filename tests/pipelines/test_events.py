"""Records become events of their collections, and what is none is kept with its place and the reason."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents import DocumentStatus, Notification, UploadNotification, encode
from penstock.pipelines.events import decoded, plan_groups


def record(sequence: int, position: int, key: str | None) -> dict[str, Any]:
    if key is None:
        return {"sequence": sequence, "position": position, "record": b"{no event"}
    event = UploadNotification(
        tenant_id="acme",
        index_id="handbook",
        bucket="b",
        key=key,
        size_bytes=1,
        model="m",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return {"sequence": sequence, "position": position, "record": encode(event)}


def test_events_keep_their_order_and_a_record_that_is_none_is_told_by_its_place() -> None:
    rows = [record(3, 0, "a"), record(3, 1, None), record(4, 0, "b")]
    events, refused = decoded(rows, lambda event: [event])
    assert [[event.key for event in named] for named in events.values()] == [["a", "b"]]
    (entry,) = refused
    assert (entry.object_key, entry.pending) == ("notification:3/1", None)
    assert entry.report is not None
    assert entry.report.status is DocumentStatus.QUARANTINED
    assert "not a UploadNotification" in str(entry.report.reason)


def test_an_event_may_be_for_several_collections_and_for_none() -> None:
    def twice(event: Notification) -> list[Notification]:
        return [event, msgspec.structs.replace(event, model="other")]

    events, _ = decoded([record(1, 0, "a")], twice)
    assert [name.model for name in events] == ["m", "other"]
    assert decoded([record(1, 0, "a")], lambda _: []) == ({}, [])


@given(st.lists(st.integers(1, 7), max_size=20), st.integers(1, 10))
def test_groups_hold_whole_batches_in_order_and_are_no_larger_than_they_must(sizes: list[int], most: int) -> None:
    rows = [{"sequence": number} for number, size in enumerate(sizes) for _ in range(size)]
    groups = plan_groups(rows, most)
    assert [row for group in groups for row in group] == rows
    for group in groups:
        assert len(group) <= most or len({row["sequence"] for row in group}) == 1
    for before, after in pairwise(groups):
        assert before[-1]["sequence"] < after[0]["sequence"]
