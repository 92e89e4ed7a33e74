"""Each store's shape, as the store sends it, becomes the same upload or delete."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.documents.contracts import (
    DeleteNotification,
    Notification,
    UploadNotification,
    decode_notification,
    encode,
)
from penstock.documents.notifications import PARSERS, Destination, NotificationMessage, parser_of
from penstock.documents.versions import Verdict, decide
from penstock.errors import InvalidInput, Unsupported

AT = "2025-08-28T12:00:00.000Z"
RECEIVED_MS = 1_756_382_400_000


def route(bucket, key):
    return None if bucket == "private" else Destination("acme", "handbook", "m")


def received(source, body, **headers):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return parser_of(source)(NotificationMessage(raw, names, RECEIVED_MS), route)


def s3_record(name="ObjectCreated:Put", key="a+b%2Fc%21.txt", bucket="docs", **fields):
    thing = {"key": key, "size": 12, "eTag": "e1", "sequencer": "0055AED6DCD90281E5", **fields}
    return {
        "eventVersion": "2.1",
        "eventName": name,
        "eventTime": AT,
        "responseElements": {"x-amz-request-id": "ev1", "x-amz-id-2": "host"},
        "s3": {"bucket": {"name": bucket}, "object": thing},
    }


def eventbridge_event(kind="Object Created", **detail):
    thing = {"key": "a b/c!.txt", "size": 12, "etag": "e1", "sequencer": "0055AED6DCD90281E5"}
    body = {"detail-type": kind, "time": "2025-08-28T12:00:00Z", "id": "ev1"}
    return {**body, "detail": {"bucket": {"name": "docs"}, "object": thing, **detail}}


def minio_event(name="s3:ObjectCreated:Put"):
    record = s3_record(name, sequencer="17D5A6B1C2D3E4F5", contentType="text/plain", versionId="v1")
    return {"EventName": name, "Key": "docs/a b/c!.txt", "Records": [record]}


def ceph_event(name="ObjectCreated:Put"):
    return {"Records": [s3_record(name, key="a b/c!.txt", size="12", sequencer="F7E6D75DC742D108")]}


def azure_event(kind="Microsoft.Storage.BlobCreated"):
    data = {"eTag": '"e1"', "contentType": "text/plain", "contentLength": 12, "sequencer": "000000000000044200000"}
    place = "/blobServices/default/containers/docs/blobs/a b/c!.txt"
    return {"id": "ev1", "eventType": kind, "subject": place, "eventTime": AT, "data": data}


def gcs_push(kind="OBJECT_FINALIZE", **more):
    told = {"eventType": kind, "bucketId": "docs", "objectId": "a b/c!.txt", "objectGeneration": "17", "eventTime": AT}
    thing = {"size": "12", "etag": "e1", "contentType": "text/plain"}
    data = base64.b64encode(json.dumps(thing).encode()).decode()
    return {"message": {"attributes": {**told, **more}, "data": data, "messageId": "ev1"}}


def seaweed_webhook(old=None, new=None, **more):
    return {"key": "/buckets/docs/a b/c!.txt", "message_data": {"old_entry": old, "new_entry": new, **more}}


SEAWEED_ENTRY = {
    "name": "c!.txt",
    "attributes": {"file_size": 12, "mtime": 1_756_382_400, "md5": base64.b64encode(bytes.fromhex("e1" * 16)).decode()},
}
CLOUD_EVENT = {
    "specversion": "1.0",
    "id": "ev1",
    "source": "s",
    "type": "com.amazonaws.s3.ObjectCreated:Put",
    "time": AT,
}

CREATED = {
    "s3": {"Records": [s3_record()]},
    "eventbridge": eventbridge_event(),
    "minio": minio_event(),
    "ceph": ceph_event(),
    "azure": [azure_event()],
    "gcs": gcs_push(),
    "seaweedfs": seaweed_webhook(new=SEAWEED_ENTRY),
    "cloudevents": {**CLOUD_EVENT, "data": s3_record()},
}
DELETED = {
    "s3": {"Records": [s3_record("ObjectRemoved:Delete")]},
    "eventbridge": eventbridge_event("Object Deleted"),
    "minio": minio_event("s3:ObjectRemoved:DeleteMarkerCreated"),
    "ceph": ceph_event("ObjectRemoved:Delete"),
    "azure": [azure_event("Microsoft.Storage.BlobDeleted")],
    "gcs": gcs_push("OBJECT_DELETE"),
    "seaweedfs": seaweed_webhook(old=SEAWEED_ENTRY),
    "cloudevents": {
        **CLOUD_EVENT,
        "type": "com.amazonaws.s3.ObjectRemoved:Delete",
        "data": s3_record("ObjectRemoved:Delete"),
    },
}


# A name alone is S3's; the objects of others are told by the URL they are read from.
BUCKETS = {"gcs": "gs://docs", "azure": "az://docs"}


def test_every_source_is_tried_here():
    assert set(CREATED) == set(DELETED) == set(PARSERS)


@pytest.mark.parametrize("source", sorted(PARSERS))
def test_a_created_object_becomes_the_same_upload_from_every_store(source):
    (upload,) = received(source, CREATED[source]).notifications
    assert isinstance(upload, UploadNotification)
    assert (upload.tenant_id, upload.index_id, upload.model) == ("acme", "handbook", "m")
    assert (upload.bucket, upload.key, upload.size_bytes) == (BUCKETS.get(source, "docs"), "a b/c!.txt", 12)
    assert upload.etag in ("e1", "e1" * 16, "17")
    assert upload.created_at == datetime(2025, 8, 28, 12, tzinfo=UTC)
    assert upload.sequencer
    assert decode_notification(encode(upload)) == upload


@pytest.mark.parametrize("source", sorted(PARSERS))
def test_a_removed_object_becomes_a_delete_that_acts_on_the_object(source):
    (delete,) = received(source, DELETED[source]).notifications
    assert isinstance(delete, DeleteNotification)
    assert (delete.bucket, delete.key, delete.version_id) == (BUCKETS.get(source, "docs"), "a b/c!.txt", None)
    assert delete.sequencer
    assert decode_notification(encode(delete)) == delete


TRACE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


@pytest.mark.parametrize("source", sorted(PARSERS))
@pytest.mark.parametrize("bodies", [CREATED, DELETED])
def test_an_event_of_every_store_carries_the_name_and_the_trace_that_its_sender_gave_it(source, bodies):
    """SeaweedFS names no event: then the request that brought it does."""
    (event,) = received(source, bodies[source], x_request_id="request", traceparent=TRACE).notifications
    assert event.source_id == ("request" if source == "seaweedfs" else "ev1")
    assert event.traceparent == TRACE


def test_an_event_without_a_name_of_its_own_has_that_of_its_delivery():
    record = {**s3_record(), "responseElements": {}}
    body = json.dumps({"Records": [record]}).encode()
    named = NotificationMessage(body, {"x-request-id": "request"}, RECEIVED_MS, source_id="message")
    (event,) = parser_of("s3")(named, route).notifications
    assert event.source_id == "message"
    (event,) = received("s3", {"Records": [record]}, x_request_id="request").notifications
    assert event.source_id == "request"
    (event,) = received("s3", {"Records": [{**record, "responseElements": {"x-amz-request-id": 7}}]}).notifications
    assert (event.source_id, event.traceparent) == (None, None)


def test_each_cloud_event_of_a_batch_has_a_trace_of_its_own():
    other = TRACE.replace("ab", "12")
    batch = [{**CLOUD_EVENT, "data": s3_record(), "traceparent": told} for told in (other, "nonsense", 7)]
    headers = {"content_type": "application/cloudevents-batch+json", "traceparent": TRACE}
    events = received("cloudevents", batch, **headers).notifications
    assert [event.traceparent for event in events] == [other, TRACE, TRACE]
    binary = {"ce_" + name: value for name, value in CLOUD_EVENT.items()}
    (event,) = received("cloudevents", s3_record(), **binary, ce_traceparent=other).notifications
    assert event.traceparent == other


@pytest.mark.parametrize("source", sorted(PARSERS))
@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[1]", b'"text"', b"{}", b"\xff\xfe", b'{"Records": [{}]}', b"[[[["]
)
def test_what_a_store_never_sends_is_refused_and_nothing_of_it_is_taken(source, body):
    with pytest.raises(InvalidInput):
        received(source, body)


HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 10**12, 10**30, -(10**30), 10**400, -(10**400), 1e308, [], {}, [None], {"a": None}),
    *(
        "",
        "\0",
        "x" * 70_000,
        "file:///etc",
        "%ff%fe",
        "%00",
        "٣",
        "５",
        "1e999",
        "0x10",
        "ff" * 40,
        "9" * 5_000,
        "f" * 9_000,
    ),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2024-01-01T00:00:60Z"),
)


def places(value, place=()):
    """Every place in a body, from its root."""
    yield place
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from places(inner, (*place, key))


def changed(value, place, to):
    if not place:
        return to
    inner = changed(value[place[0]], place[1:], to)
    if isinstance(value, dict):
        return {**value, place[0]: inner}
    return [*value[: place[0]], inner, *value[place[0] + 1 :]]


# Further shapes of a source: what one event does not have, another has.
FURTHER: dict[str, tuple[Any, ...]] = {
    "azure": (
        [{**azure_event("Microsoft.Storage.BlobRenamed"), "data": {"sourceUrl": "https://a.dfs.x/docs/old"}}],
        [{**azure_event("Microsoft.EventGrid.SubscriptionValidationEvent"), "data": {"validationCode": "c"}}],
    ),
    "cloudevents": (
        {**CLOUD_EVENT, "data": {"Records": [s3_record()]}, "metadata": {"team": "sales"}},
        {**CLOUD_EVENT, "data_base64": base64.b64encode(json.dumps(s3_record()["s3"]).encode()).decode()},
        {
            **CLOUD_EVENT,
            "type": "google.cloud.storage.object.v1.finalized",
            "data": {"bucket": "docs", "name": "n", "generation": "17", "size": "12", "metadata": {"team": "sales"}},
        },
        {**CLOUD_EVENT, "type": "Microsoft.Storage.BlobCreated", **azure_event()},
    ),
    "seaweedfs": (seaweed_webhook(old=SEAWEED_ENTRY, new=SEAWEED_ENTRY, new_parent_path="/buckets/docs/new"),),
}
# In characters: whoever reads a refusal reads it in a terminal, in a log or in the answer to a request.
REFUSAL_MAX = 1_000


def outcome(source: str, delivery: NotificationMessage) -> tuple[list[Notification], str]:
    """The events of a delivery, or why it was refused; whatever else is raised is a fault."""
    try:
        return list(parser_of(source)(delivery, route).notifications), ""
    except (InvalidInput, Unsupported) as error:
        return [], str(error)


@pytest.mark.parametrize("source", sorted(PARSERS))
def test_whatever_stands_in_any_member_is_refused_by_name_or_makes_an_event_that_the_job_reads(source):
    bodies = []
    for shape in (CREATED[source], DELETED[source], *FURTHER.get(source, ())):
        bodies += [changed(shape, place, to) for place in places(shape) for to in HOSTILE]
    taken = 0
    for body in bodies:
        events, refusal = outcome(source, NotificationMessage(json.dumps(body).encode(), {}, RECEIVED_MS))
        assert len(refusal) <= REFUSAL_MAX, refusal[:200]
        taken += not refusal
        assert [decode_notification(encode(event)) for event in events] == events
    assert taken


@pytest.mark.parametrize("source", sorted(PARSERS))
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"Records":[', b'{"data":'])
def test_a_body_that_is_nested_without_end_is_refused(source, opening):
    with pytest.raises(InvalidInput):
        received(source, opening * 20_000)


@pytest.mark.parametrize("header", ["ce-id", "ce-subject", "ce-time", "ce-metadata", "ce-type", "x-request-id"])
@pytest.mark.parametrize("value", ["a\udcff", "\0", "%ED%A0%80", "{", '{"\\ud800": 1}', "x" * 70_000])
def test_whatever_stands_in_a_header_is_refused_or_makes_an_event_that_the_job_reads(header, value):
    binary = {"ce-" + name: said for name, said in CLOUD_EVENT.items() if name != "time"}
    delivery = NotificationMessage(json.dumps(s3_record()["s3"]).encode(), {**binary, header: value}, RECEIVED_MS)
    events, refusal = outcome("cloudevents", delivery)
    assert len(refusal.encode()) <= REFUSAL_MAX
    assert [decode_notification(encode(event)) for event in events] == events


def test_one_broken_record_refuses_the_whole_delivery():
    with pytest.raises(InvalidInput):
        received("s3", {"Records": [s3_record(), {"eventName": "ObjectCreated:Put"}]})


def test_keys_of_s3_are_form_encoded_and_those_of_ceph_and_eventbridge_are_not():
    assert received("s3", {"Records": [s3_record(key="100%25+a%2Bb")]}).notifications[0].key == "100% a+b"
    assert (
        received("ceph", {"Records": [s3_record(key="100%25+a", sequencer="F7E6D75DC742D108")]}).notifications[0].key
        == "100%25+a"
    )


def test_the_test_event_of_s3_is_taken_and_ignored():
    assert received("s3", {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "docs"}).ignored == (
        "a test event",
    )


def test_a_minor_version_is_welcome_and_a_major_one_is_not():
    assert received("s3", {"Records": [{**s3_record(), "eventVersion": "2.9"}]}).notifications
    with pytest.raises(Unsupported, match=r"3\.0"):
        received("s3", {"Records": [{**s3_record(), "eventVersion": "3.0"}]})


def test_a_delete_marker_acts_on_the_object_and_a_deleted_version_on_that_version():
    marker = s3_record("ObjectRemoved:DeleteMarkerCreated", versionId="v9")
    version = s3_record("ObjectRemoved:Delete", versionId="v3")
    found = received("s3", {"Records": [marker, version]}).notifications
    assert [delete.version_id for delete in found] == [None, "v3"]


def test_a_null_version_is_no_version():
    assert received("s3", {"Records": [s3_record(versionId="null")]}).notifications[0].version_id is None


def test_an_upload_begun_in_ceph_is_not_an_object_yet():
    assert not received("ceph", ceph_event("ObjectCreated:Post")).notifications
    assert received("ceph", ceph_event("ObjectCreated:CompleteMultipartUpload")).notifications


def test_an_upload_that_expired_in_ceph_before_its_end_removes_no_object():
    """The object of that key may well be there: only the parts of an upload that was given up are gone."""
    for expired in ("AbortMultipartUpload", "DeleteMarker"):
        assert not received("ceph", ceph_event(f"ObjectLifecycle:Expiration:{expired}")).notifications
    (gone,) = received("ceph", ceph_event("ObjectLifecycle:Expiration:Current")).notifications
    assert (type(gone), gone.version_id) == (DeleteNotification, None)


def test_an_old_version_that_expired_in_ceph_removes_that_version_alone():
    event = {"Records": [s3_record("ObjectLifecycle:Expiration:NonCurrent", sequencer="F7E6D75DC742D108")]}
    assert not received("ceph", event).notifications
    event["Records"][0]["s3"]["object"]["versionId"] = "v1"
    (gone,) = received("ceph", event).notifications
    assert (type(gone), gone.version_id) == (DeleteNotification, "v1")


def test_an_old_version_that_expired_in_an_older_ceph_is_told_in_other_letters():
    event = s3_record("ObjectLifecycle:Expiration:Noncurrent", sequencer="F7E6D75DC742D108", versionId="v1")
    (gone,) = received("ceph", {"Records": [event]}).notifications
    assert (type(gone), gone.version_id) == (DeleteNotification, "v1")
    assert not received("ceph", ceph_event("ObjectLifecycle:Expiration:AbortMPU")).notifications


@pytest.mark.parametrize("family", ["ObjectSynced", "Replication"])
def test_what_ceph_copies_from_another_zone_is_as_good_as_written_here(family):
    (made,) = received("ceph", ceph_event(f"{family}:Create")).notifications
    assert isinstance(made, UploadNotification)
    for removal in ("Delete", "DeletionMarkerCreated"):
        event = {"Records": [s3_record(f"{family}:{removal}", sequencer="F7E6D75DC742D108", versionId="v1")]}
        (gone,) = received("ceph", event).notifications
        assert (type(gone), gone.version_id) == (DeleteNotification, "v1" if removal == "Delete" else None)
    # At Amazon and in MinIO such names tell how copying to another bucket goes.
    assert not received("s3", {"Records": [s3_record("Replication:OperationFailedReplication")]}).notifications


def test_all_versions_that_minio_removes_at_once_are_the_object():
    (gone,) = received("minio", minio_event("s3:ObjectRemoved:DeleteAllVersions")).notifications
    assert (type(gone), gone.version_id) == (DeleteNotification, None)


def renamed_blob(**more):
    told = azure_event("Microsoft.Storage.BlobRenamed")
    urls = {
        "sourceUrl": "https://acme.dfs.core.windows.net/docs/old%20name.txt",
        "destinationUrl": "https://acme.dfs.core.windows.net/docs/a b/c!.txt",
    }
    return {**told, "data": {"api": "RenameFile", "sequencer": "000000000000044200000", **urls, **more}}


def test_a_blob_that_was_renamed_is_gone_under_its_old_name_and_new_under_the_other():
    """A data lake renames without copying: no other event tells of either name."""
    gone, made = received("azure", [renamed_blob()]).notifications
    assert (type(gone), gone.bucket, gone.key) == (DeleteNotification, "az://acme.docs", "old name.txt")
    assert (type(made), made.bucket, made.key) == (UploadNotification, "az://acme.docs", "a b/c!.txt")
    assert (made.etag, made.size_bytes, made.sequencer) == (None, 0, gone.sequencer)


@pytest.mark.parametrize(
    "source",
    [None, "", "https://acme.dfs.core.windows.net/docs", "https://acme.dfs.core.windows.net//a", "file:///etc/passwd"],
)
def test_a_blob_that_was_renamed_from_nowhere_is_refused(source):
    with pytest.raises(InvalidInput):
        received("azure", [renamed_blob(sourceUrl=source)])


def test_a_generation_of_google_that_was_archived_is_gone_whichever_way_it_is_told():
    (pushed,) = received("gcs", gcs_push("OBJECT_ARCHIVE")).notifications
    resource = {"bucket": "docs", "name": "a b/c!.txt", "generation": "17"}
    event = {**CLOUD_EVENT, "type": "google.cloud.storage.object.v1.archived", "data": resource}
    (told,) = received("cloudevents", event).notifications
    assert isinstance(told, DeleteNotification)
    assert (told.bucket, told.key, told.sequencer) == (pushed.bucket, pushed.key, pushed.sequencer)


def test_a_generation_that_was_archived_because_another_took_its_place_holds_back_nothing():
    (archived,) = received("gcs", gcs_push("OBJECT_ARCHIVE")).notifications
    (next_one,) = received("gcs", gcs_push(objectGeneration="18")).notifications
    assert decide(decide(None, archived).state, next_one).verdict is Verdict.INDEX
    assert decide(decide(None, next_one).state, archived).verdict is Verdict.STALE


def test_events_that_change_no_content_and_objects_of_other_buckets_are_ignored_with_a_reason():
    body = {
        "Records": [s3_record("ObjectTagging:Put"), s3_record(bucket="private"), s3_record(key="folder%2F", size=0)]
    }
    ignored = received("s3", body).ignored
    assert [reason.rpartition(": ")[2] for reason in ignored] == [
        "ObjectTagging:Put",
        "not indexed",
        "a marker of a folder",
    ]


def test_several_records_keep_their_order():
    keys = [
        upload.key for upload in received("s3", {"Records": [s3_record(key=f"k{n}") for n in range(5)]}).notifications
    ]
    assert keys == [f"k{n}" for n in range(5)]


def test_an_overwritten_generation_is_not_a_delete():
    assert not received("gcs", gcs_push("OBJECT_DELETE", overwrittenByGeneration="18")).notifications


def test_event_grid_is_answered_when_it_asks_for_a_handshake():
    ask = {**azure_event("Microsoft.EventGrid.SubscriptionValidationEvent"), "data": {"validationCode": "c0de"}}
    assert received("azure", [ask]).reply == b'{"validationResponse":"c0de"}'


AZURE_TOPIC = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/"


def test_containers_of_one_name_in_two_accounts_are_two_buckets():
    told = [{**azure_event(), "topic": f"{AZURE_TOPIC}{account}"} for account in ("acme", "Bravo")]
    assert [upload.bucket for upload in received("azure", told).notifications] == ["az://acme.docs", "az://bravo.docs"]
    gone = {**azure_event("Microsoft.Storage.BlobDeleted"), "topic": f"{AZURE_TOPIC}acme"}
    assert received("azure", [gone]).notifications[0].bucket == "az://acme.docs"
    blob = azure_event()
    cloud = {**CLOUD_EVENT, "type": blob["eventType"], "subject": blob["subject"], "data": blob["data"]}
    cloud["source"] = f"{AZURE_TOPIC}acme"
    assert received("cloudevents", cloud).notifications[0].bucket == "az://acme.docs"


@pytest.mark.parametrize(
    ("url", "bucket"),
    [
        ("https://acme.blob.core.windows.net/docs/a", "az://acme.docs"),
        ("https://acme.dfs.core.windows.net/docs/a", "az://acme.docs"),
        ("https://acme.z6.blob.storage.azure.net/docs/a", "az://acme.docs"),
        ("http://127.0.0.1:10000/devstoreaccount1/docs/a", "az://docs"),
        ("https://docs.example.com/blob.html", "az://docs"),
        (None, "az://docs"),
    ],
)
def test_an_account_is_read_from_the_url_of_the_blob_where_there_is_no_topic(url, bucket):
    told = azure_event()
    told["data"]["url"] = url
    assert received("azure", [told]).notifications[0].bucket == bucket


def test_a_container_cannot_be_named_so_that_it_is_of_another_account():
    told = {**azure_event(), "subject": "/blobServices/default/containers/acme.docs/blobs/a"}
    with pytest.raises(InvalidInput, match="a container cannot be named"):
        received("azure", [told])


def test_a_rename_in_seaweedfs_is_a_delete_and_an_upload():
    body = seaweed_webhook(old=SEAWEED_ENTRY, new={**SEAWEED_ENTRY, "name": "d.txt"}, new_parent_path="/buckets/docs/z")
    delete, upload = received("seaweedfs", body).notifications
    assert (delete.key, upload.key) == ("a b/c!.txt", "z/d.txt")


@pytest.mark.parametrize("path", ["/buckets/docs", "/etc/seaweed.conf"])
def test_paths_that_are_no_objects_are_ignored(path):
    entry = {**SEAWEED_ENTRY, "is_directory": path == "/buckets/docs"}
    assert received("seaweedfs", {"key": path, "message": {"new_entry": entry}}).ignored == (f"{path}: no object",)


def test_a_cloud_event_in_binary_form_carries_its_attributes_in_headers():
    headers = {f"ce_{name}": value for name, value in CLOUD_EVENT.items()} | {"content_type": "application/json"}
    assert received("cloudevents", s3_record(), **headers).notifications == received("s3", CREATED["s3"]).notifications


def test_a_batch_of_cloud_events_gives_all_of_them():
    batch = [{**CLOUD_EVENT, "data": s3_record(key=f"k{n}")} for n in range(3)]
    found = received("cloudevents", batch, content_type="application/cloudevents-batch+json; charset=utf-8")
    assert [upload.key for upload in found.notifications] == ["k0", "k1", "k2"]


def test_the_data_of_a_cloud_event_may_be_base64():
    data = base64.b64encode(json.dumps(s3_record()).encode()).decode()
    assert received("cloudevents", {**CLOUD_EVENT, "data_base64": data}).notifications
    with pytest.raises(InvalidInput, match="base64"):
        received("cloudevents", {**CLOUD_EVENT, "data_base64": "***"})


@pytest.mark.parametrize("shape", [{"Records": [s3_record()]}, s3_record(), s3_record()["s3"]])
def test_the_adapter_of_s3_may_pass_all_a_record_or_only_its_core(shape):
    (upload,) = received("cloudevents", {**CLOUD_EVENT, "data": shape}).notifications
    assert upload.key == "a b/c!.txt"


def test_storage_events_of_google_and_azure_come_as_cloud_events_too():
    resource = {"bucket": "docs", "name": "k", "generation": "7", "size": "3", "etag": "e"}
    google = {**CLOUD_EVENT, "type": "google.cloud.storage.object.v1.finalized", "data": resource}
    assert received("cloudevents", google).notifications[0].key == "k"
    blob = azure_event()
    azure = {**CLOUD_EVENT, "type": blob["eventType"], "subject": blob["subject"], "data": blob["data"]}
    assert received("cloudevents", azure).notifications[0].key == "a b/c!.txt"


def test_an_event_of_another_type_is_ignored_by_name_and_of_another_version_refused():
    assert "com.example.lunch" in received("cloudevents", {**CLOUD_EVENT, "type": "com.example.lunch"}).ignored[0]
    with pytest.raises(Unsupported, match=r"0\.3"):
        received("cloudevents", {**CLOUD_EVENT, "specversion": "0.3"})
    with pytest.raises(InvalidInput):
        received("cloudevents", {**CLOUD_EVENT, "id": ""})


def test_a_source_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InvalidInput, match="eventbridge"):
        parser_of("ftp")


@pytest.mark.parametrize("bucket", ["file:///etc", "../up", "s3://other", "memory://x", "a/b", "-x", "b\nc", "x" * 300])
def test_an_event_cannot_name_a_store_or_a_folder_of_ours_as_its_bucket(bucket: str) -> None:
    record = {
        "eventVersion": "2.1",
        "eventTime": "2026-01-01T00:00:00Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": bucket}, "object": {"key": "passwd", "size": 1, "eTag": "e", "sequencer": "01"}},
    }
    delivery = NotificationMessage(json.dumps({"Records": [record]}).encode())
    with pytest.raises(InvalidInput, match="bucket"):
        parser_of("s3")(delivery, lambda _bucket, _key: Destination("t", "i", "m"))


def test_a_size_below_zero_is_refused() -> None:
    record = {
        "eventVersion": "2.1",
        "eventTime": "2026-01-01T00:00:00Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "b"}, "object": {"key": "k", "size": -5, "eTag": "e", "sequencer": "01"}},
    }
    delivery = NotificationMessage(json.dumps({"Records": [record]}).encode())
    with pytest.raises(InvalidInput, match="-5 bytes"):
        parser_of("s3")(delivery, lambda _bucket, _key: Destination("t", "i", "m"))


@pytest.mark.parametrize("said", [{"team": "sales", "year": 2024}, '{"team": "sales", "year": 2024}'])
def test_the_metadata_of_a_cloud_event_is_said_of_its_object(said):
    event = {**CLOUD_EVENT, "data": s3_record(), "metadata": said}
    (upload,) = received("cloudevents", event).notifications
    assert upload.metadata == {"team": "sales", "year": 2024}
    assert decode_notification(encode(upload)) == upload


def test_the_metadata_of_a_binary_cloud_event_is_a_header():
    headers = {"ce_specversion": "1.0", "ce_id": "e", "ce_source": "s", "ce_type": "com.amazonaws.s3.ObjectCreated"}
    said = {"content_type": "application/json", "ce_metadata": "%7B%22team%22%3A%20%22sales%22%7D"}
    (upload,) = received("cloudevents", s3_record(), **headers, **said).notifications
    assert upload.metadata == {"team": "sales"}


def test_metadata_of_an_event_that_is_no_object_is_refused_and_too_much_of_it_is_left_out():
    for said in ("[1]", 7, "{broken"):
        with pytest.raises(InvalidInput, match="metadata"):
            received("cloudevents", {**CLOUD_EVENT, "data": s3_record(), "metadata": said})
    much = {f"name {number}": "x" * 1_000 for number in range(10_000)}
    (upload,) = received("cloudevents", {**CLOUD_EVENT, "data": s3_record(), "metadata": much}).notifications
    assert len(encode(upload)) < 20_000


def test_googles_own_metadata_of_an_object_is_said_of_it():
    body = gcs_push()
    thing = {"size": "12", "metadata": {"team": "sales"}}
    body["message"]["data"] = base64.b64encode(json.dumps(thing).encode()).decode()
    (upload,) = received("gcs", body).notifications
    assert upload.metadata == {"team": "sales"}
    assert received("gcs", gcs_push()).notifications[0].metadata is None
