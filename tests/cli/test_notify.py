"""`penstock notify` puts what a store has told on the queue, whole or not at all."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.buffer.inspection import read_batches, read_manifest
from penstock.cli.main import penstock
from penstock.clock import SYSTEM_CLOCK
from penstock.documents import Notification, UploadNotification, decode_notification
from penstock.documents.notifications import PARSERS, Destination, NotificationMessage
from penstock.documents.notifications.sns import SnsMessage, sns_text
from penstock.documents.notifications.trust import HmacTrust
from penstock.errors import InvalidInput, PenstockError
from penstock.indexing.sending.receiving import documents_in, receive
from penstock.objects import open_store

SECRET = "a secret of many bytes"


def s3(*keys: str, event: str = "ObjectCreated:Put") -> dict[str, Any]:
    records = [
        {
            "eventVersion": "2.1",
            "eventName": event,
            "eventTime": "2026-01-02T03:04:05.678Z",
            "s3": {"bucket": {"name": "docs"}, "object": {"key": key, "size": 7, "eTag": "e", "sequencer": "0A"}},
        }
        for key in keys
    ]
    return {"Records": records}


class Desk:
    """A store, and the command that puts things on its queue."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"

    def notify(self, body: bytes | dict[str, Any] | str, *options: str, source: str = "s3") -> Result:
        text = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        command = ["notify", "-", "--source", source, "--store", str(self.store), "--index", "handbook", *options]
        return CliRunner().invoke(penstock, command, input=text)

    def queued(self) -> list[Notification]:
        """What lies on the queue, in its order."""

        async def read() -> list[Notification]:
            store = await open_store(f"file://{self.store}", read_only=True)
            manifest = await read_manifest(store, "ingest/manifest")
            found = [reading.batch async for reading in read_batches(store, manifest.after(None, len(manifest)))]
            batches = [batch for batch in found if batch is not None]
            await store.close()
            return [decode_notification(bytes(record)) for batch in batches for record in batch.records]

        return asyncio.run(read())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_uploads_and_deletes_are_queued_in_their_order_and_told(desk: Desk) -> None:
    lines = [s3("a.md", "b%20c.md"), s3("a.md", event="ObjectRemoved:Delete")]
    answer = desk.notify("\n".join(map(json.dumps, lines)), "--tenant", "acme")
    assert answer.exit_code == 0, answer.output
    assert "queued for index handbook: 2 uploads, 1 deletes; 0 ignored" in answer.output
    assert "upload docs/b c.md (7 bytes)" in answer.output
    queued = desk.queued()
    assert [(type(event).__name__, event.key) for event in queued] == [
        ("UploadNotification", "a.md"),
        ("UploadNotification", "b c.md"),
        ("DeleteNotification", "a.md"),
    ]
    assert {(event.tenant_id, event.index_id, event.sequencer) for event in queued} == {("acme", "handbook", "s3:0a")}


def test_a_file_laid_out_over_many_lines_is_one_document(desk: Desk) -> None:
    path = desk.folder / "event.json"
    path.write_text(json.dumps(s3("a.md"), indent=2))
    command = ["notify", str(path), "--source", "s3", "--store", str(desk.store), "--json"]
    answer = CliRunner().invoke(penstock, command)
    told = json.loads(answer.output)
    assert [event["key"] for event in told["queued"]] == ["a.md"]
    assert [event.key for event in desk.queued()] == ["a.md"]


def test_a_batch_of_cloud_events_in_a_file_needs_no_content_type(desk: Desk) -> None:
    events = [
        {"specversion": "1.0", "id": key, "source": "s", "type": "com.amazonaws.s3.ObjectCreated:Put", "data": s3(key)}
        for key in ("a", "b")
    ]
    assert desk.notify(json.dumps(events), source="cloudevents").exit_code == 0
    assert [event.key for event in desk.queued()] == ["a", "b"]


@pytest.mark.parametrize("header", ["ce-id:1", "CE-Id: 1"])
def test_a_cloud_event_in_binary_form_has_its_attributes_as_headers(desk: Desk, header: str) -> None:
    others = ["ce-specversion:1.0", "ce-source:s", "ce-type:com.amazonaws.s3.ObjectCreated:Put"]
    options = [part for each in (header, *others) for part in ("--header", each)]
    assert desk.notify(s3("a"), *options, source="cloudevents").exit_code == 0
    assert [event.key for event in desk.queued()] == ["a"]


def test_the_test_event_of_s3_is_ignored_with_a_word_and_queues_nothing(desk: Desk) -> None:
    answer = desk.notify({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "docs"})
    assert answer.exit_code == 0
    assert "ignored: a test event" in answer.output
    assert not desk.store.exists()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "it is empty"),
        ("{not json", "line 1 of the input is not JSON"),
        (json.dumps(s3("a")) + "\n{broken\n", "line 2 of the input is not JSON"),
        (json.dumps(s3("a")) + "\n" + json.dumps({"some": "thing"}), "notification 2 of the input"),
        (json.dumps({"Records": [{"eventName": "ObjectCreated:Put"}]}), "notification 1 of the input"),
        (json.dumps(s3("")), "does not name an object"),
    ],
)
def test_a_malformed_notification_is_refused_and_nothing_of_the_input_is_sent(desk: Desk, body: str, says: str) -> None:
    answer = desk.notify(body)
    assert answer.exit_code == 1
    assert says in answer.output
    assert "Traceback" not in answer.output
    assert not desk.store.exists()


def signed(body: bytes, at_seconds: int, key: str = SECRET, target: str = "s3/handbook") -> list[str]:
    signature = HmacTrust([key.encode()]).sign(body, at_seconds, target)
    return ["--header", f"X-Penstock-Timestamp: {at_seconds}", "--header", f"X-Penstock-Signature: {signature}"]


def test_what_is_signed_with_one_of_the_keys_is_taken(desk: Desk) -> None:
    body = json.dumps(s3("a.md")).encode()
    now = SYSTEM_CLOCK.now_ms() // 1000
    keys = ["--secret", "another key, soon retired", "--secret", SECRET]
    assert desk.notify(body, *keys, *signed(body, now)).exit_code == 0
    assert len(desk.queued()) == 1


@pytest.mark.parametrize(
    ("how", "says"),
    [("unsigned", "it is not signed"), ("stale", "away from ours"), ("other key", "none of the keys")],
)
def test_what_is_unsigned_stale_or_signed_by_another_is_refused(desk: Desk, how: str, says: str) -> None:
    body = json.dumps(s3("a.md")).encode()
    now = SYSTEM_CLOCK.now_ms() // 1000
    headers = {
        "unsigned": [],
        "stale": signed(body, now - 3600),
        "other key": signed(body, now, "a key of somebody else"),
    }[how]
    answer = desk.notify(body, "--secret", SECRET, *headers)
    assert answer.exit_code == 1
    assert says in answer.output
    assert not desk.store.exists()


def test_a_recorded_delivery_is_refused_the_second_time_also_by_another_process(desk: Desk) -> None:
    body = json.dumps(s3("a.md")).encode()
    headers = signed(body, SYSTEM_CLOCK.now_ms() // 1000)
    assert desk.notify(body, "--secret", SECRET, *headers).exit_code == 0
    again = desk.notify(body, "--secret", SECRET, *headers)
    assert (again.exit_code, "taken already" in again.output) == (1, True)
    assert len(desk.queued()) == 1


def test_a_secret_on_the_command_line_is_warned_of_and_one_in_a_file_is_not(desk: Desk) -> None:
    body = json.dumps(s3("a.md")).encode()
    now = SYSTEM_CLOCK.now_ms() // 1000
    warned = desk.notify(body, "--secret", SECRET, *signed(body, now))
    assert "everybody on this machine can read --secret" in warned.stderr
    (desk.folder / "key").write_text(SECRET + "\n")
    quiet = desk.notify(body, "--secret-file", str(desk.folder / "key"), *signed(body, now - 1))
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    assert "there is no" in desk.notify(body, "--secret-file", "nowhere").output


def test_a_bearer_token_is_asked_for_and_known_ones_are_taken(desk: Desk) -> None:
    asked = ["--bearer", "the token of our bucket"]
    assert "no bearer token" in desk.notify(s3("a"), *asked).output
    known = ["--header", "Authorization: Bearer the token of our bucket"]
    assert desk.notify(s3("a"), *asked, *known).exit_code == 0
    assert isinstance(desk.queued()[0], UploadNotification)


def test_a_file_that_is_not_there_is_named(desk: Desk) -> None:
    command = ["notify", str(desk.folder / "nothing.json"), "--source", "s3", "--store", str(desk.store)]
    answer = CliRunner().invoke(penstock, command)
    assert (answer.exit_code, "nothing.json" in answer.output) == (1, True)


def test_documents_are_parted_by_lines_only_where_they_are_not_one() -> None:
    assert documents_in(b'\xef\xbb\xbf{\n"a":\n1}\n') == [b'{\n"a":\n1}']
    assert documents_in(b'{"a":1}\r\n\r\n{"b":2}') == [b'{"a":1}', b'{"b":2}']
    with pytest.raises(InvalidInput):
        documents_in(b" \n ")


TOPIC = "arn:aws:sns:eu-west-1:123456789012:uploads"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(folder: Path) -> str:
    """Of whoever signs for the topic, in a file."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, KEY.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
    path = folder / "sns.pem"
    path.write_bytes(made.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM))
    return str(path)


def sns(message: dict[str, Any], **changes: str) -> dict[str, Any]:
    """A message of SNS around an event, signed."""
    body = {
        "Type": "Notification",
        "MessageId": "m1",
        "TopicArn": TOPIC,
        "Message": json.dumps(message),
        "Timestamp": datetime.now(UTC).isoformat(),
        "SignatureVersion": "2",
        "Signature": "",
        "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-abc.pem",
        **changes,
    }
    text = sns_text(msgspec.json.decode(json.dumps(body), type=SnsMessage))
    signature = KEY.sign(text, padding.PKCS1v15(), hashes.SHA256())
    return {**body, "Signature": base64.b64encode(signature).decode()}


def test_events_are_taken_out_of_messages_that_sns_has_signed(desk: Desk) -> None:
    confirmation = {"SubscribeURL": "https://sns.eu-west-1.amazonaws.com/?x", "Token": "t"}
    lines = [sns(s3("a.md")), sns({}, Type="SubscriptionConfirmation", **confirmation)]
    asked = ["--sns-topic", TOPIC, "--sns-certificate", certificate(desk.folder)]
    answer = desk.notify("\n".join(map(json.dumps, lines)), *asked)
    assert answer.exit_code == 0, answer.output
    assert "1 uploads, 0 deletes; 1 ignored" in answer.output
    assert [event.key for event in desk.queued()] == ["a.md"]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (lambda: {**sns(s3("a.md")), "Message": json.dumps(s3("b.md"))}, "does not match its content"),
        (lambda: sns(s3("a.md"), TopicArn="arn:aws:sns:eu-west-1:1:other"), "is not expected"),
        (lambda: sns(s3("a.md"), Timestamp="2020-01-01T00:00:00Z"), "away from ours"),
        (lambda: s3("a.md"), "not a message of SNS"),
    ],
)
def test_a_message_that_is_not_the_topics_own_is_refused_whole(
    desk: Desk, message: Callable[[], dict[str, Any]], says: str
) -> None:
    asked = ["--sns-topic", TOPIC, "--sns-certificate", certificate(desk.folder)]
    lines = [sns(s3("first.md")), message()]
    answer = desk.notify("\n".join(map(json.dumps, lines)), *asked)
    assert answer.exit_code == 1
    assert says in answer.output.replace("\n", " ")
    assert not desk.store.exists()


def test_keys_and_tokens_that_are_no_text_are_keys_all_the_same(desk: Desk) -> None:
    """The command line and the environment carry bytes."""
    body, now = json.dumps(s3("a.md")).encode(), SYSTEM_CLOCK.now_ms() // 1000
    for option in ("--secret", "--bearer"):
        refused = desk.notify(body, option, "\udcff" * 32, *signed(body, now))
        assert refused.exit_code == 1
        assert "PermissionDenied" in refused.stderr


# Names that parsers and trust look at, and values that no sender should send.
HEADERS = st.sampled_from(
    ["content-type", "ce-id", "ce-type", "ce-subject", "ce-source", "ce-time", "ce-specversion", "authorization"]
)
VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["\udcff", "9" * 5000, "-1", "0001-01-01T00:00:00Z", "60000-01-01T00:00:00Z", "\x00", "1.0", "٣"]),
    st.sampled_from(["application/cloudevents+json", "application/cloudevents-batch+json", "Bearer \udcff"]),
)
DEEP = [b"[" * depth + b"]" * depth for depth in (500, 1_100, 100_000)]
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [*DEEP, b'{"a":' * 2_000 + b"1" + b"}" * 2_000, b"\xff", b"{}", b"[]", b"[{}]", b'{"Records":[{}]}']
    ),
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=8), lambda inside: st.lists(inside, max_size=3)
    ).map(lambda value: json.dumps({"Records": value, "data": value, "time": value, "eventTime": value}).encode()),
)


@given(source=st.sampled_from(sorted(PARSERS)), headers=st.dictionaries(HEADERS, VALUES, max_size=8), body=BODIES)
@settings(max_examples=300, deadline=None)
def test_whatever_a_delivery_holds_it_is_taken_or_refused_in_words(
    source: str, headers: dict[str, str], body: bytes
) -> None:
    with suppress(PenstockError):
        receive(source, NotificationMessage(body, headers, SYSTEM_CLOCK.now_ms()), Destination("t", "i", "m"))
