"""A folder of documents, a store, and the events that tell of the one to the other: what tests of indexing start from.

Events are numbered by a clock of the shelf's own, so that their order is the order in which they were made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.buffer import ProducerConfig, SyncProducer
from penstock.documents import ChunkingConfig, DeleteNotification, UploadNotification, encode, stamped
from penstock.documents.embedding import EMBEDDED_MODEL, StaticProvider
from penstock.indexing import (
    SOURCE,
    VECTOR_PATH,
    DocumentEntry,
    IndexingConfig,
    IndexingJob,
    IndexingSummary,
    LocalIndexingJob,
    Reading,
    list_entries,
    own_text,
    registry_name,
)
from penstock.objects import open_store
from penstock.observability import SILENT, Observer
from penstock.vector import CollectionName, CollectionReader, VectorStore

__all__ = ["SMALL_CHUNKS", "IndexShelf", "prose"]

T = TypeVar("T")

# So small that a short text has many cells and chunks.
SMALL_CHUNKS: Final = ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=10, cell_bytes=1024)


@dataclass
class IndexShelf:
    """`send` puts events on the queue, `run` indexes what is there, and the rest looks at what came of it."""

    # None for the engine without Spark.
    spark: Any
    folder: Path
    name: CollectionName = field(default_factory=lambda: CollectionName("acme", "handbook", EMBEDDED_MODEL))
    clock: int = 0

    @classmethod
    def holding(cls, folder: Path, documents: Mapping[str, str]) -> IndexShelf:
        """Made in a folder, with documents by their names that are indexed without Spark."""
        (folder / "documents").mkdir()
        made = cls(None, folder)
        made.run(*(made.write(key, content) for key, content in documents.items()))
        return made

    @property
    def documents(self) -> Path:
        return self.folder / "documents"

    @property
    def url(self) -> str:
        return f"file://{self.folder}/store"

    def upload(self, key: str, *, at: int | None = None, metadata: dict[str, Any] | None = None) -> bytes:
        """The event that this file is there, with the version that it has now."""

        async def version() -> str:
            store = await open_store(f"file://{self.documents}", read_only=True)
            try:
                return (await store.head(key)).version
            finally:
                await store.close()

        path = self.documents / key
        etag = asyncio.run(version()) if path.exists() else "gone"
        size = path.stat().st_size if path.exists() else 1
        return encode(UploadNotification(etag=etag, size_bytes=size, metadata=metadata, **self._event(key, at)))

    def delete(self, key: str, *, at: int | None = None) -> bytes:
        return encode(DeleteNotification(**self._event(key, at)))

    def write(self, key: str, content: str | bytes) -> bytes:
        path = self.documents / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return self.upload(key)

    def send(self, *events: bytes) -> None:
        with SyncProducer(self.url, ProducerConfig(flush_interval_seconds=0.0)) as producer:
            producer.produce(list(events)).durable()

    def run(self, *events: bytes, checkpoint: str | None = "checkpoint", **config: Any) -> IndexingSummary:
        if events:
            self.send(*events)
        with self.job(checkpoint=checkpoint, **config) as job:
            return job.run_available()

    def job(
        self,
        *,
        checkpoint: str | None = "checkpoint",
        progress: Callable[[IndexingSummary], None] = lambda _: None,
        observer: Observer = SILENT,
        **config: Any,
    ) -> IndexingJob:
        settings = {"chunking": SMALL_CHUNKS, **config}
        reading = settings.get("reading", Reading())
        settings["reading"] = replace(reading, places=(*reading.places, f"file://{self.documents}"))
        place = None if checkpoint is None else str(self.folder / checkpoint)
        made = IndexingConfig(self.url, place, **settings)
        if self.spark is None:
            return LocalIndexingJob(made, progress=progress, observer=observer)
        from penstock.pipelines import SparkIndexingJob

        return SparkIndexingJob(self.spark, made, progress=progress, observer=observer)

    def search(self, words: str, count: int = 3) -> list[tuple[str, str]]:
        """The documents and passages that answer best."""
        query = StaticProvider().embed_now([words]).rows

        async def ask(vectors: CollectionReader, _: CollectionReader) -> list[tuple[str, str]]:
            found = await vectors.search(query, count, columns=["text", "attributes"])
            return [(row["attributes"]["key"], own_text(row)) for row in found.to_pylist()]

        return self._ask(ask)

    def chunks(self) -> list[str]:
        """The ids of all visible chunks."""

        async def ask(vectors: CollectionReader, _: CollectionReader) -> list[str]:
            pages = [page async for page in vectors.scan(columns=["id"])]
            return sorted(str(name) for page in pages for name in page["id"].to_pylist())

        return self._ask(ask)

    def attributes(self) -> list[dict[str, Any]]:
        """The attributes of all visible chunks, those that have a value, in the order of documents and chunks."""
        return [attributes for attributes, _ in self.passages()]

    def passages(self) -> list[tuple[dict[str, Any], str]]:
        """The same with the chunk's own text."""

        async def ask(vectors: CollectionReader, _: CollectionReader) -> list[tuple[dict[str, Any], str]]:
            pages = [page async for page in vectors.scan(columns=["text", "attributes"])]
            return [(_having(row["attributes"]), own_text(row)) for page in pages for row in page.to_pylist()]

        return sorted(self._ask(ask), key=lambda passage: (passage[0]["key"], passage[0]["seq"]))

    def entries(self) -> dict[str, DocumentEntry]:
        async def ask(_: CollectionReader, registry: CollectionReader) -> list[DocumentEntry]:
            return await list_entries(registry)

        return {entry.key: entry for entry in self._ask(ask)}

    def position(self) -> int | None:
        """The last sequence of the queue whose events are planned."""

        async def ask() -> int | None:
            async with await VectorStore.open_reader(self.url, VECTOR_PATH) as reader:
                return await reader.position(SOURCE)

        return asyncio.run(ask())

    def _ask(self, work: Callable[[CollectionReader, CollectionReader], Awaitable[T]]) -> T:
        async def ask() -> T:
            async with await VectorStore.open_reader(self.url, VECTOR_PATH) as reader:
                registry = registry_name(self.name)
                return await work(
                    await reader.collection(self.name.tenant, self.name.index, self.name.model),
                    await reader.collection(registry.tenant, registry.index, registry.model),
                )

        return asyncio.run(ask())

    def _event(self, key: str, at: int | None) -> dict[str, Any]:
        self.clock += 1
        moment = self.clock if at is None else at
        return {
            "tenant_id": self.name.tenant,
            "index_id": self.name.index,
            "model": self.name.model,
            "bucket": f"file://{self.documents}",
            "key": key,
            "created_at": datetime.fromtimestamp(moment, UTC),
            "sequencer": stamped(moment),
        }


def _having(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def prose(words: str, paragraphs: int) -> str:
    """A text of short paragraphs, no two alike."""
    return "\n\n".join(f"Paragraph {number} tells of {words} and of number {number}." for number in range(paragraphs))
