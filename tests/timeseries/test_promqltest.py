"""Cases of our own in the text format of Prometheus' tests: each function and operator by its documented semantics."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.timeseries.promqltest import run

CASES = sorted((Path(__file__).parent / "cases").glob("*.test"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_case_of_the_file_passes(path: Path) -> None:
    verdicts = list(run(path.read_text()))
    assert verdicts
    assert [(one.line, one.expression, one.detail) for one in verdicts if one.status != "pass"] == []


def test_the_runner_tells_a_wrong_number_from_a_right_one() -> None:
    script = "load 1m\n  a 1 2 3\n\neval instant at 1m a\n  a 2\n\neval instant at 1m a\n  a 3\n\neval instant at 1m a\n  b 2\n"
    assert [verdict.status for verdict in run(script)] == ["pass", "fail", "fail"]


def test_the_runner_lists_what_it_cannot_run_by_reason() -> None:
    script = "load 1m\n  h {{schema:0 sum:1 count:1 buckets:[1]}}\n\neval instant at 0 h\n  h 1\n\neval instant at 0 start_timestamp(a)\n"
    assert [verdict.status for verdict in run(script)] == [
        "native histograms",
        "the function start_timestamp is not supported",
    ]


def test_the_runner_fails_a_query_that_should_have_failed() -> None:
    script = "eval instant at 0 1\n  expect fail\n\neval instant at 0 (\n  expect fail\n"
    assert [verdict.status for verdict in run(script)] == ["fail", "pass"]
