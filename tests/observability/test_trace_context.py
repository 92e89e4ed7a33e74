"""A traceparent is handed on as it is, or left out: it never stops an event."""

from __future__ import annotations

import pytest

from penstock.observability import checked_traceparent, trace_id

GOOD = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


def test_a_traceparent_is_kept_and_names_its_trace() -> None:
    assert checked_traceparent(GOOD) == GOOD
    assert checked_traceparent(f" {GOOD.upper()} ") == GOOD
    assert trace_id(GOOD) == "ab" * 16
    assert checked_traceparent("01" + GOOD[2:] + "-more") is not None


@pytest.mark.parametrize(
    "header",
    [
        None,
        7,
        "",
        "x",
        GOOD[:-1],
        GOOD + "0",
        "ff" + GOOD[2:],
        "00-" + "0" * 32 + "-" + "cd" * 8 + "-01",
        "00-" + "ab" * 16 + "-" + "0" * 16 + "-01",
        GOOD.replace("-", "_"),
        GOOD + "\n" + GOOD,
        "é" * 55,
        GOOD * 10_000,
    ],
)
def test_what_is_no_traceparent_is_left_out(header: object) -> None:
    assert checked_traceparent(header) is None
    assert trace_id(header if isinstance(header, str) else None) is None
