"""A plan says which version is to become current, and says the same when its events come again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents import (
    DeleteNotification,
    DocumentStatus,
    Notification,
    ObjectState,
    Progress,
    UploadNotification,
    doc_id_of,
    object_key,
)
from penstock.documents.sequencers import stamped
from penstock.documents.versions import Decision, decide
from penstock.errors import InvalidInput
from penstock.indexing.planning import plan as planning
from penstock.indexing.planning.plan import EventPlan, RoundLimits, plan_events, plan_resumed
from penstock.indexing.registry.entries import DocumentEntry

RULE = "rule/1"


def event(at: int, key: str = "note.txt") -> dict[str, Any]:
    names = {"tenant_id": "acme", "index_id": "handbook", "model": "m", "bucket": "b", "key": key}
    return {**names, "created_at": datetime.fromtimestamp(at, UTC), "sequencer": stamped(at)}


def upload(etag: str, at: int, *, key: str = "note.txt", size: int = 10) -> UploadNotification:
    return UploadNotification(etag=etag, size_bytes=size, **event(at, key))


def delete(at: int) -> DeleteNotification:
    return DeleteNotification(**event(at))


def only(plan: EventPlan) -> DocumentEntry:
    (entry,) = plan.entries.values()
    return entry


def finished(entry: DocumentEntry) -> dict[str, DocumentEntry]:
    """The registry once the pending version has become current."""
    if entry.pending is not None:
        entry = msgspec.structs.replace(entry, pending=None, current=entry.pending.doc_id, fingerprint=RULE)
    return {entry.object_key: entry}


def test_of_several_uploads_only_the_newest_is_read() -> None:
    plan = plan_events({}, [upload("a", 1), upload("b", 2), upload("a", 1)], RULE)
    pending = only(plan).pending
    assert pending is not None
    assert pending.doc_id == doc_id_of(upload("b", 2))
    assert plan.ignored == 1


def test_a_b_a_ends_on_a_in_one_micro_batch_and_in_three() -> None:
    events = [upload("a", 1), upload("b", 2), upload("a", 3)]
    together = only(plan_events({}, events, RULE)).pending
    assert together is not None
    known: dict[str, DocumentEntry] = {}
    for one in events:
        known = finished(only(plan_events(known, [one], RULE)))
    (entry,) = known.values()
    assert together.doc_id == entry.current == doc_id_of(events[0])
    assert entry.state.revision == 3


def test_a_document_that_is_current_costs_nothing_and_one_chunked_by_another_rule_is_made_again() -> None:
    known = finished(only(plan_events({}, [upload("a", 1)], RULE)))
    same = plan_events(known, [upload("a", 2)], RULE)
    assert (only(same).pending, same.unchanged) == (None, 1)
    assert only(plan_events(known, [upload("a", 2)], "rule/2")).pending is not None


def test_an_event_that_names_no_version_always_means_a_new_one() -> None:
    """All versions have one identity then: what is current or begun may be another."""
    first, second = upload("", 1), upload("", 2)
    begun = only(plan_events({}, [first], RULE))
    for known in (finished(begun), {begun.object_key: begun}):
        plan = plan_events(known, [second], RULE)
        pending = only(plan).pending
        assert pending is not None
        assert (pending.upload, plan.unchanged) == (second, 0)
        assert begun.pending is not None
        assert pending.version != begun.pending.version


def test_a_replayed_event_goes_on_with_what_was_begun() -> None:
    begun = only(plan_events({}, [upload("a", 1)], RULE))
    assert begun.pending is not None
    half = msgspec.structs.replace(begun.pending, progress=Progress(7, 4096))
    known = {begun.object_key: msgspec.structs.replace(begun, pending=half)}
    again = plan_events(known, [upload("a", 1)], RULE)
    assert (only(again).pending, again.dropped) == (half, [])
    other = only(plan_events(known, [upload("a", 1)], "rule/2")).pending
    assert other is not None
    assert other.progress == Progress()


def test_a_delete_removes_everything_and_an_overtaken_upload_stays_out() -> None:
    known = finished(only(plan_events({}, [upload("a", 1)], RULE)))
    plan = plan_events(known, [delete(3), upload("b", 2)], RULE)
    entry = only(plan)
    assert (plan.removed, plan.deleted, plan.ignored) == ([object_key(delete(3))], 1, 1)
    assert (entry.current, entry.pending) == (None, None)
    assert entry.report is not None
    assert entry.report.status is DocumentStatus.DELETED


@given(st.permutations([upload("a", 1), upload("b", 2), delete(3), upload("c", 4)]))
def test_the_newest_event_wins_in_any_order(events: list[Any]) -> None:
    pending = only(plan_events({}, events, RULE)).pending
    assert pending is not None
    assert pending.doc_id == doc_id_of(upload("c", 4))


def test_documents_wait_in_the_order_of_their_events_and_a_newer_version_takes_the_place_of_the_older() -> None:
    begun = plan_events({}, [upload("a", 1, key=key) for key in ("y.txt", "x.txt")], RULE, turn=7)
    turns = {entry.key: entry.pending.turn for entry in begun.entries.values() if entry.pending}
    assert (turns, begun.turn) == ({"y.txt": 7, "x.txt": 8}, 9)
    newer = plan_events(begun.entries, [upload("b", 2, key="y.txt")], RULE, turn=9)
    pending = only(newer).pending
    assert pending is not None
    assert (pending.turn, newer.turn, len(newer.dropped)) == (7, 9, 2)


def test_what_was_left_pending_begins_anew_only_under_another_rule() -> None:
    left = only(plan_events({}, [upload("a", 1)], RULE, turn=3))
    assert left.pending is not None
    half = msgspec.structs.replace(left, pending=msgspec.structs.replace(left.pending, progress=Progress(7, 4096)))
    assert plan_resumed([half], RULE).entries == {}
    anew = only(plan_resumed([half], "rule/2")).pending
    assert anew is not None
    assert (anew.progress, anew.turn, anew.version) == (Progress(), 3, left.pending.version)


def test_limits_that_let_nothing_through_are_refused() -> None:
    with pytest.raises(InvalidInput, match="rounds_per_batch=0"):
        RoundLimits(rounds_per_batch=0)


def test_a_version_that_is_current_is_read_again_when_somebody_asks_and_not_for_a_replay() -> None:
    known = finished(only(plan_events({}, [upload("a", 1)], RULE)))
    again = msgspec.structs.replace(upload("a", 2), reread=True)
    plan = plan_events(known, [again], RULE)
    pending = only(plan).pending
    assert pending is not None
    assert pending.version != f"{pending.doc_id}:1"
    assert (plan.unchanged, only(plan).upload) == (0, again)
    replayed = plan_events(finished(only(plan)), [again], RULE)
    assert only(replayed).pending is None


def test_an_entry_keeps_what_was_last_told_until_the_object_is_gone() -> None:
    first = only(plan_events({}, [upload("a", 1)], RULE))
    assert first.upload == upload("a", 1)
    assert only(plan_events({first.object_key: first}, [delete(2)], RULE)).upload is None


@pytest.mark.parametrize("zero", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)])
def test_an_object_whose_time_lies_at_an_end_of_the_calendar_goes_on_with_events_of_other_families(
    zero: datetime,
) -> None:
    """The zero time of Go stands for none at all, and the next event of the object comes from elsewhere."""
    first = msgspec.structs.replace(upload("a", 1), created_at=zero, sequencer=None)
    begun = only(plan_events({}, [first], RULE))
    for later in (upload("b", 2), msgspec.structs.replace(upload("b", 2), created_at=zero), delete(3)):
        plan = plan_events({begun.object_key: begun}, [later], RULE)
        assert plan.refused == {}


def test_an_event_that_cannot_be_decided_on_is_refused_and_those_around_it_are_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever fault of ours an event brings to light, it is raised again with every replay: it must stop nobody."""

    def faulty(state: ObjectState | None, event: Notification) -> Decision:
        if event.key == "faulty.txt":
            raise OverflowError("date value out of range")
        return decide(state, event)

    monkeypatch.setattr(planning, "decide", faulty)
    events = [upload("a", 1), upload("b", 2, key="faulty.txt"), upload("c", 3, key="other.txt")]
    plan = plan_events({}, events, RULE, turn=4)
    assert plan.refused == {1: "it cannot be planned: OverflowError: date value out of range"}
    assert [entry.key for entry in plan.entries.values()] == ["note.txt", "other.txt"]
    assert plan.turn == 6


def test_what_a_person_forgot_comes_back_when_it_changes_or_is_asked_for_and_not_by_a_late_event() -> None:
    known = finished(only(plan_events({}, [upload("a", 1)], RULE)))
    forget = DeleteNotification(forgotten="a", **event(2))
    plan = plan_events(known, [forget], RULE)
    assert (plan.deleted, only(plan).forgotten) == (1, "a")
    known = finished(only(plan))
    late = plan_events(known, [upload("a", 3)], RULE)
    assert (late.ignored, only(late)) == (1, only(plan))
    for asked in (upload("b", 3), msgspec.structs.replace(upload("a", 3), reread=True)):
        back = only(plan_events(known, [asked], RULE))
        assert back.pending is not None
        assert back.forgotten is None
    # A delete of the bucket's own says that the object is gone, whatever a person thought of it.
    assert only(plan_events(known, [delete(4)], RULE)).forgotten is None
