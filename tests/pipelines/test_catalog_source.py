"""`penstock-catalog`: tables of the catalog in Spark, with files left out by whatever Spark pushes down."""

from __future__ import annotations

import asyncio
import json
import pickle
import runpy
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as pushed
from tests.catalog.parquet_files import HOUR, add, rows
from tests.lake.lakes import Lake

from penstock.catalog import Predicate
from penstock.errors import InvalidInput
from penstock.pipelines import CatalogDataSource
from penstock.pipelines.catalog_source.catalog_source import CatalogTableReader, _Options
from penstock.pipelines.catalog_source.filters import predicates_of
from penstock.pipelines.catalog_source.spark_types import spark_schema


def lake_of(folder: Path, hours: int = 3) -> Lake:
    """Three hours of 100 rows."""

    async def session() -> Lake:
        async with Lake(folder) as lake:
            for hour in range(hours):
                await lake.write(1, hour=hour)
            return lake

    return asyncio.run(session())


def reader(lake: Lake, *filters: Any, **options: str) -> CatalogTableReader:
    made = _Options.of({"url": lake.url, "prefix": lake.prefix, **options})
    found = CatalogTableReader(made, made.schema().names, made.schema())
    assert list(found.pushFilters(list(filters))) == list(filters)
    return found


def test_filters_choose_files_and_rows_before_anything_is_read(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    whole = reader(lake)
    assert sum(len(part.files) for part in whole.partitions()) == 3  # type: ignore[attr-defined]
    late = reader(lake, pushed.GreaterThanOrEqual(("time",), datetime.fromtimestamp(2 * 3600, UTC)))
    (part,) = late.partitions()
    assert sum(batch.num_rows for batch in late.read(part)) == 100
    few = reader(lake, pushed.LessThan(("n",), 10), pushed.EqualTo(("host",), "h3"))
    (part,) = few.partitions()
    (batch,) = few.read(part)
    assert batch.to_pydict()["n"] == [3]
    assert batch.schema.field("time").type == pa.timestamp("us", tz="UTC")
    none = reader(lake, start=str(50 * HOUR))
    assert none.partitions() == []


def test_a_reader_travels_with_all_it_knows_and_reads_the_past_and_nested_columns(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    pairs = pa.array([[("k", "v")]] * 5, pa.map_(pa.string(), pa.string()))

    async def more() -> None:
        async with Lake(tmp_path) as again:
            await add(again.catalog, "new.parquet", rows(5, start=9 * HOUR, m=pairs))

    asyncio.run(more())
    for options, count in (({"asOf": json.dumps({"": 3})}, 300), ({}, 305)):
        sent = pickle.loads(pickle.dumps(reader(lake, **options)))
        assert sum(batch.num_rows for part in sent.partitions() for batch in sent.read(part)) == count
    made = _Options.of({"url": lake.url, "prefix": lake.prefix, "start": str(9 * HOUR)})
    narrow = CatalogTableReader(made, ["m"], made.schema())
    (batch,) = (batch for part in narrow.partitions() for batch in narrow.read(part))
    assert batch.to_pydict() == {"m": [[("k", "v")]] * 5}


def test_what_is_planned_is_pinned_for_as_long_as_was_asked(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    reader(lake, pinSeconds="0").partitions()

    async def pins() -> int:
        async with Lake(tmp_path) as again:
            return len((await again.catalog.shard("").fresh()).pins)

    assert asyncio.run(pins()) == 0
    reader(lake).partitions()
    assert asyncio.run(pins()) == 1


def test_times_are_compared_as_spark_sees_them_cut_to_microseconds() -> None:
    schema = rows(1).schema
    moment = datetime.fromtimestamp(1, UTC)
    assert predicates_of([pushed.LessThanOrEqual(("time",), moment)], schema) == [Predicate("time", "<", 1_000_001_000)]
    assert predicates_of([pushed.EqualTo(("time",), moment)], schema) == [
        Predicate("time", ">=", 1_000_000_000),
        Predicate("time", "<", 1_000_001_000),
    ]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_a_time_without_a_zone_means_the_same_in_every_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark gives one for a column without a zone alone; taken as local time it left out rows."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        schema = pa.schema([("time", pa.timestamp("us"))])
        moment = datetime.fromisoformat("1970-01-01T00:00:01")
        assert predicates_of([pushed.GreaterThan(("time",), moment)], schema) == [
            Predicate("time", ">=", 1_000_000_000)
        ]
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:00", "0001-01-01", "9999-12-31T23:59:59.999999"])
def test_times_at_the_ends_of_the_calendar_are_exact(text: str) -> None:
    moment = datetime.fromisoformat(text)
    (found,) = predicates_of([pushed.GreaterThanOrEqual(("time",), moment)], rows(1).schema)
    since = moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert found.value == ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def test_filters_that_prove_nothing_here_are_left_to_spark() -> None:
    schema = rows(1, value=pa.array([1.0])).schema
    for one in (
        pushed.EqualTo(("value",), 1.0),
        pushed.EqualTo(("nowhere",), 1),
        pushed.EqualTo(("n",), "text"),
        pushed.EqualTo(("a", "b"), 1),
        pushed.Not(pushed.EqualTo(("n",), 1)),
        pushed.StringContains(("host",), "h"),
    ):
        assert predicates_of([one], schema) == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"url": "file:///x", "colour": "red"},
        {"url": "file:///x", "asOf": "later"},
        {"url": "file:///x", "asOf": "true"},
        {"url": "file:///x", "asOf": '{"": true}'},
        {"url": "file:///x", "start": "--5"},
        {"url": "file:///x", "start": "²"},
        {"url": "file:///x", "end": ""},
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        _Options.of(options)


def test_types_that_spark_lacks_are_given_in_those_it_has() -> None:
    odd = pa.schema(
        [
            ("u", pa.uint64()),
            ("d", pa.dictionary(pa.int32(), pa.string())),
            ("m", pa.map_(pa.string(), pa.timestamp("ns"))),
            ("l", pa.list_(pa.uint8())),
        ]
    )
    assert spark_schema(odd).types == [
        pa.decimal128(20, 0),
        pa.string(),
        pa.map_(pa.string(), pa.timestamp("us")),
        pa.list_(pa.int16()),
    ]


def test_where_nothing_is_planned_the_partition_that_spark_makes_up_has_no_rows(tmp_path: Path) -> None:
    """A filter that left out every file ended the query with an AssertionError."""
    found = reader(lake_of(tmp_path))
    list(found.pushFilters([pushed.GreaterThan(("n",), 10_000)]))
    assert found.partitions() == []
    assert list(found.read(pushed.InputPartition(None))) == []


@pytest.mark.integration
def test_spark_reads_a_table_with_sql_now_and_as_it_was(spark: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    spark.dataSource.register(CatalogDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    read = spark.read.format("penstock-catalog").option("url", lake.url).option("prefix", lake.prefix)
    read.option("table", "cpu").load().createOrReplaceTempView("cpu")
    asked = "SELECT host, count(*) AS c FROM cpu WHERE time >= TIMESTAMP '1970-01-01 01:00:00' AND n < 150 GROUP BY host ORDER BY host"
    assert [tuple(row) for row in spark.sql(asked).collect()] == [("h0", 8), *[(f"h{at}", 7) for at in range(1, 7)]]
    assert spark.sql("SELECT n FROM cpu WHERE n > 10000").collect() == []

    async def more() -> None:
        async with Lake(tmp_path) as again:
            table = rows(
                5,
                start=9 * HOUR,
                zone=pa.array(["z"] * 5),
                m=pa.array([[("k", "v")]] * 5, pa.map_(pa.string(), pa.string())),
            )
            await add(again.catalog, "new.parquet", table)

    asyncio.run(more())
    past = read.option("asOf", json.dumps({"": 3})).load()
    assert past.count() == 300
    now = spark.read.format("penstock-catalog").options(url=lake.url, prefix=lake.prefix, columns="zone,m").load()
    assert now.where("zone IS NOT NULL").collect()[0].m == {"k": "v"}


@pytest.mark.integration
def test_a_view_that_is_asked_twice_answers_each_question_for_itself(spark: Any, tmp_path: Path) -> None:
    """Spark gave the second question the partitions that were chosen for the first."""
    lake = lake_of(tmp_path)
    spark.dataSource.register(CatalogDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    read = spark.read.format("penstock-catalog").options(url=lake.url, prefix=lake.prefix, table="cpu")
    read.load().createOrReplaceTempView("cpu")
    assert spark.sql("SELECT n FROM cpu WHERE n < 5 AND host = 'h1'").count() == 1
    assert spark.sql("SELECT n FROM cpu WHERE n < 5 OR host = 'h0'").count() == 49
    both = "SELECT (SELECT count(*) FROM cpu WHERE n < 5) AS a, (SELECT count(*) FROM cpu WHERE n >= 290) AS b"
    assert [tuple(row) for row in spark.sql(both).collect()] == [(5, 10)]
    assert read.option("pushFilters", "true").load().where("n >= 290").count() == 10


@pytest.mark.integration
def test_the_example_for_spark_submit_counts_the_rows_of_a_table(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes the session that there is, as it takes `spark-submit`'s."""
    lake = lake_of(tmp_path)
    program = Path(__file__).parents[2] / "examples" / "spark" / "read_catalog.py"
    monkeypatch.setattr("sys.argv", [str(program), lake.url, "cpu", "--prefix", lake.prefix])
    runpy.run_path(str(program), run_name="__main__")
    assert "cpu has 300 rows" in capsys.readouterr().out
    assert not spark.sparkContext._jsc.sc().isStopped()
