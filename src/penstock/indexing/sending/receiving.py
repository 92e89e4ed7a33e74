"""Takes a delivery of notifications: checks who sent it, reads every event in it, and puts them on the queue.

A delivery is taken whole or not at all, and one that was signed is taken once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock, Deadline
from penstock.documents import Notification
from penstock.documents.notifications import (
    BATCHED,
    BearerTrust,
    Destination,
    HmacTrust,
    NotificationMessage,
    Received,
    SnsTrust,
    StoredReplays,
    parser_of,
)
from penstock.errors import DeadlineExceeded, InvalidInput, PenstockError, PermissionDenied, Unavailable
from penstock.indexing.search.doors import PLAIN_DOORS, StoreDoors
from penstock.indexing.search.targets import find_target
from penstock.indexing.sending.queue import in_trace, send
from penstock.objects import StoreSpec
from penstock.observability import names
from penstock.undecodable import UNDECODABLE

if TYPE_CHECKING:
    import httpx

__all__ = ["Credentials", "documents_in", "fetch_certificate", "receive", "take_delivery", "target_of"]

_FETCH_SECONDS_MAX: Final = 10.0
# Those of SNS have about two thousand.
_CERTIFICATE_BYTES_MAX: Final = 1 << 16


@dataclass(frozen=True)
class Credentials:
    """What a sender must prove; empty if nothing is required."""

    keys: Sequence[str] = ()
    tokens: Sequence[str] = ()
    topics: Sequence[str] = ()
    # The certificate that signs for SNS, checked by hand; without it, it is fetched from Amazon.
    sns_certificate: bytes | None = None

    def signatures(self, spec: StoreSpec) -> HmacTrust | None:
        """Deliveries that were taken are noted in the store."""
        if not self.keys:
            return None
        return HmacTrust([os.fsencode(key) for key in self.keys], replays=StoredReplays(spec))

    def sns(self) -> SnsTrust | None:
        if not self.topics:
            return None
        pem = self.sns_certificate
        return SnsTrust(self.topics, fetch_certificate if pem is None else lambda _: pem, pinned=pem is not None)


def take_delivery(
    url: str,
    index: tuple[str, str, str | None],
    source: str,
    delivery: NotificationMessage,
    credentials: Credentials,
    doors: StoreDoors = PLAIN_DOORS,
) -> Received:
    """Check a delivery, read it and queue it at the store for an index: its tenant, its name, and its model or None."""
    delivery = replace(delivery, target=target_of(source, index[1]))
    signed = credentials.signatures(doors.spec(url))
    if signed:
        signed.verify(delivery)
    if credentials.tokens:
        BearerTrust(credentials.tokens).check(delivery)
    name = asyncio.run(find_target(url, *index, doors)).name
    received = receive(source, delivery, Destination(name.tenant, name.index, name.model), credentials.sns())
    # What came without a trace is followed in one that begins here.
    with doors.observer.span(names.INDEXING_RECEIVE, parent=delivery.origin.traceparent, source=source):
        events = in_trace(received.notifications, doors.observer)
        _send_once(url, events, delivery, signed, doors)
    return replace(received, notifications=tuple(events))


def _send_once(
    url: str, events: Sequence[Notification], delivery: NotificationMessage, signed: HmacTrust | None, doors: StoreDoors
) -> None:
    """Send the events, unless this very delivery was sent before. One that could not be sent may be tried again."""
    if signed is None:
        send(url, events, doors)
        return
    signed.claim(delivery)
    try:
        send(url, events, doors)
    except BaseException:
        signed.release(delivery)
        raise


def target_of(source: str, index: str) -> str:
    """Where a delivery is sent, as its sender signs it: another source reads the same body as another event."""
    return f"{source}/{index}"


def receive(
    source: str, delivery: NotificationMessage, destination: Destination, sns: SnsTrust | None = None
) -> Received:
    """The events of all documents in a delivery, in their order; with `sns`, of the messages that it believes."""
    parse = parser_of(source)
    notifications: list[Notification] = []
    ignored: list[str] = []
    for number, body in enumerate(documents_in(delivery.body), 1):
        one = replace(delivery, body=body, headers=_typed(delivery.headers, source, body))
        try:
            event = _unwrapped(one, sns) if sns else one
            if event is None:
                ignored.append(f"message {number} is no event: a subscription is confirmed at the address in it")
                continue
            found = parse(event, lambda _bucket, _key: destination)
        except PenstockError as error:
            raise type(error)(f"notification {number} of the input: {error.what}", error.why, error.remedy) from error
        notifications += found.notifications
        ignored += found.ignored
    return Received(tuple(notifications), tuple(ignored))


def documents_in(data: bytes) -> list[bytes]:
    """One JSON document, however it is laid out, or one a line."""
    text = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        raise InvalidInput("there is no notification in the input", "it is empty")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) == 1 or _fault(text) is None:
        lines = [(1, text)]
    for number, line in lines:
        fault = _fault(line)
        if fault is not None:
            raise InvalidInput(f"line {number} of the input is not JSON", fault, "send it as the store sent it")
    return [line for _, line in lines]


def _unwrapped(delivery: NotificationMessage, sns: SnsTrust) -> NotificationMessage | None:
    """The event in a message of SNS; None when it asks to confirm a subscription."""
    message = sns.message(delivery)
    if message.type != "Notification":
        return None
    return replace(delivery, body=message.message.encode(), source_id=message.message_id)


def fetch_certificate(url: str, *, transport: httpx.BaseTransport | None = None, clock: Clock = SYSTEM_CLOCK) -> bytes:
    """The PEM at an address: from nowhere else, whatever the answer or the environment says, and bounded."""
    import httpx

    deadline = Deadline(clock, _FETCH_SECONDS_MAX)
    client = httpx.Client(
        timeout=_FETCH_SECONDS_MAX,
        trust_env=False,
        follow_redirects=False,
        headers={"accept-encoding": "identity"},
        transport=transport,
    )
    try:
        with client, client.stream("GET", url) as answer:
            return _certificate_in(answer.raise_for_status(), deadline)
    except (httpx.HTTPError, DeadlineExceeded) as error:
        raise Unavailable(f"the certificate {url} cannot be fetched", str(error), "give --sns-certificate") from error


def _certificate_in(answer: httpx.Response, deadline: Deadline) -> bytes:
    import httpx

    if packed := answer.headers.get("content-encoding"):
        raise httpx.DecodingError(f"it is packed as {packed[:40]!r}", request=answer.request)
    found = bytearray()
    for piece in answer.iter_bytes():
        found += piece
        if len(found) > _CERTIFICATE_BYTES_MAX:
            why = f"its certificate has more than {_CERTIFICATE_BYTES_MAX} bytes"
            raise PermissionDenied("a notification was rejected", why)
        deadline.check("a certificate")
    return bytes(found)


def _fault(text: bytes) -> str | None:
    try:
        msgspec.json.decode(text)
    except UNDECODABLE as error:
        return str(error)
    return None


def _typed(headers: Mapping[str, str], source: str, body: bytes) -> Mapping[str, str]:
    """A file has no content type: a list of CloudEvents is a batch."""
    if source == "cloudevents" and body[:1] == b"[" and "content-type" not in headers:
        return {**headers, "content-type": BATCHED}
    return headers
