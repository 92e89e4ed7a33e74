from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents import sequencers
from penstock.documents.contracts import DeleteNotification, UploadNotification
from penstock.documents.identity import doc_id_of
from penstock.documents.versions import ObjectState, Verdict, decide, observed

START = datetime(2025, 8, 28, tzinfo=UTC)
COMMON: dict[str, Any] = {"tenant_id": "t", "index_id": "i", "bucket": "b", "key": "k", "model": "m"}


def upload(order: int, etag: str, **more) -> UploadNotification:
    at = START + timedelta(seconds=order)
    return UploadNotification(**COMMON, size_bytes=1, etag=etag, sequencer=f"s3:{order:04x}", created_at=at, **more)


def delete(order: int, **more) -> DeleteNotification:
    return DeleteNotification(**COMMON, sequencer=f"s3:{order:04x}", created_at=START, **more)


def after(*events):
    state, verdicts = None, []
    for event in events:
        decision = decide(state, event)
        state = decision.state
        verdicts.append(decision.verdict)
    return state, verdicts


def test_a_newer_version_takes_over_and_names_the_one_it_replaces():
    state, _ = after(upload(1, "A"))
    decision = decide(state, upload(2, "B"))
    assert decision.verdict is Verdict.INDEX
    assert decision.superseded == doc_id_of(upload(1, "A"))
    assert decision.state.doc_id == doc_id_of(upload(2, "B"))


def test_a_b_a_on_an_unversioned_bucket_ends_on_a():
    state, verdicts = after(upload(1, "A"), upload(2, "B"), upload(3, "A"))
    assert verdicts == [Verdict.INDEX] * 3
    assert state.doc_id == doc_id_of(upload(1, "A"))
    assert state.revision == 3


def test_the_same_event_again_is_a_duplicate_and_changes_nothing():
    state, _ = after(upload(1, "A"), upload(2, "B"))
    decision = decide(state, upload(2, "B"))
    assert (decision.verdict, decision.state) == (Verdict.DUPLICATE, state)


def test_a_create_that_its_delete_has_overtaken_stays_dropped():
    state, verdicts = after(upload(1, "A"), delete(3), upload(2, "B"))
    assert verdicts == [Verdict.INDEX, Verdict.REMOVE, Verdict.STALE]
    assert state.tombstone
    assert state.doc_id is None


def test_a_delete_of_an_object_never_heard_of_still_holds_back_older_creates():
    state, verdicts = after(delete(5), upload(4, "A"), upload(6, "B"))
    assert verdicts == [Verdict.REMOVE, Verdict.STALE, Verdict.INDEX]
    assert not state.tombstone


def test_a_delete_names_the_document_to_remove():
    state, _ = after(upload(1, "A"))
    assert decide(state, delete(2)).superseded == doc_id_of(upload(1, "A"))


def test_deleting_a_version_that_is_not_current_changes_nothing():
    state, _ = after(upload(1, "A", version_id="v1"), upload(2, "B", version_id="v2"))
    assert decide(state, delete(3, version_id="v1")).verdict is Verdict.ELSEWHERE
    assert decide(state, delete(3, version_id="v1")).state == state
    assert decide(state, delete(3, version_id="v2")).verdict is Verdict.REMOVE


def test_deleting_a_version_never_heard_of_does_not_bury_the_current_one():
    state, verdicts = after(delete(9, version_id="v1"), upload(2, "B", version_id="v2"))
    assert verdicts == [Verdict.ELSEWHERE, Verdict.INDEX]
    assert state.doc_id


def test_a_version_that_was_made_before_the_delete_of_an_older_one_and_comes_after_it_is_taken():
    """The bucket has version 2 all the while: a tombstone would bury a live object."""
    state, verdicts = after(
        upload(1, "A", version_id="v1"), delete(3, version_id="v1"), upload(2, "B", version_id="v2")
    )
    assert verdicts == [Verdict.INDEX, Verdict.REMOVE, Verdict.INDEX]
    assert (state.tombstone, state.version_id) == (False, "v2")


def test_the_create_of_a_version_that_was_deleted_told_again_does_not_bring_it_back():
    state, verdicts = after(
        upload(1, "A", version_id="v1"), delete(3, version_id="v1"), upload(1, "A", version_id="v1")
    )
    assert verdicts == [Verdict.INDEX, Verdict.REMOVE, Verdict.STALE]
    assert state.tombstone
    assert decide(state, delete(3, version_id="v1")).verdict is Verdict.ELSEWHERE


def test_of_two_writes_in_one_instant_without_a_sequencer_the_second_told_counts():
    first = msgspec.structs.replace(upload(1, "A"), sequencer=None)
    second = msgspec.structs.replace(upload(1, "B"), sequencer=None)
    state, verdicts = after(first, second, second)
    assert verdicts == [Verdict.INDEX, Verdict.INDEX, Verdict.DUPLICATE]
    assert state.doc_id == doc_id_of(second)


def test_a_removal_in_the_instant_of_a_write_without_a_sequencer_is_not_undone_by_it():
    write = msgspec.structs.replace(upload(0, "A"), sequencer=None)
    gone = msgspec.structs.replace(delete(0), sequencer=None)
    state, verdicts = after(write, gone, write)
    assert verdicts == [Verdict.INDEX, Verdict.REMOVE, Verdict.STALE]
    assert state.tombstone


def test_the_state_survives_its_serialisation():
    state, _ = after(upload(1, "A"), delete(3))
    assert msgspec.json.decode(msgspec.json.encode(state), type=ObjectState) == state


def test_uploads_without_any_sequencer_are_ordered_by_their_time():
    first = msgspec.structs.replace(upload(1, "A"), sequencer=None)
    second = msgspec.structs.replace(upload(2, "B"), sequencer=None)
    state, verdicts = after(second, first, second)
    assert verdicts == [Verdict.INDEX, Verdict.STALE, Verdict.DUPLICATE]
    assert state.doc_id == doc_id_of(second)


def ms(seconds: float) -> int:
    """The time on our clock, so many seconds after the start."""
    return int((START + timedelta(seconds=seconds)).timestamp() * 1000)


def seen(state: ObjectState | None, seconds: float, etag: str) -> UploadNotification:
    """What a listing or a retry tells of an object at this time of our clock."""
    at, sequencer = observed(state, ms(seconds))
    return UploadNotification(**COMMON, size_bytes=1, etag=etag, sequencer=sequencer, created_at=at)


def forgotten(state: ObjectState, seconds: float) -> DeleteNotification:
    at, sequencer = observed(state, ms(seconds))
    return DeleteNotification(**COMMON, sequencer=sequencer, created_at=at)


@pytest.mark.parametrize("our_clock", [-3600, -1, 0, 1, 3600])
def test_what_we_do_ourselves_is_accepted_after_an_event_of_the_bucket_whatever_our_clock_says(our_clock: float):
    state, _ = after(upload(10, "A"))
    again = decide(state, seen(state, 10 + our_clock, "A"))
    assert again.verdict is Verdict.INDEX
    assert decide(again.state, forgotten(again.state, 10 + our_clock)).verdict is Verdict.REMOVE


@pytest.mark.parametrize("ahead", [0, 5, 59])
def test_an_event_of_the_bucket_after_what_we_did_is_accepted_though_our_clock_runs_ahead(ahead: float):
    state, _ = after(upload(10, "A"))
    state = decide(state, seen(state, 10 + ahead, "A")).state
    assert decide(state, upload(11, "B")).verdict is Verdict.INDEX


def test_a_b_a_with_a_listing_in_between_ends_on_a_and_late_events_stay_stale():
    """The bucket tells A and A again; B is seen by a listing, and its own event comes last."""
    state, _ = after(upload(1, "A"))
    state = decide(state, seen(state, 2.5, "B")).state
    decision = decide(state, upload(3, "A"))
    assert decision.verdict is Verdict.INDEX
    assert decide(decision.state, upload(2, "B")).verdict is Verdict.STALE
    assert decide(decision.state, upload(3, "A")).verdict is Verdict.DUPLICATE
    assert decision.state.doc_id == doc_id_of(upload(1, "A"))


def test_an_old_event_of_the_bucket_told_again_does_not_undo_a_removal_by_hand():
    state, _ = after(upload(1, "A"), upload(2, "B"))
    gone = decide(state, forgotten(state, 3)).state
    for event in (upload(1, "A"), upload(2, "B")):
        assert decide(gone, event).verdict is Verdict.STALE
    assert decide(gone, upload(4, "C")).verdict is Verdict.INDEX


def google(seconds: float, generation: int, *, gone: bool = False) -> UploadNotification | DeleteNotification:
    """What Google tells of a generation."""
    common = COMMON | {"bucket": "gs://b", "created_at": START + timedelta(seconds=seconds)}
    sequencer = sequencers.gcs(str(generation), deleted=gone)
    if gone:
        return DeleteNotification(**common, sequencer=sequencer)
    name = str(generation)
    return UploadNotification(**common, size_bytes=1, sequencer=sequencer, etag=name, version_id=name)


def looked_at(state: ObjectState | None, seconds: float, generation: int) -> UploadNotification:
    """What a listing tells of a generation: an etag, and no version."""
    at, sequencer = observed(state, ms(seconds))
    common = COMMON | {"bucket": "gs://b", "created_at": at}
    return UploadNotification(**common, size_bytes=1, etag=str(generation), sequencer=sequencer)


def test_an_old_generation_that_is_deleted_leaves_the_live_one_that_a_listing_has_seen():
    """A bucket with versions deletes what was replaced long ago; the object is there as it was."""
    state, _ = after(looked_at(None, 1, 18))
    assert decide(state, google(500, 17, gone=True)).verdict is Verdict.STALE
    assert decide(state, google(500, 17)).verdict is Verdict.STALE, "told late"
    assert decide(state, google(500, 18, gone=True)).verdict is Verdict.REMOVE
    assert decide(state, google(500, 19)).verdict is Verdict.INDEX
    # Also when events had told of the object before it was looked at.
    state, _ = after(google(0, 16), looked_at(state, 1, 18))
    assert decide(state, google(500, 17, gone=True)).verdict is Verdict.STALE


def test_a_look_at_an_older_generation_holds_back_no_newer_one():
    """A listing that was under way while the object changed."""
    state, _ = after(google(5, 18), looked_at(None, 6, 17))
    assert decide(state, google(5, 18)).verdict is Verdict.STALE
    assert decide(state, google(7, 19)).verdict is Verdict.INDEX
    state = decide(state, looked_at(state, 8, 17)).state
    assert decide(state, google(5, 18)).verdict is Verdict.STALE, "also after another look"


def test_two_looks_in_one_millisecond_have_an_order():
    first = observed(None, ms(1))
    state, _ = after(UploadNotification(**COMMON, size_bytes=1, sequencer=first.sequencer, created_at=first.at))
    assert observed(state, ms(1)).sequencer > first.sequencer
    assert observed(state, ms(0)).sequencer > first.sequencer


events = st.lists(st.tuples(st.booleans(), st.sampled_from("ABC")), min_size=1, max_size=8)


@given(events, st.randoms(use_true_random=False))
def test_events_in_any_order_and_number_end_on_the_last_one(history, order):
    told = [delete(n) if gone else upload(n, etag) for n, (gone, etag) in enumerate(history, 1)]
    shuffled = told * 2
    order.shuffle(shuffled)
    state, _ = after(*shuffled)
    gone, _ = history[-1]
    assert state.tombstone == gone
    assert state.doc_id == (None if gone else doc_id_of(told[-1]))  # type: ignore[arg-type]
