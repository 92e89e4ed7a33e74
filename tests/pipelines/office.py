"""An indexer on a real store whose stages are played by the test: rounds without Spark, parsers or a provider."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.documents import BatchRequest, ChunkingConfig, DocumentReport, UploadNotification, encode
from penstock.documents.contracts import Chunking
from penstock.documents.embedding import EMBEDDED_MODEL, Later
from penstock.documents.sequencers import stamped
from penstock.pipelines.backlog import Share
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.index_writer import IndexWriter
from penstock.pipelines.indexer import Indexer
from penstock.pipelines.patience import Patience
from penstock.pipelines.planning import RoundLimits
from penstock.pipelines.reading import Outcome
from penstock.pipelines.rounds import DocumentReading
from penstock.pipelines.stages import Reply
from penstock.pipelines.turnstile import Turnstile
from penstock.testing import ManualClock, RecordingObserver
from penstock.vector import CollectionName

NOTES = CollectionName("acme", "handbook", EMBEDDED_MODEL)


class PlayedStages:
    """Reads a chunk of every document but those that do not answer, and embeds all models but those that are away."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.away: dict[str, Later] = {}
        # Called before a call is answered.
        self.on_embed: Callable[[], None] = lambda: None
        # The keys that were read, one list a call; the texts of every batch that was sent, each time it was.
        self.reads: list[list[str]] = []
        self.sent: list[tuple[str, tuple[str, ...]]] = []
        # The models that were on trial in each call.
        self.trials: list[frozenset[str]] = []

    def read(self, shares: Sequence[Share], _chunkings: Sequence[ChunkingConfig]) -> list[DocumentReading]:
        self.reads.append([share.entry.key for share in shares])
        return [self._reading(share.entry.key) for share in shares]

    def embed(
        self, requests: Mapping[int, BatchRequest], *, brisk: bool = False, trials: frozenset[str] = frozenset()
    ) -> Reply:
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
        return Reply(table, away, 0)

    def _reading(self, key: str) -> DocumentReading:
        if key in self.silent:
            return DocumentReading(outcome=Outcome.AWAY, detail=("no answer",))
        chunk: dict[str, Any] = {
            "seq": 0,
            "start": 0,
            "core_start": 0,
            "end": 9,
            "tokens": 3,
            "text": f"words of {key}",
        }
        return DocumentReading([chunk], Outcome.END, next_byte_start=9, text_bytes=9, version="e")


class Office:
    """A store in a folder, and one indexer after another on it."""

    def __init__(self, folder: Path, *, embedding: Embedding | None = None, limits: RoundLimits | None = None) -> None:
        self.url = f"file://{folder}/store"
        self.embedding = embedding or Embedding()
        self.limits = limits or RoundLimits()
        # What the job's operator wants new indexes to be cut into, by tenant and index.
        self.cuts: dict[tuple[str, str], ChunkingConfig] = {}
        self.stages = PlayedStages()
        self.clock, self.observer = ManualClock(), RecordingObserver()
        self.sequence = 0

    @contextmanager
    def indexer(self, *, endless: bool = False) -> Iterator[Indexer]:
        writer = IndexWriter(self.url, "vectors", {}, self.embedding, observer=self.observer)
        patience = Patience(Turnstile(), lambda: False, self.embedding.policy, observer=self.observer)
        patience.endless = endless
        stages: Any = self.stages
        try:
            made = Indexer(
                writer,
                stages,
                patience,
                ChunkingConfig(),
                self.limits,
                lambda _: None,
                chunking_by_index=self.cuts,
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
    ) -> list[Any]:
        """Records of one batch of the queue: these documents are there."""
        self.sequence += 1
        return [
            {
                "sequence": self.sequence,
                "position": position,
                "ingestion_time_ms": 1_000_000,
                "record": encode(
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
            }
            for position, key in enumerate(keys)
        ]

    def reports(self, indexer: Indexer, name: CollectionName = NOTES) -> dict[str, DocumentReport | None]:
        """What became of the documents of a collection; None while one is not done."""
        entries = indexer._writer.all_entries(name).values()
        return {entry.key: None if entry.pending else entry.report for entry in entries}
