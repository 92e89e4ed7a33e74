"""The indexing job: from notifications in the queue to searchable vectors, exactly once, as one streaming query.

A micro-batch plans (which version of which object is to become current) and then works some rounds: executors read and
chunk, the driver batches, executors embed, and one write takes the vectors, hidden, together with each document's
progress. A document's last round makes its version current and removes the one before. What is left when a micro-batch
has had its rounds stays pending, durably, and is worked on by the next one and by a thread in the time between; a new
event waits for one round at most. docs/rooms/pipelines.md draws it, and tells what each crash leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, Self

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import ChunkingConfig
from penstock.errors import Closed, PenstockError, Unavailable
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects import StoreSpec
from penstock.observability import SILENT, Observer
from penstock.pipelines.acknowledging import acknowledge
from penstock.pipelines.buffer_source import BufferDataSource
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.events import plan_groups
from penstock.pipelines.index_writer import IndexWriter
from penstock.pipelines.indexer import PLAN_RECORDS_MAX, Indexer, IndexingSummary
from penstock.pipelines.patience import Patience
from penstock.pipelines.planning import RoundLimits
from penstock.pipelines.reading import Reading
from penstock.pipelines.registry import VECTOR_PATH
from penstock.pipelines.stages import Stages, failure_of
from penstock.pipelines.turnstile import SpareTimeWorker, Turnstile

__all__ = ["IndexingConfig", "IndexingJob", "IndexingSummary"]

_TRIGGER: Final = "100 milliseconds"
CHECKPOINT_PREFIX: Final = ".penstock-"

# What a person who has asked for the end waits for a round.
_ROUND_GRACE_SECONDS: Final = 2.0
_CANCEL_AGAIN_SECONDS: Final = 0.5


@dataclass(frozen=True)
class IndexingConfig:
    """One job: a store with the queue and the vectors, and how documents are read and embedded."""

    url: str
    # None is a new one for every job, which its end removes: how far the queue was taken is in the store.
    checkpoint: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # How new indexes are cut, and into which cells all files are; an index that is made keeps to its own.
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    # The same for some new indexes, by tenant and index.
    chunking_by_index: Mapping[tuple[str, str], ChunkingConfig] = field(default_factory=dict)
    embedding: Embedding = field(default_factory=Embedding)
    reading: Reading = field(default_factory=Reading)
    rounds: RoundLimits = field(default_factory=RoundLimits)
    batches_per_trigger: int = 100
    # Of batch objects as they are stored; a micro-batch takes one at least.
    bytes_per_trigger: int = 16 << 20
    vector_path: str = VECTOR_PATH


class IndexingJob:
    """Runs on the driver, and is the store's only writer while it is open. Close it, or use it as a context manager."""

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
        self._turnstile = Turnstile()
        spark.dataSource.register(BufferDataSource)
        self._writer = IndexWriter(
            config.url, config.vector_path, dict(config.options), config.embedding, observer=observer
        )
        # With the endpoints that the indexes of this store remember.
        embedding = self._writer.embedding
        parsed = StoreSpec(config.url, dict(config.options))
        # What is left of an earlier job is read as that could read it.
        remembered = self._writer.remembered_places(config.reading.places)
        places = tuple(dict.fromkeys((*config.reading.places, *remembered)))
        reading = replace(config.reading, chunking=config.chunking, embedding=embedding, parsed=parsed, places=places)
        stages = Stages(spark, reading, embedding)
        self._patience = Patience(
            self._turnstile, lambda: self._stopped, embedding.policy, entropy=entropy, observer=observer
        )
        self._indexer = Indexer(
            self._writer,
            stages,
            self._patience,
            config.chunking,
            config.rounds,
            progress,
            chunking_by_index=config.chunking_by_index,
            clock=clock,
            observer=observer,
        )

    @property
    def writer(self) -> IndexWriter:
        """For what is changed while no query runs: the settings of indexes, and collections that are given up."""
        return self._writer

    @property
    def summary(self) -> IndexingSummary:
        return self._indexer.summary

    def run_available(self) -> IndexingSummary:
        """Take what the queue holds now and what an earlier run left, and return when it is searchable and durable."""
        self._begin(endless=False)
        self._query = self._writing().trigger(availableNow=True).start()
        self.await_end(self._query)
        # Ended and not stopped: what is left is worked on here.
        self._query = None
        with self._turnstile.batch():
            self._indexer.open()
            while not self._indexer.idle:
                self._turnstile.pause(0)
                self._indexer.work()
            self._acknowledge()
            self._indexer.check_models()
        return self.summary

    def start(self) -> StreamingQuery:
        """Take what comes, until the query is stopped. A provider that stays away is waited for."""
        self._begin(endless=True)
        query: StreamingQuery = self._writing().trigger(processingTime=_TRIGGER).start()
        self._query = query
        self._worker = SpareTimeWorker(self._turnstile, self._wants_work, self._work, self._worker_failed)
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
        """End what runs, from any thread: `run_available` raises. The next job goes on.

        A round that is nearly done is waited for: its vectors are paid for. A longer one is given up, and repeated.
        """
        self._turnstile.close()
        wait = _ROUND_GRACE_SECONDS
        while not self._turnstile.drain(wait):
            # Again and again: a round is several jobs of Spark's, and the next one may just have begun.
            self._spark.sparkContext.cancelAllJobs()
            wait = _CANCEL_AGAIN_SECONDS
        query = self._query
        if query is not None and query.isActive:
            query.stop()

    def close(self) -> None:
        """Stop the query and the work between its micro-batches after their round, and release the store."""
        self._turnstile.close()
        if self._query is not None and self._query.isActive:
            self._query.stop()
        if self._worker is not None:
            self._worker.join()
        if self._own_checkpoint is not None:
            self._own_checkpoint.cleanup()
        self._writer.close()

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
        self._patience.endless = endless
        self._acknowledge()

    def _writing(self) -> Any:
        config = self._config
        stream = self._spark.readStream.format("penstock-buffer").option("url", config.url)
        stream = stream.option("maxBatchesPerTrigger", str(config.batches_per_trigger))
        stream = stream.option("maxBytesPerTrigger", str(config.bytes_per_trigger))
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

    def _acknowledge(self) -> None:
        """Take off the queue what the store has. Where a checkpoint is kept, Spark may still ask for it."""
        if self._config.checkpoint is None:
            # Late is no harm: the next run acknowledges it.
            with suppress(Unavailable):
                acknowledge(StoreSpec(self._config.url, dict(self._config.options)), self._writer.position())

    # One micro-batch -------------------------------------------------------------------------------------

    def _micro_batch(self, frame: DataFrame, _: int) -> None:
        try:
            self._check_failure()
            table = frame.select("sequence", "position", "record", "ingestion_time_ms").toArrow()
            records = table.sort_by([("sequence", "ascending"), ("position", "ascending")])
            with self._turnstile.batch():
                self._indexer.open()
                self._work_due()
                sequences: list[Any] = records["sequence"].to_pylist()
                for group in plan_groups(sequences, PLAN_RECORDS_MAX):
                    # As Python objects a group at a time: they take several times the room of the records.
                    self._indexer.take(records.slice(group.start, len(group)).to_pylist())
                    self._work_due()
        except Exception as error:
            # Whoever stops a query cancels what it does: that is no failure.
            self._interrupted = isinstance(error, Closed) or self._stopped
            if isinstance(error, PenstockError) and not self._interrupted:
                # Spark passes it on as text only.
                self._failure = self._failure or error
            raise

    def _work_due(self) -> None:
        """The rounds of a micro-batch, and as many more as bring the backlog below its bounds."""
        while self._indexer.due:
            if self._stopped or self._turnstile.closed:
                # Raised and not returned: Spark must not take events that are not planned for done.
                raise Closed("the indexing query was stopped", "", "start it again: it goes on where it was")
            self._indexer.round()

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # Between micro-batches -------------------------------------------------------------------------------

    @property
    def _stopped(self) -> bool:
        """Whether somebody has stopped the query; what is not done stays pending."""
        return self._query is not None and not self._query.isActive

    def _wants_work(self) -> bool:
        return not self._indexer.idle and not self._stopped and self._failure is None

    def _work(self) -> None:
        self._indexer.open()
        self._indexer.work()

    def _worker_failed(self, error: Exception) -> None:
        """The query ends with what ended the worker: nobody would notice a thread that is gone."""
        if self._failure is None:
            self._failure = error if isinstance(error, PenstockError) else _unforeseen(error)
        if self._query is not None:
            self._query.stop()


def _unforeseen(error: Exception) -> PenstockError:
    if isinstance(error, PySparkException):
        return failure_of(error)
    return PenstockError(
        "work on the backlog ended", f"{type(error).__name__}: {error}", "nothing is lost: run it again"
    )
