from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.relay.outlets.otlp_answer import PartialSuccess, is_retryable, partial_success, retry_after_seconds

NOW_MS = 1_700_000_000_000


def test_exactly_four_statuses_are_retryable() -> None:
    assert [status for status in range(100, 600) if is_retryable(status)] == [429, 502, 503, 504]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 12 ", 12.0),
        ("1000", 300.0),
        ("99999999999999999999", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("Tue, 99 Nov 2023 22:00:00 GMT", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(text: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(text, NOW_MS, 300.0) == seconds


def test_a_warning_without_refusals_is_a_partial_success_too() -> None:
    assert partial_success(b"\x0a\x05\x12\x03old") == PartialSuccess(0, "old")


@pytest.mark.parametrize("body", [b"", b"\x0a\x00", b"<html>", b"\x0a\x7f", b"\xff" * 20, b"\x0b"])
def test_a_body_that_says_nothing_is_a_whole_success(body: bytes) -> None:
    assert partial_success(body) is None


@given(st.binary(max_size=64))
def test_no_body_breaks_the_reading(body: bytes) -> None:
    found = partial_success(body)
    assert found is None or found.rejected >= 0
