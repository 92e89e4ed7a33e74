"""A queue and a store that Penstock's jobs are measured on, whichever engine runs them; nothing here loads Spark.

A run's time begins before its notifications are put on the queue and ends when all is durable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from _indexing_work import Figures, change, documents, processor_seconds_by_process, vector_of
from penstock.buffer import ProducerConfig, SyncProducer
from penstock.documents import UploadNotification, encode
from penstock.documents.embedding import EMBEDDED_MODEL, ModelProfile, profile_of
from penstock.documents.embedding.provider import Vectors
from penstock.documents.sequencers import stamped
from penstock.indexing import VECTOR_PATH, Embedding, IndexingConfig, Reading
from penstock.indexing.stages.embedding import IndexKey, ModelAccess
from penstock.objects import ObjectMeta, open_store
from penstock.vector import CollectionName, VectorStore

__all__ = ["NAME", "Engine", "IndexShelf", "finished", "listed", "measure_engine", "text_of", "warm_up"]

NAME = CollectionName("acme", "handbook", EMBEDDED_MODEL)
WARM_DOCUMENTS = 20
# Opens the job of an engine.
Engine: TypeAlias = Callable[[IndexingConfig], Any]


# The embedding function, wherever it runs ------------------------------------------------------------


class HashProvider:
    @property
    def profile(self) -> ModelProfile:
        return profile_of(EMBEDDED_MODEL)

    async def embed(self, texts: Sequence[str], *, idempotency_key: str) -> Vectors:
        return Vectors(np.stack([vector_of(text) for text in texts]))

    async def close(self) -> None:
        """Nothing is held."""


class HashAccess(ModelAccess):
    def provider(self, timeout_seconds: float) -> HashProvider:
        return HashProvider()


class HashEmbedding(Embedding):
    def access_of(self, model: str, index: IndexKey) -> HashAccess:
        return HashAccess(model, self.endpoint_of(model, index), self.profile_of(model, index))


# A store, its queue, and a job on both -----------------------------------------------------------


class IndexShelf:
    """A folder of documents and the store that they are indexed into."""

    def __init__(self, engine: Engine, place: Path, folder: Path) -> None:
        self._engine = engine
        self._place = place
        self.folder = folder
        self.url = f"file://{place}/store"

    def job(self) -> Any:
        reading = Reading(places=(f"file://{self.folder}",))
        config = IndexingConfig(self.url, str(self._place / "checkpoint"), embedding=HashEmbedding(), reading=reading)
        return self._engine(config)

    def notifications(self) -> list[bytes]:
        """One for each document as it is now; what a bucket sends of itself is in nobody's time."""
        return [self.notification(meta) for meta in asyncio.run(listed(self.folder))]

    def notification(self, meta: ObjectMeta) -> bytes:
        upload = UploadNotification(
            tenant_id=NAME.tenant,
            index_id=NAME.index,
            model=NAME.model,
            bucket=f"file://{self.folder}",
            key=meta.key,
            etag=meta.version,
            size_bytes=meta.size,
            created_at=datetime.now(UTC),
            sequencer=stamped(time.time_ns()),
        )
        return encode(upload)

    def send(self, records: list[bytes]) -> None:
        with SyncProducer(self.url, ProducerConfig(flush_interval_seconds=0.0)) as producer:
            producer.produce(records).durable()

    def take(self) -> tuple[float, int]:
        """Notify all documents and index what is new of them: seconds, and chunks."""
        records = self.notifications()
        began = time.perf_counter()
        self.send(records)
        with self.job() as job:
            chunks = job.run_available().chunks
        return time.perf_counter() - began, chunks

    def check(self, chunks: int) -> None:
        """Everything is there, for a reader too."""
        assert chunks == asyncio.run(self._rows()) > 0

    async def _rows(self) -> int:
        async with await VectorStore.open(self.url, VECTOR_PATH) as store:
            return sum(stats.rows for stats in await store.stats() if stats.name == NAME)


async def listed(folder: Path) -> list[ObjectMeta]:
    store = await open_store(f"file://{folder}", read_only=True)
    try:
        return [meta async for page in store.list() for meta in page]
    finally:
        await store.close()


def measure_engine(engine: Engine, place: Path, folder: Path) -> Figures:
    """A first run, a second one, and one with some documents changed; processor time of the first, by kind of process."""
    shelf = IndexShelf(engine, place, folder)
    before = processor_seconds_by_process()
    first, chunks = shelf.take()
    spent = sum(processor_seconds_by_process().values()) - sum(before.values())
    return finished(shelf, chunks, first, spent)


def finished(shelf: IndexShelf, chunks: int, first: float, spent: float) -> Figures:
    """The figures of a shelf whose first run is done."""
    shelf.check(chunks)
    again, _ = shelf.take()
    megabytes = sum(path.stat().st_size for path in documents(shelf.folder)) / 1e6
    change(shelf.folder)
    changed, _ = shelf.take()
    return Figures(len(documents(shelf.folder)), chunks, megabytes, first, again, changed, spent)


def warm_up(engine: Engine, place: Path) -> float:
    """Seconds of the first job of a process, with few documents: workers and parsers start, classes load."""
    folder = place / "documents"
    folder.mkdir(parents=True)
    for number in range(WARM_DOCUMENTS):
        # Some of each, so that every worker has its parsers: they load once, like a vocabulary.
        kind = "html" if number % 5 < 2 else "txt"
        (folder / f"{number}.{kind}").write_text(text_of(str(number)))
    shelf = IndexShelf(engine, place, folder)
    cold, _ = shelf.take()
    # Again, and from the start: what was compiled meanwhile is used from now on.
    IndexShelf(engine, place / "again", folder).take()
    return cold


def text_of(key: str) -> str:
    return f"The document {key} is about itself and about nothing else. " * 10
