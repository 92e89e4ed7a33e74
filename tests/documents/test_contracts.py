from datetime import UTC, datetime

import pytest

from penstock.documents.contracts import (
    BatchInput,
    BatchRequest,
    ChunkEnvelope,
    ChunkMetadata,
    DeleteNotification,
    UploadNotification,
    decode,
    decode_notification,
    encode,
)
from penstock.errors import InvalidInput

DOC = "ab" * 32
UPLOAD = UploadNotification(
    tenant_id="acme",
    index_id="handbook",
    bucket="docs",
    key="a/b.txt",
    etag="e1",
    size_bytes=12,
    model="m",
    created_at=datetime(2025, 8, 28, 12, 0, tzinfo=UTC),
)


def test_an_upload_has_exactly_the_json_names_of_the_contract():
    full = UploadNotification(
        tenant_id="t",
        index_id="i",
        bucket="b",
        key="k",
        version_id="v",
        etag="e",
        size_bytes=1,
        content_type="text/plain",
        model="m",
        source_id="s",
        created_at=datetime(2025, 8, 28, tzinfo=UTC),
        sequencer="s3:01",
    )
    assert encode(full) == (
        b'{"tenantId":"t","indexId":"i","bucket":"b","key":"k","versionId":"v","etag":"e","sizeBytes":1,'
        b'"contentType":"text/plain","model":"m","sourceId":"s","createdAt":"2025-08-28T00:00:00Z",'
        b'"sequencer":"s3:01"}'
    )


def test_a_chunk_has_exactly_the_json_names_of_the_contract():
    chunk = ChunkEnvelope(
        doc_id=DOC,
        chunk_id=f"{DOC}:0-5",
        seq=0,
        text="héllo",
        byte_range=(0, 6),
        token_count=2,
        metadata=ChunkMetadata(tenant_id="t", index_id="i", model="m"),
    )
    assert encode(chunk).decode() == (
        f'{{"docId":"{DOC}","chunkId":"{DOC}:0-5","seq":0,"text":"héllo","byteRange":[0,6],"tokenCount":2,'
        '"metadata":{"tenantId":"t","indexId":"i","model":"m"}}'
    )


def test_a_batch_has_exactly_the_json_names_of_the_contract():
    batch = BatchRequest(
        batch_id="t:i:m:0:5",
        tenant_id="t",
        index_id="i",
        model="m",
        inputs=(BatchInput(doc_id=DOC, chunk_id="c", seq=3, text="x"),),
        tokens_total=1,
        created_at=datetime(2025, 8, 28, tzinfo=UTC),
    )
    assert encode(batch).decode() == (
        '{"batchId":"t:i:m:0:5","tenantId":"t","indexId":"i","model":"m",'
        f'"inputs":[{{"docId":"{DOC}","chunkId":"c","seq":3,"text":"x"}}],'
        '"tokensTotal":1,"createdAt":"2025-08-28T00:00:00Z"}'
    )


def test_a_message_survives_its_json():
    assert decode(encode(UPLOAD), UploadNotification) == UPLOAD


def test_absent_members_stay_absent():
    assert b"versionId" not in encode(UPLOAD)
    assert b"null" not in encode(UPLOAD)


def test_a_delete_is_told_from_an_upload_without_asking_uploads_for_a_new_member():
    delete = DeleteNotification(
        tenant_id="t", index_id="i", bucket="b", key="k", model="m", created_at=datetime(2025, 1, 1, tzinfo=UTC)
    )
    assert b'"event":"delete"' in encode(delete)
    assert decode_notification(encode(delete)) == delete
    assert decode_notification(encode(UPLOAD)) == UPLOAD


def test_members_of_a_newer_producer_are_ignored():
    newer = encode(UPLOAD)[:-1] + b',"colour":"green"}'
    assert decode_notification(newer) == UPLOAD


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (b"{", "UploadNotification"),
        (b"[]", "object"),
        (b"{}", "tenantId"),
        (encode(UPLOAD).replace(b'"sizeBytes":12', b'"sizeBytes":-1'), "sizeBytes"),
        (encode(UPLOAD).replace(b'"sizeBytes":12', b'"sizeBytes":"12"'), "sizeBytes"),
        (encode(UPLOAD).replace(b'"acme"', b'""'), "tenantId"),
        (encode(UPLOAD).replace(b"12:00:00Z", b"12:00:00"), "createdAt"),
        (encode(UPLOAD)[:-1] + b',"event":"rename"}', "event"),
    ],
)
def test_a_message_that_breaks_the_contract_is_refused_by_name(broken, named):
    with pytest.raises(InvalidInput, match=named):
        decode_notification(broken)
