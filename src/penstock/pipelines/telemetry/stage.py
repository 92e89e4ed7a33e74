"""The stage of the telemetry job on Spark's executors: one `mapInArrow` over tasks, answers as bytes.

Records never pass through Java: tasks fetch the batch objects themselves and write data files themselves. Only
descriptions of files and samples in columns come back.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.landing import (
    LandingAnswer,
    LandingSettings,
    LandingTask,
    decode_answer,
    encode_answer,
    given_up,
    land_task,
    settle_memory,
)
from penstock.pipelines.spark.failures import failure_of
from penstock.pipelines.spark.workers import settle_worker

__all__ = ["SparkLandingStage"]

_TASKS: Final = pa.schema([pa.field("task", pa.binary())])
_ANSWERS: Final = pa.schema([pa.field("answer", pa.binary())])


class SparkLandingStage:
    """The `LandingStage` on executors. Called on the driver, from any thread; `cancel` ends all jobs of the session."""

    def __init__(self, spark: SparkSession, settings: LandingSettings) -> None:
        self._spark, self._settings = spark, settings
        self._lock = threading.Lock()
        self._running = 0
        # How often calls were given up: one that began before the last time ends by it.
        self._cancels = 0

    def land(self, tasks: Sequence[LandingTask]) -> list[LandingAnswer]:
        with self._lock:
            self._running += 1
            cancels = self._cancels
        try:
            # Spark makes a task of every record batch it is given.
            batches = [pa.record_batch([pa.array([pickle.dumps(task)], pa.binary())], schema=_TASKS) for task in tasks]
            frame = self._spark.createDataFrame(pa.Table.from_batches(batches, _TASKS))
            work = partial(_land, self._settings)
            table = frame.mapInArrow(work, from_arrow_schema(_ANSWERS)).toArrow()
        except (PySparkException, Py4JError) as error:
            is_given_up = self._cancels > cancels
            raise (given_up() if is_given_up else failure_of(error, "a round of the telemetry job ended")) from error
        finally:
            with self._lock:
                self._running -= 1
        bodies: list[Any] = table.column("answer").to_pylist()
        answers = {answer.part: answer for answer in map(decode_answer, bodies)}
        return [answers[task.part] for task in tasks]

    def cancel(self) -> None:
        with self._lock:
            self._cancels += 1
            is_running = self._running > 0
        if is_running:
            self._spark.sparkContext.cancelAllJobs()


def _land(settings: LandingSettings, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle_worker("land")
    settle_memory()
    for batch in batches:
        # The driver's own bytes, over a channel that Spark keeps with a secret.
        bodies: list[Any] = batch.column("task").to_pylist()
        for body in bodies:
            answer = asyncio.run(land_task(settings, pickle.loads(body)))  # noqa: S301
            yield pa.record_batch([pa.array([encode_answer(answer)], pa.binary())], schema=_ANSWERS)
