"""What a Python worker of Spark has loaded is put aside once, and nobody else's."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.pipelines.spark.workers import settle_worker


def test_a_process_that_runs_no_task_is_left_alone() -> None:
    before = gc.get_freeze_count()
    settle_worker("a stage of nobody")
    assert gc.get_freeze_count() == before


def test_a_worker_puts_aside_what_it_has_loaded_before_the_first_task_of_a_stage(spark: SparkSession) -> None:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_worker("a stage")
        first = gc.get_freeze_count()
        settle_worker("a stage")
        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"first": first, "second": gc.get_freeze_count()}])

    frame = spark.createDataFrame(pa.table({"row": [1]})).mapInArrow(count, "first long, second long")
    (found,) = frame.toArrow().to_pylist()
    # Some of it ends by itself; nothing is added.
    assert found["first"] >= found["second"] > 10_000
