"""An indexer on a real store whose stages are played by the test: rounds without Spark, parsers or a provider."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from penstock.documents import BatchRequest, Chunk, ChunkingConfig, DocumentReport, UploadNotification, encode
from penstock.documents.contracts import Chunking
from penstock.documents.embedding import EMBEDDED_MODEL, Later
from penstock.documents.sequencers import stamped
from penstock.indexing.job.background import ReadingAhead, ReadingBeside
from penstock.indexing.job.budget import EmbeddingBudget
from penstock.indexing.job.indexer import Indexer
from penstock.indexing.job.patience import Patience
from penstock.indexing.job.turnstile import Turnstile
from penstock.indexing.job.writer import IndexWriter
from penstock.indexing.planning.events import QueueRecord
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.port import EmbeddingReply
from penstock.indexing.stages.readings import DocumentReading, ReadOutcome, ReadRequest
from penstock.testing import ManualClock, RecordingObserver
from penstock.vector import CollectionName

NOTES = CollectionName("acme", "handbook", EMBEDDED_MODEL)


class PlayedStages:
    """Reads a chunk of every document but those that do not answer, and embeds all models but those that are away."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        # Take longer than others wait.
        self.slow: set[str] = set()
        self.away: dict[str, Later] = {}
        # Called before a call is answered.
        self.on_embed: Callable[[], None] = lambda: None
        # The keys that were read, one list a call; the texts of every batch that was sent, each time it was.
        self.reads: list[list[str]] = []
        self.sent: list[tuple[str, tuple[str, ...]]] = []
        # The models that were on trial in each call.
        self.trials: list[frozenset[str]] = []

    def read(self, asked: Sequence[ReadRequest]) -> list[DocumentReading]:
        self.reads.append([request.upload.key for request in asked])
        late = DocumentReading(outcome=ReadOutcome.APART, detail=("it takes long",))
        return [
            late if request.upload.key in self.slow and not request.apart else self._reading(request.upload.key)
            for request in asked
        ]

    @property
    def answers_beside(self) -> bool:
        return True

    def cancel(self) -> None:
        """Nothing runs for long here."""

    def close(self) -> None:
        """Nothing is held."""

    def embed(
        self, requests: Mapping[int, BatchRequest], *, brisk: bool = False, trials: frozenset[str] = frozenset()
    ) -> EmbeddingReply:
        self.trials.append(trials)
        self.sent += [(one.batch_id, tuple(item.text for item in one.inputs)) for one in requests.values()]
        self.on_embed()
        away = {place: self.away[one.model] for place, one in requests.items() if one.model in self.away}
        items = [(place, item) for place, one in requests.items() if place not in away for item in one.inputs]
        vector = [1.0] + [0.0] * 255
        table = pa.table(
            {
                "request": pa.array([place for place, _ in items], pa.int64()),
                "chunk_id": pa.array([item.chunk_id for _, item in items], pa.string()),
                "vector": pa.array([vector for _ in items], pa.list_(pa.float32())),
                "cost_usd": pa.array([0.0] * len(items), pa.float64()),
                "reason": pa.nulls(len(items), pa.string()),
            }
        )
        return EmbeddingReply(table, away, 0)

    def _reading(self, key: str) -> DocumentReading:
        if key in self.silent:
            return DocumentReading(outcome=ReadOutcome.AWAY, detail=("no answer",))
        return DocumentReading(
            [Chunk(0, 0, 0, 9, 3, f"words of {key}")], ReadOutcome.END, next_byte_start=9, text_bytes=9, version="e"
        )


class Office:
    """A store in a folder, and one indexer after another on it."""

    def __init__(self, folder: Path, *, embedding: Embedding | None = None, limits: RoundLimits | None = None) -> None:
        self.url = f"file://{folder}/store"
        self.embedding = embedding or Embedding()
        self.limits = limits or RoundLimits()
        # What the job's operator wants new indexes to be cut into, by tenant and index.
        self.cuts: dict[tuple[str, str], ChunkingConfig] = {}
        self.stages = PlayedStages()
        self.beside: ReadingBeside | None = None
        self.ahead: ReadingAhead | None = None
        self.budget = EmbeddingBudget()
        self.clock, self.observer = ManualClock(), RecordingObserver()
        self.sequence = 0

    @contextmanager
    def indexer(self, *, endless: bool = False) -> Iterator[Indexer]:
        writer = IndexWriter(self.url, "vectors", {}, self.embedding, observer=self.observer)
        patience = Patience(Turnstile(), lambda: False, self.embedding.policy, observer=self.observer)
        patience.endless = endless
        try:
            made = Indexer(
                writer,
                self.stages,
                patience,
                ChunkingConfig(),
                self.limits,
                lambda _: None,
                chunking_by_index=self.cuts,
                beside=self.beside,
                ahead=self.ahead,
                budget=self.budget,
                clock=self.clock,
                observer=self.observer,
            )
            made.open()
            yield made
        finally:
            writer.close()

    def rows(
        self,
        *keys: str,
        bucket: str = "b",
        tenant: str = "acme",
        model: str = EMBEDDED_MODEL,
        chunking: Chunking | None = None,
    ) -> list[QueueRecord]:
        """Records of one batch of the queue: these documents are there."""
        self.sequence += 1
        return [
            QueueRecord(
                sequence=self.sequence,
                position=position,
                ingestion_time_ms=1_000_000,
                record=encode(
                    UploadNotification(
                        tenant_id=tenant,
                        index_id="handbook",
                        model=model,
                        bucket=bucket,
                        key=key,
                        etag=hashlib.sha256(f"{key}{self.sequence}".encode()).hexdigest(),
                        size_bytes=9,
                        chunking=chunking,
                        created_at=datetime(2026, 1, 1, tzinfo=UTC),
                        sequencer=stamped(self.sequence),
                    )
                ),
            )
            for position, key in enumerate(keys)
        ]

    def reports(self, indexer: Indexer, name: CollectionName = NOTES) -> dict[str, DocumentReport | None]:
        """What became of the documents of a collection; None while one is not done."""
        entries = indexer._writer.all_entries(name).values()
        return {entry.key: None if entry.pending else entry.report for entry in entries}
