from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents.contracts import DeleteNotification, UploadNotification
from penstock.documents.identity import doc_id_of
from penstock.documents.versions import ObjectState, Verdict, apply

START = datetime(2025, 8, 28, tzinfo=UTC)
COMMON = {"tenant_id": "t", "index_id": "i", "bucket": "b", "key": "k", "model": "m"}


def upload(order: int, etag: str, **more) -> UploadNotification:
    at = START + timedelta(seconds=order)
    return UploadNotification(**COMMON, size_bytes=1, etag=etag, sequencer=f"s3:{order:04x}", created_at=at, **more)


def delete(order: int, **more) -> DeleteNotification:
    return DeleteNotification(**COMMON, sequencer=f"s3:{order:04x}", created_at=START, **more)


def after(*events):
    state, verdicts = None, []
    for event in events:
        decision = apply(state, event)
        state = decision.state
        verdicts.append(decision.verdict)
    return state, verdicts


def test_a_newer_version_takes_over_and_names_the_one_it_replaces():
    state, _ = after(upload(1, "A"))
    decision = apply(state, upload(2, "B"))
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
    decision = apply(state, upload(2, "B"))
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
    assert apply(state, delete(2)).superseded == doc_id_of(upload(1, "A"))


def test_deleting_a_version_that_is_not_current_changes_nothing():
    state, _ = after(upload(1, "A", version_id="v1"), upload(2, "B", version_id="v2"))
    assert apply(state, delete(3, version_id="v1")).verdict is Verdict.ELSEWHERE
    assert apply(state, delete(3, version_id="v1")).state == state
    assert apply(state, delete(3, version_id="v2")).verdict is Verdict.REMOVE


def test_deleting_a_version_never_heard_of_does_not_bury_the_current_one():
    state, verdicts = after(delete(9, version_id="v1"), upload(2, "B", version_id="v2"))
    assert verdicts == [Verdict.ELSEWHERE, Verdict.INDEX]
    assert state.doc_id


def test_the_state_survives_its_serialisation():
    state, _ = after(upload(1, "A"), delete(3))
    assert msgspec.json.decode(msgspec.json.encode(state), type=ObjectState) == state


def test_uploads_without_any_sequencer_are_ordered_by_their_time():
    first = msgspec.structs.replace(upload(1, "A"), sequencer=None)
    second = msgspec.structs.replace(upload(2, "B"), sequencer=None)
    state, verdicts = after(second, first, second)
    assert verdicts == [Verdict.INDEX, Verdict.STALE, Verdict.DUPLICATE]
    assert state.doc_id == doc_id_of(second)


events = st.lists(st.tuples(st.booleans(), st.sampled_from("ABC")), min_size=1, max_size=8)


@given(events, st.randoms(use_true_random=False))
def test_events_in_any_order_and_number_end_on_the_last_one(history, order):
    told = [delete(n) if gone else upload(n, etag) for n, (gone, etag) in enumerate(history, 1)]
    shuffled = told * 2
    order.shuffle(shuffled)
    state, _ = after(*shuffled)
    gone, _ = history[-1]
    assert state.tombstone == gone
    assert state.doc_id == (None if gone else doc_id_of(told[-1]))
