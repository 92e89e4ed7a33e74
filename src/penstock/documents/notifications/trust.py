"""Who may tell us of an object: signatures over the body and its time, bearer tokens, and the signatures of SNS.

Each check takes several keys at once, so that a key is replaced without a moment in which events are refused: add the
new one, move the senders, remove the old one. A delivery that is unsigned, signed with another key, or older or newer
than the tolerance is refused with `PermissionDenied`, which the gateway answers with 401; it never reaches the queue.
Comparisons take the same time whatever matches.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents.notifications.received import Delivery, instant, read
from penstock.errors import InvalidInput, PermissionDenied, Unsupported

__all__ = ["BearerTrust", "HmacTrust", "SnsMessage", "SnsTrust", "Trust"]

TIMESTAMP_HEADER: Final = "x-penstock-timestamp"
SIGNATURE_HEADER: Final = "x-penstock-signature"

# Clocks differ and requests wait; a recorded request is worthless after this long.
TOLERANCE_SECONDS: Final = 300
# SNS repeats a delivery for about an hour with the time of the first one.
SNS_TOLERANCE_SECONDS: Final = 3600
_SECRET_BYTES_MIN: Final = 16
_SNS_CERTIFICATE: Final = re.compile(r"https://sns\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[A-Za-z0-9._-]+\.pem")
_SNS_SIGNED: Final = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}


class Trust(Protocol):
    def check(self, delivery: Delivery) -> None:
        """Return when the delivery may be believed; else `PermissionDenied`."""
        ...


class HmacTrust:
    """HMAC-SHA256 over `timestamp.body`, with the timestamp in seconds since 1970."""

    def __init__(
        self, keys: Sequence[bytes], *, tolerance_seconds: int = TOLERANCE_SECONDS, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._keys = _secrets(keys)
        self._tolerance_ms = tolerance_seconds * 1000
        self._clock = clock

    def sign(self, body: bytes, timestamp: int) -> str:
        """The signature with the first key, as the header carries it: for senders of our own, and for tests."""
        return _signature(self._keys[0], timestamp, body)

    def check(self, delivery: Delivery) -> None:
        stamp = delivery.headers.get(TIMESTAMP_HEADER, "")
        offered = delivery.headers.get(SIGNATURE_HEADER, "")
        if not stamp or not offered:
            raise _denied("it is not signed", f"send {TIMESTAMP_HEADER} and {SIGNATURE_HEADER}")
        if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12):
            raise _denied("its timestamp is no number of seconds")
        _check_age(int(stamp) * 1000, self._clock, self._tolerance_ms)
        # Every key is tried whatever matched before: time tells nothing of which key it was.
        matches = [
            hmac.compare_digest(_signature(key, int(stamp), delivery.body).encode(), offered.encode())
            for key in self._keys
        ]
        if not any(matches):
            raise _denied("its signature matches none of the keys")


class BearerTrust:
    """`Authorization: Bearer token`, as MinIO and SeaweedFS send it."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._digests = [hashlib.sha256(token).digest() for token in _secrets([token.encode() for token in tokens])]

    def check(self, delivery: Delivery) -> None:
        scheme, _, token = delivery.headers.get("authorization", "").partition(" ")
        # MinIO sends the configured text as it is when it holds a scheme already, and with Bearer when not.
        if scheme.lower() != "bearer" or not token:
            raise _denied("it carries no bearer token", "send Authorization: Bearer …")
        offered = hashlib.sha256(token.strip().encode()).digest()
        matches = [hmac.compare_digest(digest, offered) for digest in self._digests]
        if not any(matches):
            raise _denied("its token is not known")


class SnsMessage(msgspec.Struct, rename="pascal"):
    """A message of Amazon SNS. `message` holds the event; a confirmation holds the address that confirms it."""

    type: str
    message_id: str
    topic_arn: str
    message: str
    timestamp: str
    signature: str
    signature_version: str = "1"
    signing_cert_url: str = msgspec.field(name="SigningCertURL", default="")
    subscribe_url: str | None = msgspec.field(name="SubscribeURL", default=None)
    token: str | None = None
    subject: str | None = None


class SnsTrust:
    """Signatures of Amazon SNS for the topics that are expected.

    `certificate` fetches the PEM behind an address; it is asked only for addresses of Amazon's own SNS hosts.
    """

    def __init__(
        self,
        topics: Sequence[str],
        certificate: Callable[[str], bytes],
        *,
        tolerance_seconds: int = SNS_TOLERANCE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._topics = frozenset(topics)
        self._certificate = certificate
        self._tolerance_ms = tolerance_seconds * 1000
        self._clock = clock

    def check(self, delivery: Delivery) -> None:
        self.message(delivery)

    def message(self, delivery: Delivery) -> SnsMessage:
        """The message, once everything about it holds."""
        message = read(delivery.body, SnsMessage, "a message of SNS")
        if message.topic_arn not in self._topics:
            raise _denied(f"topic {message.topic_arn[:120]} is not expected")
        if not _SNS_CERTIFICATE.fullmatch(message.signing_cert_url):
            raise _denied("its certificate is not at Amazon")
        at = instant(message.timestamp, "a message of SNS")
        _check_age(int(at.timestamp() * 1000), self._clock, self._tolerance_ms)
        _verify(message, self._certificate(message.signing_cert_url))
        return message


def _verify(message: SnsMessage, pem: bytes) -> None:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    # Version 1 is SHA-1, which SNS still uses unless a topic asks for 2; the certificate pins who signed.
    algorithms: dict[str, Any] = {"1": hashes.SHA1, "2": hashes.SHA256}
    algorithm = algorithms.get(message.signature_version)
    if algorithm is None:
        raise Unsupported(f"SNS signature version {message.signature_version}", "versions 1 and 2 are understood")
    key = x509.load_pem_x509_certificate(pem).public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise _denied("its certificate has no RSA key")
    try:
        signature = base64.b64decode(message.signature, validate=True)
        key.verify(signature, sns_text(message), padding.PKCS1v15(), algorithm())
    except (InvalidSignature, binascii.Error) as error:
        raise _denied("its signature does not match its content") from error


def sns_text(message: SnsMessage) -> bytes:
    """The text that SNS signs: names and values of the members of its type, a line each."""
    names = _SNS_SIGNED.get(message.type)
    if names is None:
        raise InvalidInput(f"a message of SNS of type {message.type[:40]!r}", "it is none of the known types")
    values = msgspec.to_builtins(message)
    lines = [f"{name}\n{values[name]}\n" for name in names if values.get(name) is not None]
    return "".join(lines).encode()


def _signature(key: bytes, timestamp: int, body: bytes) -> str:
    return "v1=" + hmac.new(key, b"%d." % timestamp + body, hashlib.sha256).hexdigest()


def _check_age(at_ms: int, clock: Clock, tolerance_ms: int) -> None:
    if abs(clock.now_ms() - at_ms) > tolerance_ms:
        raise _denied(f"its time is more than {tolerance_ms // 1000} s away from ours", "check both clocks")


def _secrets(secrets: Sequence[bytes]) -> list[bytes]:
    if not secrets:
        raise InvalidInput("no key to check notifications with", "the list is empty", "configure at least one")
    if any(len(secret) < _SECRET_BYTES_MIN for secret in secrets):
        raise InvalidInput("a key for notifications is too short", f"it must have {_SECRET_BYTES_MIN} bytes or more")
    return list(secrets)


def _denied(why: str, remedy: str = "") -> PermissionDenied:
    return PermissionDenied("a notification is refused", why, remedy)
