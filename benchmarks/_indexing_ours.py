"""Penstock's side of `indexing.py`: a job on a queue and a store, watched by the clock from outside.

A run's time begins before its notifications are put on the queue and ends when all is durable. Stages are seen by
watching Spark's jobs and the store's writer, so that nothing in the job serves the benchmark.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from _indexing_shelf import NAME, Engine, IndexShelf, finished, listed, text_of
from _indexing_work import Figures, processor_seconds_by_process, vector_of
from penstock.buffer import ProducerConfig, SyncProducer
from penstock.indexing import VECTOR_PATH, IndexWriter
from penstock.pipelines import SparkIndexingJob
from penstock.vector import CollectionReader, VectorConfig, VectorStore

__all__ = ["FOLLOWERS", "Stages", "engine_of", "measure_jobs", "measure_latency", "measure_ours"]

# One that looks often, and one as it comes.
FOLLOWERS = {"a follower at 0.1 s": VectorConfig(staleness_seconds=0.1), "a follower by default": VectorConfig()}
SECONDS_MAX = 600.0
JOBS_MEASURED = 20
IDLE_MEASURED = 8


def engine_of(spark: SparkSession) -> Engine:
    return partial(SparkIndexingJob, spark)


def measure_ours(spark: SparkSession, place: Path, folder: Path, stages: Stages) -> Figures:
    shelf = IndexShelf(engine_of(spark), place, folder)
    before = processor_seconds_by_process()
    with stages.watching():
        first, chunks = shelf.take()
    stages.processors = {kind: spent - before[kind] for kind, spent in processor_seconds_by_process().items()}
    return finished(shelf, chunks, first, sum(stages.processors.values()))


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
    shelf = IndexShelf(engine_of(spark), place, place / "documents")
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
