"""Notifications over HTTP: believed for a token, a signature or an address, for the buckets of their tenant, once."""

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest
from cloudevents.core.bindings import http as cloudevents_http
from cloudevents.core.v1.event import CloudEvent
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from penstock.clock import SYSTEM_CLOCK
from penstock.documents.notifications import HmacTrust
from penstock.documents.notifications.sns import SnsMessage, sns_text
from penstock.errors import Unavailable
from penstock.gateway import (
    Gateway,
    GatewayConfig,
    Guard,
    NotificationRoutes,
    NotificationRules,
    NotificationSenders,
    Scope,
    TokenBook,
)
from penstock.indexing import PLAIN_DOORS, Credentials
from penstock.vector import CollectionName

KEY = "a key of at least 16 bytes"
OTHER_KEY = "another key of 16 bytes"
RULES = NotificationRules(
    addresses={"near": ("192.0.2.0/24",)},
    buckets={"acme": ("books",), "near": ("books",), "signer": ("books",), "topical": ("books",)},
)
TOPIC = "arn:aws:sns:eu-west-1:123456789012:uploads"
SNS_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate():
    """Of whoever signs for the topic, issued by an authority."""
    authority = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "An Authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        issuer, subject, SNS_KEY.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1)
    )
    return made.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM)


def sns(message, key=SNS_KEY, algorithm=hashes.SHA256(), **changes):  # noqa: B008 - it cannot change
    """A message of SNS, signed; and the header by which it says whose it is."""
    body = {
        "Type": "Notification",
        "MessageId": "m1",
        "TopicArn": TOPIC,
        "Message": message.decode(),
        "Timestamp": datetime.now(UTC).isoformat(),
        "SignatureVersion": "2",
        "Signature": "",
        "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-abc.pem",
        **changes,
    }
    text = sns_text(msgspec.json.decode(json.dumps(body), type=SnsMessage))
    body["Signature"] = base64.b64encode(key.sign(text, padding.PKCS1v15(), algorithm)).decode()
    return json.dumps(body).encode(), {"x-amz-sns-topic-arn": TOPIC, "content-type": "text/plain"}


class Services:
    """Queues into a list."""

    doors = PLAIN_DOORS

    def __init__(self, folder, failing=False):
        self.url, self.uploads_url = f"file://{folder}/store", f"file://{folder}/uploads"
        self.queued, self.failing = [], failing

    async def collection(self, exchange, index):
        return CollectionName(exchange.principal.tenant, index, "model")

    async def queue(self, events, _traceparent=None, _source="http"):
        if self.failing:
            raise Unavailable("the store does not answer")
        self.queued += [(event.tenant_id, event.bucket, event.key) for event in events]


def s3_event(bucket="books", key="a.txt", sequencer="0055"):
    entity = {"bucket": {"name": bucket}, "object": {"key": key, "size": 3, "eTag": "e", "sequencer": sequencer}}
    record = {
        "eventVersion": "2.1",
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-01-01T00:00:00Z",
        "s3": entity,
    }
    return json.dumps({"Records": [record]}).encode()


def signed(body, key=KEY, at=None, nonce="1", target="s3/default"):
    headers = {"content-type": "application/json", "x-penstock-nonce": nonce}
    at = SYSTEM_CLOCK.now_ms() // 1000 if at is None else at
    signature = HmacTrust([key.encode()]).sign(body, at, target, headers)
    return {**headers, "x-penstock-timestamp": str(at), "x-penstock-signature": signature}


class World:
    def __init__(self, folder, **settings):
        self.services = Services(folder)
        self.book, self.token = TokenBook.new().issue("acme", [Scope.WRITE], 0)
        self.book, self.reader = self.book.issue("acme", [Scope.READ], 0)
        config = GatewayConfig(tokens="x", notifications=RULES, **settings)
        guard = Guard(config, lambda: self.book)
        credentials = {
            "signer": Credentials(keys=[KEY]),
            "topical": Credentials(topics=[TOPIC], sns_certificate=certificate()),
        }
        senders = NotificationSenders(RULES, credentials, PLAIN_DOORS.spec(self.services.url), guard.address)
        services: Any = self.services
        routes = NotificationRoutes(services, config, guard, senders)
        self.app = Gateway(routes.endpoints(), config, guard=guard)

    def post(self, body, headers=None, source="s3", client="203.0.113.1", query=""):
        async def post():
            transport = httpx.ASGITransport(self.app, client=(client, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
                return await asking.post(f"/v1/notifications/{source}{query}", content=body, headers=headers)

        return asyncio.run(post())


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_token_tells_the_tenant(world):
    answer = world.post(s3_event(), {"authorization": f"Bearer {world.token}"})
    assert answer.status_code == 202, answer.text
    assert world.services.queued == [("acme", "books", "a.txt")]


def test_an_address_tells_the_tenant(world):
    assert world.post(s3_event(), client="192.0.2.7").status_code == 202
    assert world.services.queued == [("near", "books", "a.txt")]


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("203.0.113.1", {}),
        ("203.0.113.1", {"x-forwarded-for": "192.0.2.7"}),
        ("192.0.2.7", {"authorization": "Bearer pst_wrong"}),
        ("", {}),
    ],
)
def test_whoever_is_not_believed_stores_nothing(world, client, headers):
    assert world.post(s3_event(), headers, client=client).status_code == 401
    assert world.services.queued == []


def test_behind_a_trusted_proxy_the_address_is_the_one_it_saw(tmp_path):
    world = World(tmp_path, proxies=("203.0.113.1",))
    assert world.post(s3_event(), {"x-forwarded-for": "192.0.2.7"}).status_code == 202
    assert world.post(s3_event(), {"x-forwarded-for": "192.0.2.7, 198.51.100.1"}).status_code == 401


def test_a_token_without_the_scope_is_refused(world):
    assert world.post(s3_event(), {"authorization": f"Bearer {world.reader}"}).status_code == 403


def test_a_signature_tells_the_tenant_and_holds_once(world):
    headers = signed(s3_event())
    assert world.post(s3_event(), headers).status_code == 202
    assert world.services.queued == [("signer", "books", "a.txt")]
    again = world.post(s3_event(), headers)
    assert (again.status_code, len(world.services.queued)) == (403, 1)
    assert world.post(s3_event(), signed(s3_event(), nonce="2")).status_code == 202


def test_a_signature_of_another_key_time_or_body_is_refused(world):
    now = SYSTEM_CLOCK.now_ms() // 1000
    for body, headers in (
        (s3_event(), signed(s3_event(), OTHER_KEY)),
        (s3_event(), signed(s3_event(), at=now - 3600)),
        (s3_event(), signed(s3_event(), at=now + 3600)),
        (s3_event(key="b.txt"), signed(s3_event())),
        (s3_event(), {**signed(s3_event()), "x-penstock-timestamp": "soon"}),
    ):
        assert world.post(body, headers).status_code == 401
    assert world.services.queued == []


@pytest.mark.parametrize(("source", "query"), [("ceph", ""), ("minio", ""), ("s3", "?index=other"), ("s3", "?index=")])
def test_a_signed_delivery_that_is_sent_elsewhere_is_refused(world, source, query):
    """Another source reads the same key in another way, and another index is another reader's."""
    body = s3_event(key="a+b.txt")
    assert world.post(body, signed(body), source=source, query=query).status_code in (400, 401)
    assert world.services.queued == []
    assert world.post(body, signed(body, target="s3/other"), query="?index=other").status_code == 202


def test_guesses_of_signatures_are_bounded(tmp_path):
    world = World(tmp_path, failed_logins_per_minute=3)
    statuses = [world.post(s3_event(), signed(s3_event(), OTHER_KEY)).status_code for _ in range(5)]
    assert statuses == [401] * 3 + [429] * 2


def test_a_signed_delivery_that_could_not_be_queued_may_be_sent_again(world):
    world.services.failing = True
    headers = signed(s3_event())
    assert world.post(s3_event(), headers).status_code == 503
    world.services.failing = False
    assert world.post(s3_event(), headers).status_code == 202


@pytest.mark.parametrize("bucket", ["others", "books2", "s3://others", ""])
def test_a_bucket_of_somebody_else_is_not_taken(world, bucket):
    answer = world.post(s3_event(bucket), {"authorization": f"Bearer {world.token}"})
    assert answer.status_code == 400
    assert world.services.queued == []


@pytest.mark.parametrize("place", ["store", "uploads", "store/telemetry"])
def test_the_store_itself_is_never_a_bucket(tmp_path, place):
    world = World(tmp_path)
    event = {"specversion": "1.0", "type": "com.amazonaws.s3.ObjectCreated.Put", "source": "s", "id": "1"}
    record = json.loads(s3_event(f"file://{tmp_path}/{place}"))["Records"][0]
    body = json.dumps({**event, "data": record}).encode()
    headers = {"authorization": f"Bearer {world.token}", "content-type": "application/cloudevents+json"}
    world.services.uploads_url = f"file://{tmp_path}/uploads"
    answer = world.post(body, headers, source="cloudevents")
    assert answer.status_code == 400, answer.text
    assert world.services.queued == []


@pytest.mark.parametrize(("container", "status"), [("acme.house", 400), ("house", 400), ("acme.theirs", 202)])
def test_the_container_of_the_store_is_never_a_bucket_whether_its_account_is_told_or_not(tmp_path, container, status):
    """Events of Azure name the account, and the URLs of store and uploads do not."""
    world = World(tmp_path)
    world.services.url, world.services.uploads_url = "az://house/store", "az://house/uploads"
    world.book, token = world.book.issue("unlisted", [Scope.WRITE], 0)
    account, _, name = container.rpartition(".")
    event = {
        "eventType": "Microsoft.Storage.BlobCreated",
        "subject": f"/blobServices/default/containers/{name}/blobs/uploads/acme/manual/secret.md",
        "eventTime": "2026-01-01T00:00:00Z",
        "data": {"contentLength": 3, "url": f"https://{account}.blob.core.windows.net/x" if account else ""},
    }
    answer = world.post(json.dumps([event]).encode(), {"authorization": f"Bearer {token}"}, source="azure")
    assert answer.status_code == status, answer.text


def test_a_source_that_is_not_known_is_a_404(world):
    assert world.post(s3_event(), {"authorization": f"Bearer {world.token}"}, source="nobody").status_code == 404


@pytest.mark.parametrize("form", ["structured", "binary"])
def test_events_of_the_cloudevents_sdk_are_queued(world, form):
    record = json.loads(s3_event())["Records"][0]
    attributes = {
        "type": "com.amazonaws.s3.ObjectCreated.Put",
        "source": "aws:s3:::books",
        "id": "1",
        "specversion": "1.0",
    }
    event = CloudEvent(attributes={**attributes, "datacontenttype": "application/json"}, data=record)
    to_http = cloudevents_http.to_structured_event if form == "structured" else cloudevents_http.to_binary_event
    message = to_http(event)
    headers = {**message.headers, "authorization": f"Bearer {world.token}"}
    answer = world.post(message.body, headers, source="cloudevents")
    assert answer.status_code == 202, answer.text
    assert world.services.queued == [("acme", "books", "a.txt")]


def test_a_message_that_its_topic_signed_tells_the_tenant(world):
    answer = world.post(*sns(s3_event()))
    assert answer.status_code == 202, answer.text
    assert world.services.queued == [("topical", "books", "a.txt")]


def test_a_topic_that_has_signed_with_sha_256_is_held_to_it_by_the_gateway(world):
    """Whoever can make two texts of one SHA-1 sum would else only have to ask for the weaker signature."""
    weak = sns(s3_event(key="b.txt"), algorithm=hashes.SHA1(), SignatureVersion="1")
    assert world.post(*weak).status_code == 202
    assert world.post(*sns(s3_event())).status_code == 202
    assert world.post(*weak).status_code == 401
    assert [key for *_, key in world.services.queued] == ["b.txt", "a.txt"]


def test_a_subscription_is_never_confirmed_by_itself(world, monkeypatch):
    """Whoever makes us fetch an address has us ask what we can reach: the operator confirms it, or nobody."""
    asked = []
    monkeypatch.setattr(httpx, "get", lambda url, **_: asked.append(url))
    for kind in ("SubscriptionConfirmation", "UnsubscribeConfirmation"):
        confirmation = {"SubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription", "Token": "t"}
        answer = world.post(*sns(b"You have chosen to subscribe", Type=kind, **confirmation))
        assert answer.status_code == 202, answer.text
        assert answer.json()["queued"] == []
    assert (asked, world.services.queued) == ([], [])


def test_a_message_that_its_topic_did_not_sign_is_refused_and_guesses_are_bounded(tmp_path):
    world = World(tmp_path, failed_logins_per_minute=5)
    forged = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    body, headers = sns(s3_event())
    attempts = [
        sns(s3_event(), forged),
        (body.replace(b"a.txt", b"b.txt"), headers),
        sns(s3_event(), Timestamp="2020-01-01T00:00:00Z"),
        sns(s3_event(), SigningCertURL="https://sns.eu-west-1.amazonaws.com.evil.example/x.pem"),
        (sns(s3_event(), TopicArn=TOPIC + "2")[0], headers),
    ]
    for attempt in attempts:
        assert world.post(*attempt).status_code == 401
    assert world.post(*attempts[0]).status_code == 429
    assert world.services.queued == []
