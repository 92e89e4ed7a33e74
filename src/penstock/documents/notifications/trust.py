"""Who may tell us of an object: signatures over all of a delivery that decides, and bearer tokens.

Each check takes several keys at once, so that a key is replaced without a moment in which events are refused: add the
new one, move the senders, remove the old one. A delivery that is unsigned, signed with another key, older or newer than
the tolerance, or a repetition is refused with `PermissionDenied`, which the gateway answers with 401; it never reaches
the queue. Comparisons take the same time whatever matches. docs/rooms/documents.md has the scheme, for senders.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents.notifications.received import NotificationMessage
from penstock.documents.notifications.replays import MemoryReplays, Replays
from penstock.errors import InvalidInput, PermissionDenied

__all__ = ["BearerTrust", "HmacTrust", "check_age", "denied"]

TIMESTAMP_HEADER: Final = "x-penstock-timestamp"
SIGNATURE_HEADER: Final = "x-penstock-signature"
# Any text that the sender chooses: it tells two deliveries apart that are the same otherwise.
NONCE_HEADER: Final = "x-penstock-nonce"

# Clocks differ and requests wait; a recorded request is worthless after this long.
TOLERANCE_SECONDS: Final = 300
_SECRET_BYTES_MIN: Final = 16
_SCHEME: Final = "penstock-v3"
# Headers that a parser reads: with another one the same body would be another event.
_DECIDING: Final = "content-type"
_DECIDING_PREFIX: Final = "ce-"
# What HTTP takes away around the value of a header; anything else is a part of it.
_HTTP_BLANKS: Final = " \t"


class HmacTrust:
    """HMAC-SHA256 over time, nonce, target, the headers that decide and the body. A delivery is believed once."""

    def __init__(
        self,
        keys: Sequence[bytes],
        *,
        tolerance_seconds: int = TOLERANCE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
        replays: Replays | None = None,
    ) -> None:
        self._keys = _secrets(keys)
        self._tolerance_ms = tolerance_seconds * 1000
        self._clock = clock
        self._replays = replays or MemoryReplays(clock=clock)

    def sign(self, body: bytes, timestamp: int, target: str, headers: Mapping[str, str] | None = None) -> str:
        """The signature with the first key, as the header carries it: for senders of our own, and for tests."""
        return _signature(self._keys[0], timestamp, NotificationMessage(body, headers or {}, target=target))

    def check(self, delivery: NotificationMessage) -> None:
        self.verify(delivery)
        self.claim(delivery)

    def verify(self, delivery: NotificationMessage) -> None:
        """Return when the signature holds and its time is near; whether the delivery is a repetition is not asked."""
        stamp = delivery.headers.get(TIMESTAMP_HEADER, "")
        offered = delivery.headers.get(SIGNATURE_HEADER, "")
        if not stamp or not offered:
            raise denied("it is not signed", f"send {TIMESTAMP_HEADER} and {SIGNATURE_HEADER}")
        if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12):
            raise denied("its timestamp is no number of seconds")
        check_age(int(stamp) * 1000, self._clock, self._tolerance_ms)
        # Every key is tried whatever matched before: time tells nothing of which key it was.
        matches = [
            hmac.compare_digest(_signature(key, int(stamp), delivery).encode(), _bytes(offered)) for key in self._keys
        ]
        if not any(matches):
            raise denied("its signature matches none of the keys")

    def claim(self, delivery: NotificationMessage) -> None:
        """Take a verified delivery; a second time it is refused."""
        if not self._replays.claim(delivery.headers[SIGNATURE_HEADER], self._until_ms(delivery)):
            raise denied("it was taken already", f"sign a new delivery anew, with its own {NONCE_HEADER}")

    def release(self, delivery: NotificationMessage) -> None:
        """Let a delivery be sent again: it was believed, and what was to be done with it failed."""
        self._replays.release(delivery.headers[SIGNATURE_HEADER], self._until_ms(delivery))

    def _until_ms(self, delivery: NotificationMessage) -> int:
        return int(delivery.headers[TIMESTAMP_HEADER]) * 1000 + self._tolerance_ms


class BearerTrust:
    """`Authorization: Bearer token`, as MinIO and SeaweedFS send it."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._digests = [hashlib.sha256(token).digest() for token in _secrets([_bytes(token) for token in tokens])]

    def check(self, delivery: NotificationMessage) -> None:
        scheme, _, token = delivery.headers.get("authorization", "").partition(" ")
        # MinIO sends the configured text as it is when it holds a scheme already, and with Bearer when not.
        if scheme.lower() != "bearer" or not token:
            raise denied("it carries no bearer token", "send Authorization: Bearer …")
        offered = hashlib.sha256(_bytes(token.strip())).digest()
        matches = [hmac.compare_digest(digest, offered) for digest in self._digests]
        if not any(matches):
            raise denied("its token is not known")


def _signature(key: bytes, timestamp: int, delivery: NotificationMessage) -> str:
    return "v3=" + hmac.new(key, signed_text(timestamp, delivery), hashlib.sha256).hexdigest()


def signed_text(timestamp: int, delivery: NotificationMessage) -> bytes:
    """What is signed: lines of scheme, time, nonce, target and deciding headers, an empty one, then the body."""
    headers = delivery.headers
    deciding = sorted(name for name in headers if name == _DECIDING or name.startswith(_DECIDING_PREFIX))
    lines = [_SCHEME, str(timestamp), headers.get(NONCE_HEADER, ""), delivery.target]
    lines += [f"{name}:{headers[name].strip(_HTTP_BLANKS)}" for name in deciding]
    if any("\n" in line or "\r" in line for line in lines):
        raise denied("a header of it has several lines")
    return _bytes("\n".join([*lines, "", ""])) + delivery.body


def _bytes(text: str) -> bytes:
    """Headers may hold what is no text; it must not match, and must not raise."""
    return text.encode("utf-8", "surrogatepass")


def check_age(at_ms: int, clock: Clock, tolerance_ms: int) -> None:
    if abs(clock.now_ms() - at_ms) > tolerance_ms:
        raise denied(f"its time is more than {tolerance_ms // 1000} s away from ours", "check both clocks")


def _secrets(secrets: Sequence[bytes]) -> list[bytes]:
    if not secrets:
        raise InvalidInput("there is no key to check notifications with", "the list is empty", "configure at least one")
    if any(len(secret) < _SECRET_BYTES_MIN for secret in secrets):
        raise InvalidInput("a key for notifications is too short", f"it must have {_SECRET_BYTES_MIN} bytes or more")
    return list(secrets)


def denied(why: str, remedy: str = "") -> PermissionDenied:
    return PermissionDenied("a notification was rejected", why, remedy)
