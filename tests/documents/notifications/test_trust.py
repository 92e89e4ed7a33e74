import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from penstock.documents.notifications.received import Delivery, read
from penstock.documents.notifications.trust import BearerTrust, HmacTrust, SnsMessage, SnsTrust, sns_text
from penstock.errors import InvalidInput, PermissionDenied, Unsupported

OLD, NEW = b"the key of last year", b"the key of this year"
NOW = 1_756_382_400
BODY = b'{"Records": []}'


class StoppedClock:
    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def now_ms(self) -> int:
        return self.seconds * 1000

    def monotonic(self) -> float:
        return float(self.seconds)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


def signed(trust, body=BODY, at=NOW):
    return Delivery(body, {"x-penstock-timestamp": str(at), "x-penstock-signature": trust.sign(body, at)})


def test_what_either_key_signed_is_believed_so_that_keys_rotate():
    trust = HmacTrust([NEW, OLD], clock=StoppedClock(NOW))
    for key in (OLD, NEW):
        trust.check(signed(HmacTrust([key], clock=StoppedClock(NOW))))


def test_once_the_old_key_is_removed_it_is_refused():
    with pytest.raises(PermissionDenied, match="none of the keys"):
        HmacTrust([NEW], clock=StoppedClock(NOW)).check(signed(HmacTrust([OLD])))


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_a_delivery_within_five_minutes_is_believed(seconds):
    trust = HmacTrust([NEW], clock=StoppedClock(NOW + seconds))
    trust.check(signed(trust))


@pytest.mark.parametrize("seconds", [-301, 301, 10**7])
def test_a_delivery_of_another_time_is_refused_although_its_signature_holds(seconds):
    trust = HmacTrust([NEW], clock=StoppedClock(NOW + seconds))
    with pytest.raises(PermissionDenied, match="300 s"):
        trust.check(signed(trust))


def test_a_changed_body_or_a_changed_time_breaks_the_signature():
    trust = HmacTrust([NEW], clock=StoppedClock(NOW))
    delivery = signed(trust)
    with pytest.raises(PermissionDenied):
        trust.check(Delivery(BODY + b" ", delivery.headers))
    with pytest.raises(PermissionDenied):
        trust.check(Delivery(BODY, {**delivery.headers, "x-penstock-timestamp": str(NOW + 1)}))


@pytest.mark.parametrize(
    "headers",
    [{}, {"x-penstock-timestamp": str(NOW)}, {"x-penstock-timestamp": "soon", "x-penstock-signature": "v1=00"}]
    + [
        {"x-penstock-timestamp": stamp, "x-penstock-signature": "é"} for stamp in (str(NOW), "-1", "1e9", "٣", "9" * 40)
    ],
)
def test_a_delivery_without_a_signature_that_can_be_read_is_refused(headers):
    with pytest.raises(PermissionDenied):
        HmacTrust([NEW], clock=StoppedClock(NOW)).check(Delivery(BODY, headers))


@pytest.mark.parametrize("keys", [[], [b"short"]])
def test_a_check_that_would_believe_everyone_cannot_be_made(keys):
    with pytest.raises(InvalidInput):
        HmacTrust(keys)


def test_any_of_several_bearer_tokens_is_believed():
    trust = BearerTrust(["an old token of enough length", "a new token of enough length"])
    trust.check(Delivery(BODY, {"authorization": "Bearer an old token of enough length"}))
    trust.check(Delivery(BODY, {"authorization": "bearer a new token of enough length"}))


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic an old token of enough length"])
def test_other_tokens_and_schemes_are_refused(value):
    with pytest.raises(PermissionDenied):
        BearerTrust(["an old token of enough length"]).check(Delivery(BODY, {"authorization": value}))


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
START, END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
TOPIC = "arn:aws:sns:eu-west-1:123456789012:uploads"
ADDRESS = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-abc.pem"


def certificate(_address: str = ADDRESS) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    made = x509.CertificateBuilder(name, name, KEY.public_key(), 1, START, END)
    return made.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def sns_delivery(version="2", **changes):
    at = (datetime.fromtimestamp(NOW, UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    body = {"Type": "Notification", "MessageId": "m1", "TopicArn": TOPIC, "Message": "{}", "Timestamp": at}
    body |= {"SignatureVersion": version, "SigningCertURL": ADDRESS, "Signature": ""} | changes
    text = sns_text(read(json.dumps(body).encode(), SnsMessage, "a message"))
    algorithm = hashes.SHA256() if version == "2" else hashes.SHA1()
    body["Signature"] = base64.b64encode(KEY.sign(text, padding.PKCS1v15(), algorithm)).decode()
    return body


def sns_trust(at=NOW):
    return SnsTrust([TOPIC], certificate, clock=StoppedClock(at))


def check_sns(body, at=NOW):
    return sns_trust(at).message(Delivery(json.dumps(body).encode()))


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("more", [{}, {"Subject": "new object"}])
def test_a_message_that_sns_signed_is_believed(version, more):
    assert check_sns(sns_delivery(version, **more)).message == "{}"


def test_a_confirmation_of_sns_tells_where_to_confirm():
    body = sns_delivery(
        Type="SubscriptionConfirmation", SubscribeURL="https://sns.eu-west-1.amazonaws.com/?x", Token="t"
    )
    assert check_sns(body).subscribe_url == "https://sns.eu-west-1.amazonaws.com/?x"


@pytest.mark.parametrize("member", ["Message", "MessageId", "Timestamp"])
def test_a_changed_member_breaks_the_signature_of_sns(member):
    body = sns_delivery()
    body[member] = "2025-08-28T12:00:00.001Z" if member == "Timestamp" else "other"
    with pytest.raises(PermissionDenied, match="does not match"):
        check_sns(body)


@pytest.mark.parametrize(
    "address",
    [
        "http://sns.eu-west-1.amazonaws.com/a.pem",
        "https://sns.eu-west-1.amazonaws.com.evil.org/a.pem",
        "https://evil.org/sns.eu-west-1.amazonaws.com/a.pem",
        "https://sns.eu-west-1.amazonaws.com/../a.txt",
        "",
    ],
)
def test_a_certificate_from_elsewhere_is_never_fetched(address):
    def fetch(_address):
        raise AssertionError("fetched")

    trust = SnsTrust([TOPIC], fetch, clock=StoppedClock(NOW))
    with pytest.raises(PermissionDenied, match="not at Amazon"):
        trust.check(Delivery(json.dumps(sns_delivery(SigningCertURL=address)).encode()))


def test_other_topics_old_messages_and_unknown_signatures_are_refused():
    with pytest.raises(PermissionDenied, match="not expected"):
        check_sns(sns_delivery(TopicArn="arn:aws:sns:eu-west-1:1:other"))
    with pytest.raises(PermissionDenied, match="3600 s"):
        check_sns(sns_delivery(), at=NOW + 4000)
    with pytest.raises(Unsupported):
        check_sns({**sns_delivery(), "SignatureVersion": "3"})
    with pytest.raises(PermissionDenied):
        check_sns({**sns_delivery(), "Signature": "***"})
