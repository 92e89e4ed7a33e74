"""Text of Prometheus becomes rows; text that is none is refused."""

from __future__ import annotations

import math
import random

import pytest
from tests.telemetry.samples import SOURCE
from tests.telemetry.test_protobuf import mutate

from penstock.errors import InvalidInput
from penstock.telemetry import decode_openmetrics, decode_prometheus_text

OPEN = b"""# TYPE jobs counter
# HELP jobs Jobs done.
jobs_total{kind="a",empty=""} 3 1.5 # {trace_id="abc"} 0.5
# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.1"} 1
wait_seconds_bucket{le="+Inf"} 2
wait_seconds_count 2
wait_seconds_sum 0.6
# EOF
"""
TEXT = b"""# TYPE up gauge
up{job="a b\\"c"} 1 1500
load NaN
"""


def test_openmetrics_has_names_types_times_and_exemplars() -> None:
    rows = decode_openmetrics(OPEN, SOURCE).batch.to_pylist()
    assert [row["metric"] for row in rows] == [
        "jobs_total",
        "wait_seconds_bucket",
        "wait_seconds_bucket",
        "wait_seconds_count",
        "wait_seconds_sum",
    ]
    assert (rows[0]["type"], rows[0]["labels"], rows[0]["value"]) == ("counter", [("kind", "a")], 3.0)
    assert rows[0]["time"].value == 1_500_000_000
    assert rows[1]["time"].value == SOURCE.received_ns
    assert rows[0]["exemplars"][0]["trace_id"] == "abc"


def test_the_older_text_has_milliseconds() -> None:
    rows = decode_prometheus_text(TEXT, SOURCE).batch.to_pylist()
    assert (rows[0]["time"].value, rows[0]["labels"]) == (1_500_000_000, [("job", 'a b"c')])
    assert math.isnan(rows[1]["value"])


@pytest.mark.parametrize("body", [b"jobs_total 1\n", b"\xff\xfe", b"# EOF\nmore 1\n", b"a{b 1\n# EOF\n"])
def test_text_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_openmetrics(body, SOURCE)


def test_text_that_was_cut_off_within_a_line_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cut off"):
        decode_prometheus_text(b"up 1\nrequests_total 123", SOURCE)


def test_an_empty_exposition_has_no_rows() -> None:
    assert decode_openmetrics(b"# EOF\n", SOURCE).batch.num_rows == 0
    assert decode_prometheus_text(b"", SOURCE).batch.num_rows == 0


def test_mutated_text_meets_our_errors_only() -> None:
    chance = random.Random(5)
    for _ in range(400):
        for body, decode in ((OPEN, decode_openmetrics), (TEXT, decode_prometheus_text)):
            try:
                decode(mutate(body, chance), SOURCE)
            except InvalidInput:
                continue
