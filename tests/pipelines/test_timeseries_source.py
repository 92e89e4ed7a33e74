"""`penstock-timeseries`: samples in Spark, with times and metrics chosen in the store."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource as pushed
from tests.timeseries.stores import HOUR, batch, series

from penstock.errors import InvalidInput, PenstockError
from penstock.pipelines import TimeSeriesDataSource
from penstock.pipelines.timeseries_source.timeseries_source import SamplesReader, _Selection
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


@pytest.mark.parametrize(
    "more", [{"colour": "red"}, {"hoursPerTask": "0"}, {"start": "soon"}, {"matchers": "{job="}, {"url": ""}]
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
