"""The two stages of a round on executors: shares to readings, requests to answers.

Spark makes one task of every record batch it is given, so the work is spread here, by its size, over as many batches
as there are cores; a small round is one task, and costs no more than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock import errors
from penstock.documents import BatchRequest, ChunkingConfig, encode
from penstock.errors import PenstockError
from penstock.pipelines import embedding as embedding_stage
from penstock.pipelines import reading as reading_stage
from penstock.pipelines.answers import NO_ANSWERS, Answers, answers_by_request
from penstock.pipelines.backlog import Share, remaining_bytes
from penstock.pipelines.embedding import Embedding, embed_batches
from penstock.pipelines.reading import Reading, read_documents
from penstock.pipelines.rounds import Batched, DocumentReading, readings_of
from penstock.pipelines.spread import spread
from penstock.vector import CollectionName

__all__ = ["Stages", "failure_of"]

_ERRORS: Final = "penstock.errors."


class Stages:
    """Runs on the driver, from any thread; one call at a time."""

    def __init__(self, spark: SparkSession, reading: Reading, embedding: Embedding) -> None:
        self._spark = spark
        self._reading = reading
        self._embedding = embedding

    def read(self, shares: Sequence[Share], chunkings: Sequence[ChunkingConfig]) -> list[DocumentReading]:
        """What is read of each share, in their order, cut as its index wants it."""
        cell_bytes = self._reading.chunking.cell_bytes
        tasks = self._spark.sparkContext.defaultParallelism
        rows = [
            row
            for place, (share, chunking) in enumerate(zip(shares, chunkings, strict=True))
            for row in _portions(place, share, cell_bytes, chunking, tasks)
        ]
        sizes = [min(row["cells"] * cell_bytes, remaining_bytes(shares[row["document"]].pending)) for row in rows]
        work = partial(read_documents, self._reading)
        read = self._run(work, rows, sizes, reading_stage.INPUT_SCHEMA, reading_stage.OUTPUT_COLUMNS)
        return readings_of(read.to_pylist(), shares)

    def embed(self, batched: Mapping[CollectionName, Batched]) -> dict[CollectionName, Answers]:
        """The answers to all requests of a round, by collection."""
        requests: list[BatchRequest] = []
        places: dict[CollectionName, range] = {}
        for name, one in batched.items():
            places[name] = range(len(requests), len(requests) + len(one.requests))
            requests += one.requests
        if not requests:
            return dict.fromkeys(batched, NO_ANSWERS)
        rows = [{"place": place, "request": encode(request)} for place, request in enumerate(requests)]
        sizes = [request.tokens_total for request in requests]
        work = partial(embed_batches, self._embedding)
        answered = self._run(work, rows, sizes, embedding_stage.REQUEST_SCHEMA, embedding_stage.OUTPUT_COLUMNS)
        return {name: answers_by_request(answered, within) for name, within in places.items()}

    def _run(
        self, work: Any, rows: Sequence[dict[str, Any]], sizes: Sequence[int], schema: pa.Schema, columns: str
    ) -> pa.Table:
        """`work` over rows of `schema`, one task a core at most."""
        parts = spread(rows, sizes, self._spark.sparkContext.defaultParallelism)
        batches = [pa.RecordBatch.from_pylist(list(part), schema) for part in parts]
        frame = self._spark.createDataFrame(pa.Table.from_batches(batches, schema))
        try:
            return frame.mapInArrow(work, columns).toArrow()
        except PySparkException as error:
            raise failure_of(error) from error


def failure_of(error: PySparkException) -> PenstockError:
    """A task's own error, which is the last line of what it printed that names one; else one that says what ended."""
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line.removeprefix(_ERRORS) for line in lines if line.startswith(_ERRORS)]
    kind, _, why = named[-1].partition(": ") if named else ("", "", next(iter(lines), ""))
    made: type[PenstockError] = getattr(errors, kind, PenstockError)
    return made("the indexing query ended", why, "nothing is lost: run it again once the cause is gone")


def _portions(
    place: int, share: Share, cell_bytes: int, chunking: ChunkingConfig, tasks: int
) -> Iterator[dict[str, Any]]:
    """A share in runs of cells, one a task; a document that nobody has looked into yet is one run."""
    pending = share.pending
    first = pending.progress.next_byte_start // cell_bytes
    run = share.cells if pending.text_bytes is None else -(-share.cells // tasks)
    for start in range(first, first + share.cells, run):
        yield {
            "document": place,
            "upload": encode(pending.upload),
            "first_cell": start,
            "cells": min(run, first + share.cells - start),
            "next_byte_start": pending.progress.next_byte_start,
            "chunking": msgspec.json.encode(chunking),
            "text_bytes": pending.text_bytes,
            "parsed": pending.parsed,
        }
