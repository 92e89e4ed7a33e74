"""The queue as a Spark source, on real Spark: offsets are sequences, and a restart loses and doubles nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from penstock.buffer import ProducerConfig, SyncConsumer, SyncProducer
from penstock.errors import InvalidInput
from penstock.pipelines.queue_source.buffer_source import BufferDataSource

pytestmark = pytest.mark.integration


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def produce(url: str, *batches: list[bytes], metadata: bytes = b"m") -> None:
    """Each list becomes one batch object."""
    with SyncProducer(url, ProducerConfig(flush_interval_seconds=0.0)) as producer:
        for records in batches:
            producer.produce(records, metadata).durable()


def run(spark: Any, url: str, tmp_path: Path, **options: str) -> None:
    """Take what is there now into Parquet, as one query with a checkpoint of its own folder."""
    stream = spark.readStream.format("penstock-buffer").option("url", url).options(**options).load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def written(spark: Any, tmp_path: Path) -> list[tuple[int, int, bytes]]:
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("sequence", "position").collect()
    return [(row.sequence, row.position, bytes(row.record)) for row in rows]


def test_every_record_arrives_once_with_its_sequence_its_place_and_its_metadata(
    spark: Any, url: str, tmp_path: Path
) -> None:
    produce(url, [b"a", b"b"], [b"c"], metadata=b"signal")
    run(spark, url, tmp_path)
    assert written(spark, tmp_path) == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]
    row = spark.read.parquet(str(tmp_path / "out")).first()
    assert bytes(row.metadata) == b"signal"
    assert row.ingestion_time_ms > 1_700_000_000_000


def test_a_query_goes_on_where_its_checkpoint_ended(spark: Any, url: str, tmp_path: Path) -> None:
    produce(url, [b"a"])
    run(spark, url, tmp_path)
    produce(url, [b"b"], [b"c"])
    run(spark, url, tmp_path)
    run(spark, url, tmp_path)
    assert [record for _, _, record in written(spark, tmp_path)] == [b"a", b"b", b"c"]


def test_admission_control_cuts_a_backlog_into_micro_batches_and_acknowledges_them(
    spark: Any, url: str, tmp_path: Path
) -> None:
    produce(url, *([b"%d" % number] for number in range(7)))
    run(spark, url, tmp_path, maxBatchesPerTrigger="2")
    assert len(written(spark, tmp_path)) == 7
    assert len(list((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))) == 4
    with SyncConsumer(url) as consumer:
        # The last micro-batch is acknowledged with the next one: late, and never early.
        assert consumer.lag().batches <= 2


def test_a_bound_on_bytes_is_kept(spark: Any, url: str, tmp_path: Path) -> None:
    produce(url, *([b"x" * 1000] for _ in range(6)))
    run(spark, url, tmp_path, maxBytesPerTrigger="2500")
    assert len(written(spark, tmp_path)) == 6
    assert len(list((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))) == 3


def test_the_batch_reader_shows_the_queue_and_takes_nothing_from_it(spark: Any, url: str) -> None:
    produce(url, [b"a", b"b"], [b"c"])
    table = spark.read.format("penstock-buffer").option("url", url).load()
    assert table.count() == 3
    assert table.filter("sequence = 1").first().record == b"c"
    with SyncConsumer(url) as consumer:
        assert consumer.lag().batches == 2


def test_an_empty_queue_is_a_table_without_rows(url: str) -> None:
    """Spark makes up a partition of its own where there are none."""
    reader = BufferDataSource({"url": url}).reader(StructType())
    assert list(reader.read(InputPartition(None))) == []


def test_a_missing_batch_halts_the_query_by_name(spark: Any, url: str, tmp_path: Path) -> None:
    produce(url, [b"a"], [b"b"])
    lost = sorted((tmp_path / "store" / "ingest").glob("*.batch"))[0]
    lost.unlink()
    with pytest.raises(Exception, match=lost.name):
        run(spark, url, tmp_path)


def test_a_missing_batch_can_be_set_aside_with_a_record(spark: Any, url: str, tmp_path: Path) -> None:
    produce(url, [b"a"], [b"b"])
    sorted((tmp_path / "store" / "ingest").glob("*.batch"))[0].unlink()
    run(spark, url, tmp_path, deadLetter="set-aside")
    assert [record for _, _, record in written(spark, tmp_path)] == [b"b"]
    assert len(list((tmp_path / "store" / "ingest-dead-letters").glob("*.json"))) == 1


def test_a_newer_consumer_fences_the_query(spark: Any, url: str, tmp_path: Path) -> None:
    produce(url, [b"a"])
    stream = spark.readStream.format("penstock-buffer").option("url", url).load()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="50 milliseconds")
        .start()
    )
    try:
        query.processAllAvailable()
        with SyncConsumer(url):
            with pytest.raises(Exception, match="Fenced"):
                query.awaitTermination(60)
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, "url"),
        ({"url": "file:///x", "maxBatchesPerTrigger": "none"}, "maxBatchesPerTrigger"),
        ({"url": "file:///x", "deadLetter": "ignore"}, "deadLetter"),
        ({"url": "file:///x", "colour": "blue"}, "colour"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_name(options: dict[str, str], names: str) -> None:
    with pytest.raises(InvalidInput, match=names):
        BufferDataSource(options).streamReader(None)  # type: ignore[arg-type]
