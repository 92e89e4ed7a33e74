"""Merges as Spark jobs, several at once: one task reads its sources, merges them and uploads the target.

Nothing but descriptions passes through Spark: executors read and write the object store themselves. A task that Spark
tries again uploads a target of its own, and only the one whose result comes back is ever listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.lake import MergeFailure, MergePlace, MergeResult, MergeWork, merge_one
from penstock.pipelines.spark.workers import settle_worker

__all__ = ["SparkMerging"]

_WORK: Final = pa.schema([pa.field("work", pa.binary())])


class SparkMerging:
    """The `Merging` on executors. Called on the driver; one call at a time."""

    def __init__(self, spark: SparkSession, place: MergePlace, tasks_at_once: int | None = None) -> None:
        self._spark = spark
        self._place = place
        self._tasks_at_once = tasks_at_once or spark.sparkContext.defaultParallelism
        self._is_cancelled = False

    def merge(self, works: Sequence[MergeWork]) -> Iterator[MergeResult]:
        """A job a work, so that each is committed as soon as it is done, and a lost one takes no other with it."""
        self._is_cancelled = False
        with ThreadPoolExecutor(self._tasks_at_once, "penstock-merge") as pool:
            started = [pool.submit(self._one, work) for work in works]
            try:
                for each in as_completed(started):
                    if self._is_cancelled:
                        return
                    yield each.result()
            finally:
                for one in started:
                    one.cancel()

    def cancel(self) -> None:
        self._is_cancelled = True
        self._spark.sparkContext.cancelAllJobs()

    def _one(self, work: MergeWork) -> MergeResult:
        batch = pa.record_batch([pa.array([msgspec.json.encode(work)], pa.binary())], schema=_WORK)
        frame = self._spark.createDataFrame(pa.Table.from_batches([batch]))
        try:
            found = frame.coalesce(1).mapInArrow(partial(_task, self._place), "result binary").toArrow()
        except (PySparkException, Py4JError) as error:
            why = next(iter(str(error).strip().splitlines()), type(error).__name__)
            lost = MergeFailure(kind="Unavailable", what="a merge was lost", why=why, remedy="it is planned again")
            return MergeResult(target=work.target, failure=lost)
        answer: Any = found.to_pylist()[0]["result"]
        return msgspec.json.decode(answer, type=MergeResult)


def _task(place: MergePlace, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle_worker("merge")
    for batch in batches:
        asked: list[Any] = batch.column(0).to_pylist()
        results = [msgspec.json.encode(_merged(place, msgspec.json.decode(one, type=MergeWork))) for one in asked]
        yield pa.record_batch([pa.array(results, pa.binary())], names=["result"])


def _merged(place: MergePlace, work: MergeWork) -> MergeResult:
    """Under a name of this attempt: one that Spark gave up, and that goes on all the same, overwrites nothing."""
    context = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    own = msgspec.structs.replace(work, target=f"{work.target.removesuffix('.parquet')}-{attempt}.parquet")
    return msgspec.structs.replace(merge_one(place, own), target=work.target)
