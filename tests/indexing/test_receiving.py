"""A certificate comes from a stranger's server: it has a size and a time, and nothing is followed to get it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from penstock.errors import PermissionDenied, Unavailable
from penstock.indexing.sending.receiving import fetch_certificate
from penstock.testing import ManualClock

URL = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0.pem"


class Pieces(httpx.SyncByteStream):
    """Pieces without end; each takes `seconds` of the clock."""

    def __init__(self, size: int, clock: ManualClock, seconds: float) -> None:
        self.size, self.clock, self.seconds = size, clock, seconds
        self.sent = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.sent += self.size
            self.clock.advance(self.seconds)
            yield b"x" * self.size


def fetched(answer: httpx.Response, clock: ManualClock | None = None) -> bytes:
    transport = httpx.MockTransport(lambda _: answer)
    return fetch_certificate(URL, transport=transport, clock=clock or ManualClock())


def test_a_certificate_is_what_its_address_answers() -> None:
    assert fetched(httpx.Response(200, content=b"-----BEGIN")) == b"-----BEGIN"


def test_a_certificate_without_end_is_given_up_at_the_size_that_one_can_have() -> None:
    flood = Pieces(1 << 16, ManualClock(), 0)
    with pytest.raises(PermissionDenied, match="its certificate has more than"):
        fetched(httpx.Response(200, stream=flood))
    assert flood.sent <= 1 << 18


def test_a_certificate_that_drips_is_given_up_at_one_deadline_for_the_whole() -> None:
    clock = ManualClock()
    drip = Pieces(1, clock, 3.0)
    with pytest.raises(Unavailable, match="10 s"):
        fetched(httpx.Response(200, stream=drip), clock)
    assert drip.sent == 4


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(302, headers={"location": "http://169.254.169.254/"}),
        httpx.Response(503),
        httpx.Response(200, headers={"content-encoding": "zstd"}, content=b""),
    ],
)
def test_an_answer_that_is_no_certificate_may_be_asked_for_again(answer: httpx.Response) -> None:
    with pytest.raises(Unavailable, match="cannot be fetched"):
        fetched(answer)
