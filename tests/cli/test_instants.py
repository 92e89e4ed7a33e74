"""Times and steps as people write them."""

from __future__ import annotations

import click
import pytest

from penstock.cli.terminal.instants import duration_ms, instant_ms

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW_MS),
        ("-1h", NOW_MS - 3_600_000),
        ("now-1h30m", NOW_MS - 5_400_000),
        ("now+1d", NOW_MS + 86_400_000),
        ("60", 60_000),
        ("-5", -5_000),
        ("1700000000.25", 1_700_000_000_250),
        ("1970-01-01T00:01:00Z", 60_000),
        ("1970-01-01T01:01:00+01:00", 60_000),
        ("1970-01-02", 86_400_000),
    ],
)
def test_a_time_is_read(text: str, expected: int) -> None:
    assert instant_ms(text, NOW_MS) == expected


@pytest.mark.parametrize(("text", "expected"), [("30s", 30_000), ("1h30m", 5_400_000), ("15", 15_000), ("250ms", 250)])
def test_a_step_is_read(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "later", "now-", "1x", "-1h-1h", "0", "0s", "0h0m", "-30s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "later", "now-", "yesterday", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        instant_ms(text, NOW_MS)


@pytest.mark.parametrize("text", ["9" * 400, "-" + "9" * 400, "-" + "9" * 400 + "w", "now+" + "9" * 400 + "s"])
def test_a_time_of_hundreds_of_digits_is_refused_as_a_usage_error(text: str) -> None:
    with pytest.raises(click.BadParameter, match="too long"):
        instant_ms(text, 0)
    if not text.startswith(("-", "now")):
        with pytest.raises(click.BadParameter, match="too long"):
            duration_ms(text)
