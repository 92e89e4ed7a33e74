"""The signatures of Amazon SNS, for the topics that are expected.

A certificate is fetched only from the SNS host of the topic's own region, under the name that SNS gives its
certificates: any other host below amazonaws.com may be somebody's bucket. It must be valid now and signed by an
authority, unless it was checked by hand and pinned. A topic that has once signed with SHA-256 is held to it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents.notifications.received import NotificationMessage, instant, read
from penstock.documents.notifications.trust import check_age, denied
from penstock.errors import InvalidInput, Unsupported

__all__ = ["SnsMessage", "SnsTrust", "sns_text"]

# SNS repeats a delivery for about an hour with the time of the first one.
SNS_TOLERANCE_SECONDS: Final = 3600
_TOPIC: Final = re.compile(r"arn:(aws|aws-cn|aws-us-gov):sns:([a-z0-9-]{1,40}):\d{12}:[A-Za-z0-9_.-]{1,256}")
_CERTIFICATE_PATH: Final = re.compile(r"/SimpleNotificationService-[0-9a-f]{1,64}\.pem")
_SHA1, _SHA256 = "1", "2"
_KEY_BITS_MIN: Final = 2048
# A region has one at a time, and a new one every year or so.
_CERTIFICATES_MAX: Final = 16
_SNS_SIGNED: Final = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}


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
    """`certificate` fetches the PEM behind an address. One that is `pinned` was checked by hand, whoever signed it."""

    def __init__(
        self,
        topics: Sequence[str],
        certificate: Callable[[str], bytes],
        *,
        pinned: bool = False,
        tolerance_seconds: int = SNS_TOLERANCE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._hosts = {topic: _host_of(topic) for topic in topics}
        self._certificate = certificate
        self._pinned = pinned
        self._tolerance_ms = tolerance_seconds * 1000
        self._clock = clock
        self._beyond_sha1: set[str] = set()
        self._certificates: dict[str, Any] = {}

    def check(self, delivery: NotificationMessage) -> None:
        self.message(delivery)

    def message(self, delivery: NotificationMessage) -> SnsMessage:
        """The message, once everything about it holds."""
        message = read(delivery.body, SnsMessage, "a message of SNS")
        topic, version = message.topic_arn, message.signature_version
        if topic not in self._hosts:
            raise denied(f"topic {topic[:120]} is not expected")
        if version not in (_SHA1, _SHA256):
            raise Unsupported(f"SNS signature version {version[:20]}", "versions 1 and 2 are understood")
        if version == _SHA1 and topic in self._beyond_sha1:
            raise denied("it is signed with SHA-1, and its topic uses SHA-256", "set SignatureVersion 2 on the topic")
        self._check_address(message)
        at = instant(message.timestamp, "a message of SNS")
        check_age(int(at.timestamp() * 1000), self._clock, self._tolerance_ms)
        self._verify(message, self._certificate_at(message.signing_cert_url))
        if version == _SHA256:
            self._beyond_sha1.add(topic)
        return message

    def _check_address(self, message: SnsMessage) -> None:
        """Refuse any address but that of a certificate of the topic's own region."""
        prefix = f"https://{self._hosts[message.topic_arn]}"
        address = message.signing_cert_url
        if not (address.startswith(prefix) and _CERTIFICATE_PATH.fullmatch(address.removeprefix(prefix))):
            raise denied("its certificate is not at Amazon", "SNS keeps it on the host of the topic's region")

    def _certificate_at(self, url: str) -> Any:
        """The certificate behind an address, judged each time. One never changes under its name, so it is fetched once.

        What is no certificate is not kept: a page of a proxy would stand in its place until this process ends.
        """
        kept = self._certificates.get(url)
        if kept is None:
            kept = _read_certificate(self._certificate(url))
            while len(self._certificates) >= _CERTIFICATES_MAX:
                self._certificates.pop(next(iter(self._certificates)))
            self._certificates[url] = kept
        self._check_certificate(kept)
        return kept

    def _verify(self, message: SnsMessage, certificate: Any) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding, rsa

        algorithm = hashes.SHA1() if message.signature_version == _SHA1 else hashes.SHA256()  # noqa: S303
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise denied("its certificate has no RSA key")
        if key.key_size < _KEY_BITS_MIN:
            raise denied(f"its certificate has a key of {key.key_size} bits", "SNS has keys of 2,048 bits")
        try:
            signature = base64.b64decode(message.signature, validate=True)
            key.verify(signature, sns_text(message), padding.PKCS1v15(), algorithm)
        except (InvalidSignature, binascii.Error, ValueError) as error:
            raise denied("its signature does not match its content") from error

    def _check_certificate(self, found: Any) -> None:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
            raise denied("its certificate is not valid now", "check this machine's clock")
        if not self._pinned and found.issuer == found.subject:
            raise denied("its certificate is signed by itself", "SNS has certificates of an authority")


def _read_certificate(pem: bytes) -> Any:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise denied("its certificate cannot be read", str(error)) from error


def _host_of(topic: str) -> str:
    """The only host whose certificates may sign for a topic."""
    found = _TOPIC.fullmatch(topic)
    if found is None:
        raise InvalidInput(
            f"no topic of SNS: {topic[:120]!r}", "its ARN is arn:aws:sns:region:account:name", "copy it from Amazon"
        )
    ending = "amazonaws.com.cn" if found.group(1) == "aws-cn" else "amazonaws.com"
    return f"sns.{found.group(2)}.{ending}"


def sns_text(message: SnsMessage) -> bytes:
    """The text that SNS signs: names and values of the members of its type, a line each."""
    names = _SNS_SIGNED.get(message.type)
    if names is None:
        raise InvalidInput(f"a message of SNS of type {message.type[:40]!r}", "the type is unknown")
    values = msgspec.to_builtins(message)
    lines = [f"{name}\n{values[name]}\n" for name in names if values.get(name) is not None]
    return "".join(lines).encode()
