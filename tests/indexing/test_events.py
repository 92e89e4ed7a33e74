"""A record is an event of a collection, or an entry that says why it is none: nothing in the queue can stop the queue."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import examples

from penstock.documents import DocumentStatus, Notification
from penstock.errors import Unavailable
from penstock.indexing.planning.events import RECORD_BYTES_MAX, QueueRecord, decoded, plan_groups, queued_ms, refusal
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.registry.entries import entry_rows
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


def row(position: int, **changed: Any) -> QueueRecord:
    return QueueRecord(7, position, json.dumps({**GOOD, **changed}).encode())


def test_events_are_sorted_by_collection_in_their_order() -> None:
    events, refused = decoded([row(0), row(1, tenantId="globex"), row(2, key="other.txt")], lambda event: [event])
    assert {name: [queued.event.key for queued in found] for name, found in events.items()} == {
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
        ({"model": "m#documents"}, "ends like the name of a registry"),
        ({"tenantId": "penstock", "indexId": "indexes", "model": "settings"}, "the store's own records"),
        ({"tenantId": "penstock", "indexId": "notifications", "model": "refused"}, "the store's own records"),
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
    sequences = [number for number, size in enumerate(sizes) for _ in range(size)]
    groups = plan_groups(sequences, most)
    assert [place for group in groups for place in group] == list(range(len(sequences)))
    for group in groups:
        assert len(group) <= most or len({sequences[place] for place in group}) == 1
    for before, after in pairwise(groups):
        assert sequences[before[-1]] < sequences[after[0]]
        assert len(before) + sizes[sequences[after[0]]] > most


# Whatever a record holds ---------------------------------------------------------------------------------------

# Beyond the stack of every interpreter: 3.11 stops at a thousand levels, 3.13 at some ten thousand.
DEEP = b"[" * 50_000 + b"]" * 50_000
ENCODED = json.dumps(GOOD).encode()


def with_member(raw: bytes) -> bytes:
    return ENCODED[:-1] + b',"more":' + raw + b"}"


HOSTILE = {
    "bytes that are not UTF-8 in a member that counts": ENCODED.replace(b"note.txt", b"\xff\xfe"),
    "nesting beyond any stack in a member that nobody reads": with_member(DEEP),
    "nothing but nesting": DEEP,
    "a number that no column holds": ENCODED.replace(b": 10,", b": " + b"9" * 30 + b","),
    "a number of thousands of digits": ENCODED.replace(b": 10,", b": " + b"9" * 5000 + b","),
    "half a surrogate pair": ENCODED.replace(b"note.txt", b"\\ud800"),
    "our own order, and not as we write it": with_member(b'1,"sequencer":"seen:soon"'),
    "our own order, with nothing that could come after it": with_member(b'1,"sequencer":"seen:' + b"9" * 20 + b'"'),
    "more than a notification can be": ENCODED.replace(b"note.txt", b"x" * RECORD_BYTES_MAX),
    "nothing": b"",
    "bytes": bytes(range(256)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_whatever_a_record_holds_it_is_refused_under_its_place_and_the_others_go_on(what: str) -> None:
    bad = QueueRecord(7, 1, HOSTILE[what])
    events, (refused,) = decoded([row(0), bad, row(2, key="other.txt")], lambda event: [event])
    assert [queued.event.key for found in events.values() for queued in found] == ["note.txt", "other.txt"]
    assert (refused.object_key, refused.key) == ("notification:7/1", "notification 7/1")
    assert refused.report is not None
    assert refused.report.reason
    assert len(refused.report.reason) <= 1000
    assert entry_rows([refused]).num_rows == 1


ODD_TIMES = [
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-14:00",
    "1969-12-31T23:59:59Z",
    "2026-01-01T00:00:00Z",
]
MEMBERS = st.sampled_from([*GOOD, "sequencer", "versionId", "event", "contentType", "sourceId", "reread"])
VALUES = st.one_of(
    st.text(max_size=8),
    st.integers(),
    st.none(),
    st.booleans(),
    st.sampled_from(
        [*ODD_TIMES, "delete", "upload", "seen:00000000000000000007", "s3:ab", "time:-1", "ns:", ":", "x" * 2000]
    ),
    st.recursive(st.none(), lambda inner: st.lists(inner, max_size=2), max_leaves=4),
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.dictionaries(MEMBERS, VALUES, max_size=3), max_size=6), st.binary(max_size=20))
def test_any_records_are_decoded_planned_and_written_or_refused_by_their_place(
    changes: list[dict[str, Any]], junk: bytes
) -> None:
    rows = [row(position, **changed) for position, changed in enumerate(changes)]
    rows.append(QueueRecord(8, 0, junk))
    # Cut in the middle of whatever it is.
    rows.append(QueueRecord(8, 1, rows[0].record[: len(junk) * 7]))
    events, refused = decoded(rows, lambda event: [event])
    assert sum(map(len, events.values())) + len(refused) == len(rows)
    for queued in events.values():
        plan = plan_events({}, [each.event for each in queued], "rule")
        refused += [refusal(queued[place].record, reason) for place, reason in plan.refused.items()]
        # Entries can be written, and read back.
        assert entry_rows(plan.entries.values()).num_rows == len(plan.entries)
    places = {entry.object_key for entry in refused}
    assert places <= {f"notification:{each.sequence}/{each.position}" for each in rows}
    assert len(places) == len(refused)


def test_what_a_store_raises_while_events_are_routed_is_no_fault_of_the_record() -> None:
    def away(event: Notification) -> list[Notification]:
        raise Unavailable("the store does not answer")

    with pytest.raises(Unavailable):
        decoded([row(0)], away)


def test_a_time_that_no_calendar_has_is_brought_into_one() -> None:
    assert queued_ms([QueueRecord(1, 0, b""), QueueRecord(1, 1, b"", 5)]) == 5
    late = queued_ms([QueueRecord(1, 0, b"", (1 << 63) - 1)])
    assert datetime.fromtimestamp(late / 1000, UTC).year == 9000
