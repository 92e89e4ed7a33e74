"""The indexing job on Spark: from notifications in the queue to searchable vectors, exactly once, as one streaming query.

A micro-batch plans (which version of which object is to become current) and then works some rounds: executors read and
chunk, the driver batches, executors embed, and one write takes the vectors, hidden, together with each document's
progress. A document's last round makes its version current and removes the one before. What is left when a micro-batch
has had its rounds stays pending, durably, and is worked on by the next one and by a thread in the time between; a new
event waits for one round at most. docs/rooms/pipelines.md draws it, and tells what each crash leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed, PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.indexing import (
    PLAN_RECORDS_MAX,
    IndexingConfig,
    IndexingSummary,
    IndexWriter,
    JobCore,
    QueueRecord,
    SpareTimeWorker,
    plan_groups,
)
from penstock.observability import SILENT, Observer
from penstock.pipelines.indexing.stages import SparkStages, failure_of
from penstock.pipelines.queue_source.buffer_source import BufferDataSource

__all__ = ["SparkIndexingJob"]

_TRIGGER: Final = "100 milliseconds"
CHECKPOINT_PREFIX: Final = ".penstock-"


class SparkIndexingJob:
    """An `IndexingJob` as a streaming query. Runs on the driver. Close it, or use it as a context manager."""

    def __init__(
        self,
        spark: SparkSession,
        config: IndexingConfig,
        *,
        progress: Callable[[IndexingSummary], None] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._spark = spark
        self._config = config
        self._query: StreamingQuery | None = None
        self._worker: SpareTimeWorker | None = None
        self._failure: PenstockError | None = None
        self._interrupted = False
        self._own_checkpoint: TemporaryDirectory[str] | None = None
        self._queries = 0
        spark.dataSource.register(BufferDataSource)
        self._core = JobCore(
            config,
            partial(SparkStages, spark, observer=observer),
            stopped=lambda: self._stopped,
            progress=progress,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )

    @property
    def writer(self) -> IndexWriter:
        return self._core.writer

    @property
    def summary(self) -> IndexingSummary:
        return self._core.summary

    def run_available(self) -> IndexingSummary:
        self._begin(endless=False)
        self._query = self._writing().trigger(availableNow=True).start()
        self.await_end(self._query)
        # Ended and not stopped: what is left is worked on here.
        self._query = None
        with self._core.turnstile.batch():
            self._core.finish()
        return self.summary

    def follow(self) -> None:
        self.await_end(self.start())

    def start(self) -> StreamingQuery:
        """Take what comes, until the query is stopped. A provider that stays away is waited for."""
        self._begin(endless=True)
        query: StreamingQuery = self._writing().trigger(processingTime=_TRIGGER).start()
        self._query = query
        self._worker = SpareTimeWorker(self._core.turnstile, self._wants_work, self._core.work, self._worker_failed)
        return query

    def await_end(self, query: StreamingQuery) -> None:
        """Wait until a query of this job ends; what ended it is raised as one of the project's own errors."""
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if self._failure is None and self._interrupted:
                return
            raise self._failure or failure_of(error) from error
        self._check_failure()

    def interrupt(self) -> None:
        self._core.end_rounds()
        query = self._query
        if query is not None and query.isActive:
            query.stop()

    def close(self) -> None:
        """Stop the query and the work between its micro-batches after their round, and release the store."""
        self._core.turnstile.close()
        if self._query is not None and self._query.isActive:
            self._query.stop()
        if self._worker is not None:
            self._worker.join()
        if self._own_checkpoint is not None:
            self._own_checkpoint.cleanup()
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, *, endless: bool) -> None:
        """Forget the query before: its end is no reason to stop."""
        self._query = None
        self._interrupted = False
        self._core.patience.endless = endless
        self._core.acknowledge()

    def _writing(self) -> Any:
        config = self._config
        stream = self._spark.readStream.format("penstock-buffer").option("url", config.url)
        stream = stream.option("maxBatchesPerTrigger", str(config.batches_per_trigger))
        stream = stream.option("maxBytesPerTrigger", str(config.bytes_per_trigger))
        stream = stream.option("manifestPath", config.consumer.manifest_path)
        stream = stream.option("dataPathPrefix", config.consumer.data_path_prefix)
        stream = stream.option("deadLetter", config.consumer.dead_letter.value)
        # The store knows what was decided on: a checkpoint that the queue was read without since harms nothing.
        stream = stream.option("missing", "skip")
        for name, value in config.options.items():
            stream = stream.option(f"store.{name}", str(value))
        writing = stream.load().writeStream.foreachBatch(self._micro_batch)
        return writing.option("checkpointLocation", config.checkpoint or self._new_checkpoint())

    def _new_checkpoint(self) -> str:
        """A folder for one query of this job."""
        if self._own_checkpoint is None:
            # Hidden: whoever indexes the folder that it lies in does not list it.
            self._own_checkpoint = TemporaryDirectory(prefix=CHECKPOINT_PREFIX, ignore_cleanup_errors=True)
        self._queries += 1
        return str(Path(self._own_checkpoint.name) / f"checkpoint-{self._queries}")

    # One micro-batch -------------------------------------------------------------------------------------

    def _micro_batch(self, frame: DataFrame, _: int) -> None:
        try:
            self._check_failure()
            records = frame.select(*QueueRecord._fields).toArrow()
            with self._core.turnstile.batch():
                self._core.take(_groups(records.sort_by([("sequence", "ascending"), ("position", "ascending")])))
        except Exception as error:
            # Whoever stops a query cancels what it does: that is no failure.
            self._interrupted = isinstance(error, Closed) or self._stopped
            if isinstance(error, PenstockError) and not self._interrupted:
                # Spark passes it on as text only.
                self._failure = self._failure or error
            raise

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # Between micro-batches -------------------------------------------------------------------------------

    @property
    def _stopped(self) -> bool:
        """Whether somebody has stopped the query; what is not done stays pending."""
        return self._query is not None and not self._query.isActive

    def _wants_work(self) -> bool:
        return not self._core.idle and not self._stopped and self._failure is None

    def _worker_failed(self, error: Exception) -> None:
        """The query ends with what ended the worker: nobody would notice a thread that is gone."""
        if self._failure is None:
            self._failure = error if isinstance(error, PenstockError) else _unforeseen(error)
        if self._query is not None:
            self._query.stop()


def _groups(records: pa.Table) -> Iterator[list[QueueRecord]]:
    """Records that are planned together; as Python objects a group at a time, because they take more room so."""
    sequences: list[Any] = records["sequence"].to_pylist()
    for group in plan_groups(sequences, PLAN_RECORDS_MAX):
        columns = [column.to_pylist() for column in records.slice(group.start, len(group)).columns]
        yield [QueueRecord(*row) for row in zip(*columns, strict=True)]


def _unforeseen(error: Exception) -> PenstockError:
    if isinstance(error, PySparkException):
        return failure_of(error)
    return PenstockError("the backlog stopped", f"{type(error).__name__}: {error}", "nothing is lost: run it again")
