"""SNS: only what Amazon signed for an expected topic is believed, as an attacker would try it."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from penstock.documents.notifications.received import NotificationMessage, read
from penstock.documents.notifications.sns import SnsMessage, SnsTrust, sns_text
from penstock.errors import InvalidInput, PermissionDenied, Unsupported
from penstock.testing import ManualClock

NOW = 1_756_382_400


def stopped_clock(seconds):
    clock = ManualClock()
    clock.advance(seconds - clock.now_ms() / 1000)
    return clock


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
START, END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
TOPIC = "arn:aws:sns:eu-west-1:123456789012:uploads"
ADDRESS = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-abc.pem"


AUTHORITY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def certificate(_address: str = ADDRESS, issuer: str = "Amazon RSA 2048", start=START, end=END, key=KEY) -> bytes:
    made = x509.CertificateBuilder(named(issuer), named("sns.amazonaws.com"), key.public_key(), 1, start, end)
    return made.sign(AUTHORITY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def sns_delivery(version="2", **changes):
    at = (datetime.fromtimestamp(NOW, UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    body = {"Type": "Notification", "MessageId": "m1", "TopicArn": TOPIC, "Message": "{}", "Timestamp": at}
    body |= {"SignatureVersion": version, "SigningCertURL": ADDRESS, "Signature": ""} | changes
    text = sns_text(read(json.dumps(body).encode(), SnsMessage, "a message"))
    algorithm = hashes.SHA256() if version == "2" else hashes.SHA1()
    body["Signature"] = base64.b64encode(KEY.sign(text, padding.PKCS1v15(), algorithm)).decode()
    return body


def sns_trust(at=NOW):
    return SnsTrust([TOPIC], certificate, clock=stopped_clock(at))


def check_sns(body, at=NOW):
    return sns_trust(at).message(NotificationMessage(json.dumps(body).encode()))


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
        # Anybody's bucket of the name "sns".
        "https://sns.s3.amazonaws.com/SimpleNotificationService-abc.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-abc.pem",
        "https://sns.eu-west-1.amazonaws.com.cn/SimpleNotificationService-abc.pem",
        "https://sns.eu-west-1.amazonaws.com/folder/SimpleNotificationService-abc.pem",
        "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-abc.pem?x=1",
        "https://sns.eu-west-1.amazonaws.com/other.pem",
        "https://sns.eu-west-1.amazonaws.com:444/SimpleNotificationService-abc.pem",
        "https://user@sns.eu-west-1.amazonaws.com/SimpleNotificationService-abc.pem",
        "",
    ],
)
def test_a_certificate_from_elsewhere_is_never_fetched(address):
    def fetch(_address):
        raise AssertionError("fetched")

    trust = SnsTrust([TOPIC], fetch, clock=stopped_clock(NOW))
    with pytest.raises(PermissionDenied, match="not at Amazon"):
        trust.check(NotificationMessage(json.dumps(sns_delivery(SigningCertURL=address)).encode()))


def test_other_topics_old_messages_and_unknown_signatures_are_refused():
    with pytest.raises(PermissionDenied, match="not expected"):
        check_sns(sns_delivery(TopicArn="arn:aws:sns:eu-west-1:1:other"))
    with pytest.raises(PermissionDenied, match="3600 s"):
        check_sns(sns_delivery(), at=NOW + 4000)
    with pytest.raises(Unsupported):
        check_sns({**sns_delivery(), "SignatureVersion": "3"})
    with pytest.raises(PermissionDenied):
        check_sns({**sns_delivery(), "Signature": "***"})


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({"end": datetime(2021, 1, 1, tzinfo=UTC)}, "not valid now"),
        ({"start": datetime(2039, 1, 1, tzinfo=UTC)}, "not valid now"),
        ({"issuer": "sns.amazonaws.com"}, "signed by itself"),
        ({"key": rsa.generate_private_key(public_exponent=65537, key_size=1024)}, "a key of 1024 bits"),
    ],
)
def test_a_certificate_that_is_expired_not_valid_yet_its_own_issuer_or_of_a_short_key_is_refused(made, says):
    trust = SnsTrust([TOPIC], lambda _: certificate(**made), clock=stopped_clock(NOW))
    with pytest.raises(PermissionDenied, match=says):
        trust.check(NotificationMessage(json.dumps(sns_delivery()).encode()))


def test_a_certificate_that_was_checked_by_hand_may_be_its_own_issuer():
    pinned = SnsTrust([TOPIC], lambda _: certificate(issuer="sns.amazonaws.com"), pinned=True, clock=stopped_clock(NOW))
    pinned.check(NotificationMessage(json.dumps(sns_delivery()).encode()))


@pytest.mark.parametrize(
    "pem", [b"", b"not a certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_is_refused(pem):
    with pytest.raises(PermissionDenied, match="cannot be read"):
        SnsTrust([TOPIC], lambda _: pem, clock=stopped_clock(NOW)).check(
            NotificationMessage(json.dumps(sns_delivery()).encode())
        )


def test_a_topic_that_signs_with_sha_256_is_not_believed_with_sha_1_any_more():
    trust = sns_trust()
    trust.check(NotificationMessage(json.dumps(sns_delivery("1")).encode()))
    trust.check(NotificationMessage(json.dumps(sns_delivery("2")).encode()))
    with pytest.raises(PermissionDenied, match="SHA-1"):
        trust.check(NotificationMessage(json.dumps(sns_delivery("1")).encode()))


def test_a_topic_of_china_has_its_certificate_there():
    topic = "arn:aws-cn:sns:cn-north-1:123456789012:uploads"
    address = "https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-abc.pem"
    trust = SnsTrust([topic], certificate, clock=stopped_clock(NOW))
    trust.check(NotificationMessage(json.dumps(sns_delivery(TopicArn=topic, SigningCertURL=address)).encode()))


@pytest.mark.parametrize(
    "topic", ["", "uploads", "arn:aws:sqs:eu-west-1:123456789012:q", "arn:aws:sns:s3/x:123456789012:q"]
)
def test_what_is_no_topic_is_refused_before_anything_is_believed(topic):
    with pytest.raises(InvalidInput, match="no topic"):
        SnsTrust([topic], certificate)


def test_a_certificate_is_fetched_once_and_judged_each_time():
    fetched = []

    def fetch(address):
        fetched.append(address)
        return certificate()

    clock = stopped_clock(NOW)
    trust = SnsTrust([TOPIC], fetch, clock=clock)
    for number in range(3):
        trust.message(NotificationMessage(json.dumps(sns_delivery(MessageId=f"m{number}")).encode()))
    assert fetched == [ADDRESS]
    for number in range(40):
        address = ADDRESS.replace("abc", f"{number:x}")
        trust.message(NotificationMessage(json.dumps(sns_delivery(SigningCertURL=address)).encode()))
    assert len(trust._certificates) <= 16


def test_a_page_in_the_place_of_a_certificate_is_not_remembered():
    """A proxy that answers with a page of its own once must not cost every message after it."""
    pages = iter([b"<html>Service unavailable</html>", certificate()])
    trust = SnsTrust([TOPIC], lambda _: next(pages), clock=stopped_clock(NOW))
    delivery = NotificationMessage(json.dumps(sns_delivery()).encode())
    with pytest.raises(PermissionDenied, match="cannot be read"):
        trust.check(delivery)
    trust.check(delivery)
