"""OpenMetrics text: what is read is what was meant, and what is written can be read again."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.errors import InvalidInput
from penstock.timeseries import MetricMetadata, SampleBatch, SeriesColumns, read_open_metrics, write_open_metrics
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.promql.source import STALE_NAN

TEXT = r"""
# TYPE requests counter
# HELP requests Requests\nanswered.
requests_total{code="200",path="/a\"b\\c\n"} 5 1.5
requests_total{code="500"} 1e3 1.5 # {trace_id="x"} 0.5 1.2
temperature -Inf
nan NaN 2
{"metric.name","label.x"="ü",} +Inf 1700000000.123
empty{} 0x10
# EOF
"""


def rows(batch: SampleBatch) -> list[tuple[dict[str, str], int, float]]:
    labels = [dict(batch.table.labels(row)) for row in range(len(batch.table))]
    return [
        (labels[series], int(time), float(value))
        for series, time, value in zip(batch.series, batch.timestamps_ms, batch.values, strict=True)
    ]


def test_samples_labels_times_and_metadata_are_read() -> None:
    text = TEXT.replace("0x10", "16")
    (batch,) = read_open_metrics(text.splitlines(), default_ms=7)
    found = rows(batch)
    assert found[0] == ({"__name__": "requests_total", "code": "200", "path": '/a"b\\c\n'}, 1500, 5.0)
    assert found[1][1:] == (1500, 1000.0)
    assert found[2] == ({"__name__": "temperature"}, 7, -math.inf)
    assert math.isnan(found[3][2])
    assert found[4] == ({"__name__": "metric.name", "label.x": "ü"}, 1_700_000_000_123, math.inf)
    assert found[5] == ({"__name__": "empty"}, 7, 16.0)
    assert len(found) == 6
    assert batch.metadata == {"requests": MetricMetadata("counter", "Requests\nanswered.")}


def test_the_older_format_counts_milliseconds() -> None:
    (batch,) = read_open_metrics(["up 1 1500"], default_ms=0, seconds=False)
    assert rows(batch) == [({"__name__": "up"}, 1500, 1.0)]


def test_times_are_rounded_to_the_nearest_millisecond() -> None:
    (batch,) = read_open_metrics(["up 1 1.0004", "up 2 1.0006", "up 3 -1.0004"], default_ms=0)
    assert [time for _, time, _ in rows(batch)] == [1000, 1001, -1000]


def test_long_texts_come_in_batches() -> None:
    lines = [f"up {number} {number}" for number in range(25)]
    batches = list(read_open_metrics(lines, default_ms=0, batch_samples=10))
    assert [len(batch) for batch in batches] == [10, 10, 5]


@pytest.mark.parametrize(
    "line", ["up", "up one", "1up 1", "up 1 later", 'up{a="1" 1', 'up{a="1",a="2"} 1', "up{a=1} 1", "{} 1"]
)
def test_a_line_that_is_no_sample_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(InvalidInput, match=r"line 2|series"):
        list(read_open_metrics(["up 1", line], default_ms=0))


def test_what_is_written_can_be_read_again() -> None:
    labels: list[Labels] = [
        (("__name__", "requests_total"), ("path", 'a"b\\c\n')),
        (("__name__", "with space"), ("label.x", "ü")),
    ]
    values = np.array([1.0, STALE_NAN, 0.1, -math.inf])
    columns = SeriesColumns(labels, np.array([0, 3, 4]), np.array([0, 1, 1500, -1]), values)
    about = {"requests": MetricMetadata("counter", 'He said "x"\nand left', "things")}
    lines = list(write_open_metrics(columns, about))
    assert lines[-1] == "# EOF"
    (batch,) = read_open_metrics(lines, default_ms=99)
    assert rows(batch) == [
        (dict(labels[0]), 0, 1.0),
        (dict(labels[0]), 1500, 0.1),
        (dict(labels[1]), -1, -math.inf),
    ]
    assert batch.metadata == about
