"""What the tests of failures and of bad input share: a store, documents to notify, and what became of them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.objects.bucket_server import BucketServer

from penstock.buffer import ProducerConfig, SyncProducer
from penstock.documents import ChunkingConfig, DeleteNotification, DocumentReport, UploadNotification, encode
from penstock.documents.embedding import EMBEDDED_MODEL, DispatchPolicy, ModelProfile
from penstock.documents.sequencers import stamped
from penstock.errors import NotFound
from penstock.indexing.job.config import IndexingConfig
from penstock.indexing.job.local import LocalIndexingJob
from penstock.indexing.job.port import IndexingJob
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.job.writer import REFUSED
from penstock.indexing.registry.entries import DocumentEntry, list_entries, registry_name
from penstock.indexing.rounds.leads import own_text
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.reading import Reading
from penstock.objects import open_store
from penstock.vector import CollectionName, VectorReader, VectorStore

SMALL = ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=10, cell_bytes=1024)
DIMENSIONS = 32
# Of the embedding server; six texts a request, so that a document makes several.
PROFILE = ModelProfile(
    name="tested-model", tokens_per_request=700, items_per_request=6, tokens_per_input=400, dimensions=DIMENSIONS
)


@dataclass
class Row:
    key: str
    seq: int
    text: str
    # Empty where the model gave none.
    vector: tuple[float, ...]


@dataclass
class Desk:
    """Sends events and runs the job. Documents lie in a folder, or in the bucket of a server that can misbehave."""

    # None for the engine without Spark.
    spark: Any
    folder: Path
    model: str = EMBEDDED_MODEL
    server: BucketServer | None = None
    embedding: Embedding = field(default_factory=Embedding)
    chunking: ChunkingConfig = SMALL
    moment: int = 0

    @property
    def url(self) -> str:
        return f"file://{self.folder}/store"

    @property
    def documents(self) -> Path:
        return self.folder / "documents"

    # Events ----------------------------------------------------------------------------------------------

    def write(self, key: str, content: str | bytes, **event: Any) -> bytes:
        """Put a document where it is read from; the event that tells of it."""
        data = content.encode() if isinstance(content, str) else content
        if self.server is not None:
            self.server.objects[key] = (data, 1)
        else:
            path = self.documents / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return self.upload(key, **event)

    def upload(self, key: str, *, etag: str | None = None, size: int | None = None, **event: Any) -> bytes:
        """The event that a document is there, with the version that it has now."""
        found = self._found(key) if etag is None else (etag, size or 1)
        content_type, metadata = event.pop("content_type", None), event.pop("metadata", None)
        return encode(
            UploadNotification(
                etag=found[0] or None,
                size_bytes=found[1],
                content_type=content_type,
                metadata=metadata,
                **self._event(key, **event),
            )
        )

    def delete(self, key: str, **event: Any) -> bytes:
        return encode(DeleteNotification(**self._event(key, **event)))

    def _event(
        self, key: str, *, at: int | None = None, tenant: str = "acme", bucket: str | None = None
    ) -> dict[str, Any]:
        self.moment += 1
        moment = self.moment if at is None else at
        return {
            "tenant_id": tenant,
            "index_id": "handbook",
            "model": self.model,
            "bucket": bucket or self._bucket,
            "key": key,
            "created_at": datetime.fromtimestamp(moment, UTC),
            "sequencer": stamped(moment),
        }

    @property
    def _bucket(self) -> str:
        return "bucket" if self.server is not None else f"file://{self.documents}"

    def _found(self, key: str) -> tuple[str, int]:
        if self.server is not None:
            data = self.server.objects[key][0]
            return hashlib.md5(data).hexdigest(), len(data)

        async def head() -> tuple[str, int]:
            store = await open_store(f"file://{self.documents}", read_only=True)
            try:
                meta = await store.head(key)
                return meta.version, meta.size
            finally:
                await store.close()

        return asyncio.run(head())

    # The job ---------------------------------------------------------------------------------------------

    def send(self, *events: bytes) -> None:
        with SyncProducer(self.url, ProducerConfig(flush_interval_seconds=0.0)) as producer:
            producer.produce(list(events)).durable()

    def run(
        self, *events: bytes, progress: Callable[[IndexingSummary], None] = lambda _: None, **config: Any
    ) -> IndexingSummary:
        """Take what the queue holds, and `events`, which are sent before as one batch of it."""
        if events:
            self.send(*events)
        with self.job(self.config(**config), progress=progress) as job:
            return job.run_available()

    def config(self, **config: Any) -> IndexingConfig:
        if self.server is not None:
            config.setdefault("reading", Reading(options=self.server.s3_options))
        reading = config.get("reading", Reading())
        config["reading"] = replace(reading, places=(*reading.places, f"file://{self.documents}"))
        chosen = {"chunking": self.chunking, "embedding": self.embedding, **config}
        return IndexingConfig(self.url, str(self.folder / "checkpoint"), **chosen)

    def job(self, config: IndexingConfig, **how: Any) -> IndexingJob:
        if self.spark is None:
            return LocalIndexingJob(config, **how)
        from penstock.pipelines.indexing.job import SparkIndexingJob

        return SparkIndexingJob(self.spark, config, **how)

    # What became of it -----------------------------------------------------------------------------------

    def rows(self, tenant: str = "acme") -> list[Row]:
        """All that is searchable, by document and place."""

        async def read(reader: VectorReader) -> list[Row]:
            collection = await reader.collection(tenant, "handbook", self.model)
            return [
                Row(row["attributes"]["key"], row["attributes"]["seq"], own_text(row), tuple(row["vector"] or ()))
                async for page in collection.scan(columns=["text", "attributes", "vector"])
                for row in page.to_pylist()
            ]

        return sorted(self._ask(read), key=lambda row: (row.key, row.seq))

    def attributes(self, tenant: str = "acme") -> list[dict[str, Any]]:
        """The attributes of all rows, by document and place."""

        async def read(reader: VectorReader) -> list[dict[str, Any]]:
            collection = await reader.collection(tenant, "handbook", self.model)
            return [
                dict(row["attributes"])
                async for page in collection.scan(columns=["attributes"])
                for row in page.to_pylist()
            ]

        return sorted(self._ask(read), key=lambda row: (row["key"], row["seq"]))

    def texts(self, key: str, tenant: str = "acme") -> list[str]:
        return [row.text for row in self.rows(tenant) if row.key == key]

    def entries(self, tenant: str = "acme") -> dict[str, DocumentEntry]:
        name = registry_name(CollectionName(tenant, "handbook", self.model))
        return {entry.key: entry for entry in self._entries(name)}

    def report(self, key: str, tenant: str = "acme") -> DocumentReport:
        report = self.entries(tenant)[key].report
        assert report is not None
        return report

    def refused(self) -> list[str]:
        """Why records of the queue that are no notifications were set aside."""
        reports = [entry.report for entry in self._entries(registry_name(REFUSED))]
        return [str(report.reason) for report in reports if report]

    def _entries(self, name: CollectionName) -> list[DocumentEntry]:
        async def read(reader: VectorReader) -> list[DocumentEntry]:
            try:
                return await list_entries(await reader.collection(name.tenant, name.index, name.model))
            except NotFound:
                return []

        found: list[DocumentEntry] = self._ask(read)
        return found

    def _ask(self, work: Callable[[VectorReader], Any]) -> Any:
        async def ask() -> Any:
            async with await VectorStore.open_reader(self.url, "vectors") as reader:
                return await work(reader)

        return asyncio.run(ask())


def served(url: str) -> Embedding:
    """The embedding server at `url`, asked with short pauses."""
    policy = DispatchPolicy(pause_seconds=0.02, pause_seconds_max=0.2)
    return Embedding(url, profile=PROFILE, policy=policy, timeout_seconds=5.0)


def prose(words: str, paragraphs: int) -> str:
    return "\n\n".join(f"Paragraph {number} tells of {words}, and of {number * 37}." for number in range(paragraphs))
