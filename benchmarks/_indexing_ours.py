"""Penstock's side of `indexing.py`: a job on a queue and a store, watched by the clock from outside.

A run's time begins before its notifications are put on the queue and ends when all is durable. Stages are seen by
watching Spark's jobs and the store's writer, so that nothing in the job serves the benchmark.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from _indexing_work import Figures, change, documents, processor_seconds_by_process, vector_of
from penstock.buffer import ProducerConfig, SyncProducer
from penstock.documents import UploadNotification, encode
from penstock.documents.embedding import EMBEDDED_MODEL, ModelProfile, profile_of
from penstock.documents.embedding.provider import Vectors
from penstock.documents.sequencers import stamped
from penstock.indexing import VECTOR_PATH, Embedding, IndexingConfig, IndexWriter, Reading
from penstock.indexing.stages.embedding import IndexKey, ModelAccess
from penstock.objects import ObjectMeta, open_store
from penstock.pipelines import SparkIndexingJob
from penstock.vector import CollectionName, CollectionReader, VectorConfig, VectorStore

__all__ = ["FOLLOWERS", "IndexShelf", "Stages", "measure_jobs", "measure_latency", "measure_ours", "warm_up"]

NAME = CollectionName("acme", "handbook", EMBEDDED_MODEL)
# One that looks often, and one as it comes.
FOLLOWERS = {"a follower at 0.1 s": VectorConfig(staleness_seconds=0.1), "a follower by default": VectorConfig()}
SECONDS_MAX = 600.0
WARM_DOCUMENTS = 20
JOBS_MEASURED = 20
IDLE_MEASURED = 8


# The embedding function, on executors ------------------------------------------------------------


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

    def __init__(self, spark: SparkSession, place: Path, folder: Path) -> None:
        self._spark = spark
        self._place = place
        self.folder = folder
        self.url = f"file://{place}/store"

    def job(self) -> SparkIndexingJob:
        reading = Reading(places=(f"file://{self.folder}",))
        config = IndexingConfig(self.url, str(self._place / "checkpoint"), embedding=HashEmbedding(), reading=reading)
        return SparkIndexingJob(self._spark, config)

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


def measure_ours(spark: SparkSession, place: Path, folder: Path, stages: Stages) -> Figures:
    shelf = IndexShelf(spark, place, folder)
    before = processor_seconds_by_process()
    with stages.watching():
        first, chunks = shelf.take()
    stages.processors = {kind: spent - before[kind] for kind, spent in processor_seconds_by_process().items()}
    shelf.check(chunks)
    again, _ = shelf.take()
    megabytes = sum(path.stat().st_size for path in documents(folder)) / 1e6
    change(folder)
    changed, _ = shelf.take()
    spent = sum(stages.processors.values())
    return Figures(len(documents(folder)), chunks, megabytes, first, again, changed, spent)


def warm_up(spark: SparkSession, place: Path) -> float:
    """Seconds of the first job of a session, with few documents: workers and parsers start, classes load."""
    folder = place / "documents"
    folder.mkdir(parents=True)
    for number in range(WARM_DOCUMENTS):
        # Some of each, so that every worker has its parsers: they load once, like a vocabulary.
        kind = "html" if number % 5 < 2 else "txt"
        (folder / f"{number}.{kind}").write_text(text_of(str(number)))
    shelf = IndexShelf(spark, place, folder)
    cold, _ = shelf.take()
    # Again, and from the start: what was compiled meanwhile is used from now on.
    IndexShelf(spark, place / "again", folder).take()
    return cold


# Where the time goes -----------------------------------------------------------------------------


class Stages:
    """Seconds on the driver by stage, seen from outside: Spark's jobs by what they return, the store's writer by call."""

    JOBS = {"record": "job: the queue's records", "outcome": "job: read and chunk", "vector": "job: embed"}

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._micro_batches = 0.0
        self._total = 0.0
        # The processor's seconds, by what a process is.
        self.processors: dict[str, float] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        watched: list[tuple[type, str, Callable[..., Any]]] = [
            (DataFrame, "toArrow", self._job(DataFrame.toArrow)),
            (DataStreamWriter, "foreachBatch", self._foreach(DataStreamWriter.foreachBatch)),
        ]
        calls = [name for name in vars(IndexWriter) if not name.startswith("_") and name != "close"]
        watched += [(IndexWriter, name, self._call(name, getattr(IndexWriter, name))) for name in calls]
        kept = [(owner, name, getattr(owner, name)) for owner, name, _ in watched]
        for owner, name, replaced in watched:
            setattr(owner, name, replaced)
        began = time.perf_counter()
        try:
            yield
        finally:
            self._total += time.perf_counter() - began
            for owner, name, original in kept:
                setattr(owner, name, original)

    def table(self) -> list[tuple[str, float]]:
        """Shares of the whole, the largest first; what nothing else explains is the driver's own or Spark's."""
        own = self._micro_batches - sum(self._seconds.values())
        rest = {"driver: plan, batch, convert": own, "around the micro-batches": self._total - self._micro_batches}
        stages = {**self._seconds, **rest}
        return sorted(((stage, seconds / self._total) for stage, seconds in stages.items()), key=lambda one: -one[1])

    def _add(self, stage: str, began: float) -> None:
        self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - began

    def _job(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def job(frame: Any) -> Any:
            began = time.perf_counter()
            found = original(frame)
            names = [stage for column, stage in self.JOBS.items() if column in found.column_names]
            self._add(names[0] if names else "job: another", began)
            return found

        return job

    def _call(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*given, **named)
            finally:
                self._add(f"store: {name.replace('_', ' ')}", began)

        return call

    def _foreach(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def foreach(writer: Any, work: Callable[..., None]) -> Any:
            def micro_batch(*given: Any) -> None:
                began = time.perf_counter()
                try:
                    work(*given)
                finally:
                    self._micro_batches += time.perf_counter() - began

            return original(writer, micro_batch)

        return foreach


# What Spark itself costs -------------------------------------------------------------------------


def measure_jobs(spark: SparkSession) -> float:
    """Seconds of one job that hands a row to a Python worker and takes it back: the least that a stage costs."""
    one = pa.table({"row": [1]})

    def job() -> float:
        began = time.perf_counter()
        spark.createDataFrame(one).mapInArrow(same, "row long").toArrow()
        return time.perf_counter() - began

    return statistics.median(job() for _ in range(JOBS_MEASURED))


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


# Latency -----------------------------------------------------------------------------------------


async def measure_latency(spark: SparkSession, place: Path, count: int) -> dict[str, Any]:
    """While the job streams: what a micro-batch costs that has nothing to do, and one document at a time."""
    shelf = IndexShelf(spark, place, place / "documents")
    shelf.folder.mkdir(parents=True)
    known = await written(shelf, "known.txt")
    with shelf.job() as job:
        query = job.start()
        try:
            shelf.send([known])
            await until(lambda: job.summary.documents == 1)
            for number in range(IDLE_MEASURED):
                shelf.send([known])
                await until(lambda seen=number: job.summary.ignored > seen)
            seen = await one_by_one(shelf, count)
            spent = [found["durationMs"] for found in query.recentProgress if found["numInputRows"]]
        finally:
            query.stop()
    return {"seconds": seen, "idle_ms": spent[1 : 1 + IDLE_MEASURED], "busy_ms": spent[-count:]}


async def one_by_one(shelf: IndexShelf, count: int) -> dict[str, list[float]]:
    """From a document's notification to each follower's first sight of it, in seconds."""
    seen: dict[str, list[float]] = {follower: [] for follower in FOLLOWERS}
    readers = [await VectorStore.open_reader(shelf.url, VECTOR_PATH, config) for config in FOLLOWERS.values()]
    collections = [await reader.collection(NAME.tenant, NAME.index, NAME.model) for reader in readers]
    with SyncProducer(shelf.url, ProducerConfig(flush_interval_seconds=0.0)) as producer:
        for number in range(count):
            record = await written(shelf, f"{number}.txt")
            began = time.perf_counter()
            producer.produce([record]).durable()
            sights = await asyncio.gather(*(sight(collection, f"{number}.txt") for collection in collections))
            for follower, moment in zip(FOLLOWERS, sights, strict=True):
                seen[follower].append(moment - began)
    for reader in readers:
        await reader.close()
    return seen


async def written(shelf: IndexShelf, key: str) -> bytes:
    (shelf.folder / key).write_text(text_of(key))
    return shelf.notification(next(meta for meta in await listed(shelf.folder) if meta.key == key))


def text_of(key: str) -> str:
    return f"The document {key} is about itself and about nothing else. " * 10


async def sight(collection: CollectionReader, key: str) -> float:
    """When a search finds the document first."""
    query = vector_of(text_of(key))[np.newaxis]

    async def found() -> bool:
        hits = (await collection.search(query, 1, columns=["attributes"])).to_pylist()
        return bool(hits) and hits[0]["attributes"]["key"] == key

    end = time.perf_counter() + SECONDS_MAX
    while not await found():
        assert time.perf_counter() < end
        await asyncio.sleep(0.01)
    return time.perf_counter()


async def until(holds: Callable[[], bool]) -> None:
    end = time.perf_counter() + SECONDS_MAX
    while not holds():
        assert time.perf_counter() < end
        await asyncio.sleep(0.05)
