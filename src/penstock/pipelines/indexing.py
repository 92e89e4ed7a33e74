"""The indexing job: from notifications in the queue to searchable vectors, exactly once, as one streaming query.

A micro-batch plans (which version of which object is to become current), then works in rounds: executors read and
chunk, the driver batches, executors embed, and one write takes the vectors, hidden, together with each document's
progress. A document's last round makes its version current and removes the one before. The last write of a
micro-batch holds its position in the queue; whatever Spark replays up to it is skipped, and what was killed half-way
goes on from the last round. docs/rooms/pipelines.md draws it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.documents import (
    ChunkingConfig,
    DocumentReport,
    DocumentStatus,
    Notification,
    ObjectState,
    decode_notification,
    encode,
)
from penstock.errors import InvalidInput, PenstockError
from penstock.pipelines import embedding as embedding_stage
from penstock.pipelines import reading as reading_stage
from penstock.pipelines.buffer_source import BufferDataSource
from penstock.pipelines.embedding import Embedding, embed_batches
from penstock.pipelines.index_writer import IndexWriter
from penstock.pipelines.planning import RoundLimits, fair_order, plan_events, take_round
from penstock.pipelines.reading import Reading, read_documents
from penstock.pipelines.registry import SOURCE, VECTOR_PATH, DocumentEntry
from penstock.pipelines.rounds import Batched, DocumentReading, Result, batch_round, conclude, readings_of
from penstock.vector import CollectionName

__all__ = ["IndexingConfig", "IndexingJob", "IndexingSummary"]

_TRIGGER: Final = "100 milliseconds"
# Of entries that no event made.
_ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class IndexingConfig:
    """One job: a store with the queue and the vectors, a checkpoint, and how documents are read and embedded."""

    url: str
    checkpoint: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    embedding: Embedding = field(default_factory=Embedding)
    reading: Reading = field(default_factory=Reading)
    rounds: RoundLimits = field(default_factory=RoundLimits)
    batches_per_trigger: int = 100
    vector_path: str = VECTOR_PATH


@dataclass(slots=True)
class IndexingSummary:
    """What a job has done since it was made."""

    documents: int = 0
    chunks: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    deleted: int = 0
    unchanged: int = 0
    ignored: int = 0
    refused: int = 0
    # (key, status, reason) of documents that did not become searchable.
    set_aside: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, key: str, report: DocumentReport) -> None:
        if report.status in (DocumentStatus.INDEXED, DocumentStatus.EMPTY):
            self.documents += 1
            self.chunks += report.chunks
            self.tokens += report.tokens
            self.cost_usd += report.cost_usd
        else:
            self.set_aside.append((key, report.status.value, report.reason or ""))


class IndexingJob:
    """Runs on the driver, and is the store's only writer while it is open. Close it, or use it as a context manager."""

    def __init__(
        self,
        spark: SparkSession,
        config: IndexingConfig,
        *,
        progress: Callable[[IndexingSummary], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._config = config
        self._progress = progress
        self.summary = IndexingSummary()
        self._failure: PenstockError | None = None
        self._reading = replace(
            config.reading, chunking=config.chunking, embedding=config.embedding, cells_max=config.rounds.cells_max
        )
        spark.dataSource.register(BufferDataSource)
        self._writer = IndexWriter(config.url, config.vector_path, dict(config.options), config.embedding)

    def run_available(self) -> IndexingSummary:
        """Take what the queue holds now, and return when it is searchable and durable."""
        self.await_end(self._writing().trigger(availableNow=True).start())
        return self.summary

    def start(self) -> StreamingQuery:
        """Take what comes, until the query is stopped."""
        query: StreamingQuery = self._writing().trigger(processingTime=_TRIGGER).start()
        return query

    def await_end(self, query: StreamingQuery) -> None:
        """Wait until a query of this job ends; what ended it is raised as one of the project's own errors."""
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise self._failure or _failure_of(error) from error

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _writing(self) -> Any:
        config = self._config
        stream = self._spark.readStream.format("penstock-buffer").option("url", config.url)
        stream = stream.option("maxBatchesPerTrigger", str(config.batches_per_trigger))
        for name, value in config.options.items():
            stream = stream.option(f"store.{name}", str(value))
        writing = stream.load().writeStream.foreachBatch(self._micro_batch)
        return writing.option("checkpointLocation", config.checkpoint)

    # One micro-batch -------------------------------------------------------------------------------------

    def _micro_batch(self, frame: DataFrame, _: int) -> None:
        try:
            self._take(frame)
        except PenstockError as error:
            # Spark passes it on as text only.
            self._failure = error
            raise

    def _take(self, frame: DataFrame) -> None:
        table = frame.select("sequence", "position", "record", "ingestion_time_ms").toArrow()
        done = self._writer.position(SOURCE)
        ordered = table.sort_by([("sequence", "ascending"), ("position", "ascending")]).to_pylist()
        rows = [row for row in ordered if row["sequence"] > done]
        if not rows:
            return
        # From the queue, and so the same in every replay.
        now_ms = max(row["ingestion_time_ms"] or 0 for row in rows)
        waiting = self._plan(rows)
        while any(waiting.values()):
            waiting = self._round(waiting, now_ms)
            self._progress(self.summary)
        self._writer.write_position(SOURCE, rows[-1]["sequence"])
        self._progress(self.summary)

    def _plan(self, rows: Sequence[Mapping[str, Any]]) -> dict[CollectionName, list[DocumentEntry]]:
        """Decide on the events and write the decisions; the documents that are to be read, by collection."""
        events, refused = _decoded(rows, self._config.embedding)
        if refused:
            self._writer.write_refused(refused)
            self.summary.refused += len(refused)
        waiting: dict[CollectionName, list[DocumentEntry]] = {}
        for name, named in events.items():
            plan = plan_events(self._writer.entries(name, named), named, self._fingerprint(name))
            self._writer.write_plan(name, plan)
            self.summary.deleted += plan.deleted
            self.summary.unchanged += plan.unchanged
            self.summary.ignored += plan.ignored
            waiting[name] = [entry for entry in plan.entries.values() if entry.pending]
        return waiting

    def _round(
        self, waiting: Mapping[CollectionName, list[DocumentEntry]], now_ms: int
    ) -> dict[CollectionName, list[DocumentEntry]]:
        """Read, batch, embed and write the next part of some documents; what is still waiting."""
        tagged = fair_order([[(name, entry) for entry in entries] for name, entries in waiting.items()])
        taken = take_round([entry for _, entry in tagged], self._config.rounds, self._config.chunking.cell_bytes)
        chosen = tagged[: len(taken)]
        readings = self._read(taken)
        batched: dict[CollectionName, Batched] = {}
        for name in dict.fromkeys(name for name, _ in chosen):
            entries = [entry for found, entry in chosen if found == name]
            limits = self._config.embedding.profile_of(name.model).batcher_limits()
            batched[name] = batch_round(name, entries, readings, self._writer.count(name), limits, now_ms)
        embedded = self._embed(batched)
        results = [
            (name, conclude(entry, readings[entry.object_key], batched[name], embedded, self._fingerprint(name)))
            for name, entry in chosen
        ]
        self._writer.write_round(results, {name: one.count for name, one in batched.items()})
        return self._still(tagged[len(taken) :], results)

    def _fingerprint(self, name: CollectionName) -> str:
        return self._config.embedding.chunking_of(name.model, self._config.chunking).fingerprint

    def _still(
        self,
        untouched: Sequence[tuple[CollectionName, DocumentEntry]],
        results: Sequence[tuple[CollectionName, Result]],
    ) -> dict[CollectionName, list[DocumentEntry]]:
        waiting: dict[CollectionName, list[DocumentEntry]] = {}
        for name, result in results:
            if result.entry.pending is not None:
                waiting.setdefault(name, []).append(result.entry)
            elif result.entry.report is not None:
                self.summary.add(result.entry.key, result.entry.report)
        for name, entry in untouched:
            waiting.setdefault(name, []).append(entry)
        return waiting

    # Executors -------------------------------------------------------------------------------------------

    def _read(self, entries: Sequence[DocumentEntry]) -> dict[str, DocumentReading]:
        rows = []
        for entry in entries:
            assert entry.pending is not None
            progress = entry.pending.progress
            rows.append((entry.object_key, encode(entry.pending.upload), progress.next_seq, progress.next_byte_start))
        columns = [list(column) for column in zip(*rows, strict=True)]
        table = pa.table(dict(zip(reading_stage.INPUT_SCHEMA.names, columns, strict=True)), reading_stage.INPUT_SCHEMA)
        read = self._spark.createDataFrame(table).mapInArrow(
            partial(read_documents, self._reading), reading_stage.OUTPUT_COLUMNS
        )
        return readings_of(read.toArrow().to_pylist())

    def _embed(self, batched: Mapping[CollectionName, Batched]) -> dict[str, dict[str, Any]]:
        requests = [encode(request) for one in batched.values() for request in one.requests]
        if not requests:
            return {}
        table = pa.table({"request": requests}, embedding_stage.REQUEST_SCHEMA)
        embedded = self._spark.createDataFrame(table).mapInArrow(
            partial(embed_batches, self._config.embedding), embedding_stage.OUTPUT_COLUMNS
        )
        return {row["chunk_id"]: row for row in embedded.toArrow().to_pylist()}


def _decoded(
    rows: Sequence[Mapping[str, Any]], embedding: Embedding
) -> tuple[dict[CollectionName, list[Notification]], list[DocumentEntry]]:
    """The events by collection, in their order, and an entry for every record that is none."""
    events: dict[CollectionName, list[Notification]] = {}
    refused: list[DocumentEntry] = []
    for row in rows:
        try:
            event = decode_notification(row["record"])
            name = CollectionName(event.tenant_id, event.index_id, event.model)
            embedding.profile_of(event.model)
        except InvalidInput as error:
            refused.append(_refusal(row, error))
            continue
        events.setdefault(name, []).append(event)
    return events, refused


def _failure_of(error: StreamingQueryException) -> PenstockError:
    """A task's own error is the last line of what it printed that names one."""
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if line.startswith("penstock.errors.")]
    why = named[-1].removeprefix("penstock.errors.") if named else next(iter(lines), "")
    return PenstockError("the indexing query ended", why, "nothing is lost: run it again once the cause is gone")


def _refusal(row: Mapping[str, Any], error: InvalidInput) -> DocumentEntry:
    """Keyed by its place in the queue, so that a replay writes the same entry again."""
    place = f"{row['sequence']}/{row['position']}"
    identity = hashlib.sha256(row["record"]).hexdigest()
    report = DocumentReport(doc_id=identity, status=DocumentStatus.QUARANTINED, reason=str(error))
    return DocumentEntry(
        object_key=f"notification:{place}",
        bucket="",
        key=f"notification {place}",
        state=ObjectState(at=_ORIGIN),
        report=report,
    )
