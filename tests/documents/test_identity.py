import hashlib
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.documents.contracts import DeleteNotification, UploadNotification
from penstock.documents.identity import (
    BatchIdentity,
    chunk_id,
    content_key,
    doc_id,
    doc_id_of,
    object_key,
    vo_key,
)

parts = st.lists(st.text("a|%:2357C", max_size=4), min_size=5, max_size=5)


def test_a_doc_id_is_the_sha256_of_the_joined_parts():
    assert doc_id("t", "b", "k", "v", "e") == hashlib.sha256(b"t|b|k|v|e").hexdigest()
    assert doc_id("t", "b", "k", None, None) == hashlib.sha256(b"t|b|k||").hexdigest()
    assert doc_id("t", "b", "a|b%", None, "e") == hashlib.sha256(b"t|b|a%7Cb%25||e").hexdigest()


@given(parts, parts)
def test_two_documents_share_an_id_only_when_every_part_is_equal(left, right):
    assert (doc_id(*left) == doc_id(*right)) == (left == right)


@given(st.text("a:%3A", max_size=4), st.text("a:%3A", max_size=4), st.text("a:%3A", max_size=4), parts)
def test_two_batchers_share_a_key_only_when_every_part_is_equal(tenant, index, model, other):
    assert (vo_key(tenant, index, model) == vo_key(*other[:3])) == ([tenant, index, model] == other[:3])


def test_an_object_has_one_key_whatever_its_version_and_whether_it_is_deleted():
    when = datetime(2025, 1, 1, tzinfo=UTC)
    common: dict[str, Any] = {
        "tenant_id": "t",
        "index_id": "i",
        "bucket": "b",
        "key": "k",
        "model": "m",
        "created_at": when,
    }
    first = UploadNotification(**common, size_bytes=1, etag="e1")
    second = UploadNotification(**common, size_bytes=1, etag="e2", version_id="v")
    assert object_key(first) == object_key(second) == object_key(DeleteNotification(**common))
    assert doc_id_of(first) != doc_id_of(second)


def test_a_chunk_is_named_after_its_document_and_its_bytes():
    assert chunk_id("d", 10, 20) == "d:10-20"


def test_a_model_with_a_provider_stays_readable_in_the_batchers_key():
    assert vo_key("t", "i", "openai:small") == "t:i:openai:small"


def test_a_batch_id_holds_the_key_the_counter_and_the_replayed_time():
    batch = BatchIdentity.of("t:i:m", 7, 1_000, ["c1", "c2"])
    assert batch.batch_id == "t:i:m:7:1000"
    assert batch.idempotency_key.startswith("t:i:m:7#")


def test_the_idempotency_key_ignores_the_time_and_knows_the_content():
    sent = BatchIdentity.of("k", 7, 1_000, ["c1", "c2"]).idempotency_key
    assert BatchIdentity.of("k", 7, 9_999, ["c1", "c2"]).idempotency_key == sent
    assert BatchIdentity.of("k", 7, 1_000, ["c2", "c1"]).idempotency_key != sent
    assert BatchIdentity.of("k", 8, 1_000, ["c1", "c2"]).idempotency_key != sent


def test_an_embedding_is_cached_by_text_and_model():
    assert content_key("a", "m") == content_key("a", "m")
    assert len({content_key("a", "m"), content_key("a", "n"), content_key("b", "m"), content_key("ma", "")}) == 4
