"""`penstock-timeseries`: samples in Spark, with times and metrics chosen in the store."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource as pushed
from tests.timeseries.stores import HOUR, batch, series

from penstock.errors import InvalidInput, PenstockError
from penstock.pipelines import TimeSeriesDataSource
from penstock.pipelines.timeseries_source.timeseries_source import SamplesReader, WindowPartition, _Selection
from penstock.timeseries import TimeSeriesStore


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    """Two metrics, an hour apart, on a disk."""
    url = tmp_path.as_uri()

    async def fill() -> None:
        async with await TimeSeriesStore.open(url, "series") as opened:
            await opened.write(
                batch((series(job="a"), [1, HOUR + 2], [1.0, 2.0]), (series("down", job="b"), [5], [3.0]))
            )
            await opened.flush()

    asyncio.run(fill())
    return {"url": url, "path": "series"}


def samples(options: dict[str, str], *filters: Any) -> list[tuple[Any, ...]]:
    reader = SamplesReader(_Selection.of(options))
    assert list(reader.pushFilters(list(filters))) == list(filters)
    sent = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in sent.partitions() for batch in sent.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["metric"], dict(row["labels"]), round(row["time"].timestamp() * 1000), row["value"]) for row in rows]


def test_a_row_is_a_sample(store: dict[str, str]) -> None:
    assert sorted(samples(store), key=str) == [
        ("down", {"job": "b"}, 5, 3.0),
        ("up", {"job": "a"}, 1, 1.0),
        ("up", {"job": "a"}, HOUR + 2, 2.0),
    ]


def test_matchers_and_times_choose_in_the_store(store: dict[str, str]) -> None:
    assert samples({**store, "matchers": '{job="b"}'}) == [("down", {"job": "b"}, 5, 3.0)]
    assert samples({**store, "start": "0", "end": str(2 * HOUR), "hoursPerTask": "1", "matchers": "up"}) == [
        ("up", {"job": "a"}, 1, 1.0),
        ("up", {"job": "a"}, HOUR + 2, 2.0),
    ]


def test_pushed_filters_choose_too(store: dict[str, str]) -> None:
    late = pushed.GreaterThan(("time",), datetime.fromtimestamp(60, UTC))
    assert samples(store, late, pushed.EqualTo(("metric",), "up")) == [("up", {"job": "a"}, HOUR + 2, 2.0)]
    assert samples(store, late, pushed.LessThan(("time",), datetime.fromtimestamp(50, UTC))) == []


def test_where_no_time_is_possible_the_partition_that_spark_makes_up_has_no_rows(store: dict[str, str]) -> None:
    reader = SamplesReader(_Selection.of({**store, "start": "5", "end": "4"}))
    assert reader.partitions() == []
    assert list(reader.read(pushed.InputPartition(None))) == []


def test_a_metric_without_a_name_is_nobodys(store: dict[str, str]) -> None:
    assert samples(store, pushed.EqualTo(("metric",), "")) == []


def test_centuries_make_no_more_tasks_than_are_worth_their_start(store: dict[str, str]) -> None:
    """Windows of six hours over thirty years were 43,000 tasks, each of which opens the store."""
    reader = SamplesReader(_Selection.of(store))
    first, last = (datetime(year, 1, 1, tzinfo=UTC) for year in (1, 9999))
    list(reader.pushFilters([pushed.GreaterThanOrEqual(("time",), first), pushed.LessThan(("time",), last)]))
    parts = [part for part in reader.partitions() if isinstance(part, WindowPartition)]
    assert 100 <= len(parts) <= 200
    # Every moment is in one of them, and in one alone.
    assert all(earlier.end_ms + 1 == later.start_ms for earlier, later in pairwise(parts))
    since = datetime(1970, 1, 1, tzinfo=UTC)
    assert (parts[0].start_ms, parts[-1].end_ms) == tuple(
        (at - since) // timedelta(milliseconds=1) for at in (first, last)
    )
    assert (
        sum(len(batch) for part in parts if part.end_ms >= 0 >= part.start_ms - 2 * HOUR for batch in reader.read(part))
        == 3
    )


@pytest.mark.parametrize(
    "more",
    [
        {"colour": "red"},
        {"start": "--5"},
        {"start": "²"},
        {"hoursPerTask": "0"},
        {"start": "soon"},
        {"matchers": "{job="},
        {"url": ""},
    ],
)
def test_options_that_cannot_be_used_are_refused(more: dict[str, str]) -> None:
    with pytest.raises((InvalidInput, PenstockError)):
        _Selection.of({"url": "file:///x", "path": "series", **more})


@pytest.mark.integration
def test_spark_reads_samples_with_sql(spark: Any, store: dict[str, str]) -> None:
    spark.dataSource.register(TimeSeriesDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.read.format("penstock-timeseries").options(**store).load().createOrReplaceTempView("samples")
    found = spark.sql(
        "SELECT labels['job'] AS job, sum(value) AS s FROM samples WHERE metric = 'up' GROUP BY 1"
    ).collect()
    assert [tuple(row) for row in found] == [("a", 3.0)]
