"""The two stages of a round on executors: shares to readings, requests to answers.

Spark makes one task of every record batch it is given, so the work is spread here, by its size, over as many batches
as there are cores; a small round is one task, and costs no more than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock import errors
from penstock.documents import BatchRequest, ChunkingConfig, encode
from penstock.documents.embedding import Later
from penstock.errors import PenstockError
from penstock.pipelines import embedding as embedding_stage
from penstock.pipelines import reading as reading_stage
from penstock.pipelines.apart import is_apart
from penstock.pipelines.backlog import Share, remaining_bytes
from penstock.pipelines.embedding import Embedding, embed_batches
from penstock.pipelines.reading import Reading, read_documents
from penstock.pipelines.rounds import DocumentReading, readings_of
from penstock.pipelines.spread import parts_of, spread

__all__ = ["Reply", "Stages", "failure_of", "portions"]

_ERRORS: Final = "penstock.errors."
# What one job of Spark is expected to answer at most: its driver takes a gigabyte by default, and fails with more.
RESULT_BYTES_MAX: Final = 256 << 20
# Of a document that is not parsed yet, when its object is smaller; and how many times the object it may be else.
_TEXT_BYTES_MIN: Final = 64 << 10
_PACKED_TIMES: Final = 8
# How Spark says that the answers were more all the same.
_TOO_MUCH: Final = "spark.driver.maxResultSize"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the embedding stage answered: rows of chunks, and the requests whose provider stayed away."""

    answered: pa.Table
    away: Mapping[int, Later]
    retries: int

    @classmethod
    def of(cls, answered: pa.Table) -> Reply:
        told = answered.filter(answered["chunk_id"].is_null()).select(["request", "reason", "retries", "after_seconds"])
        rows = told.to_pylist()
        away = {row["request"]: Later(row["reason"], row["after_seconds"]) for row in rows if row["reason"] is not None}
        return cls(answered, away, sum(row["retries"] for row in rows))


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
            for row in portions(place, share, cell_bytes, chunking, tasks)
        ]
        work = partial(read_documents, self._reading)
        read = [
            self._run(work, *part, reading_stage.INPUT_SCHEMA, reading_stage.OUTPUT_COLUMNS)
            for part in _sized_parts(rows, [_text_bytes(row, shares, cell_bytes) for row in rows])
        ]
        return readings_of((row for table in read for row in table.to_pylist()), shares)

    def embed(
        self, requests: Mapping[int, BatchRequest], *, brisk: bool = False, trials: frozenset[str] = frozenset()
    ) -> Reply:
        """The answers to the requests of a round, which are told apart by their numbers.

        `brisk` when others wait for the answers of this one; `trials` are models that did not answer before.
        """
        embedding = self._embedding.brisk(trials) if brisk else self._embedding
        numbered = list(requests.items())
        sizes = [len(one.inputs) * _vector_bytes(embedding, one.model) for one in requests.values()]
        parts = parts_of(numbered, sizes, RESULT_BYTES_MAX)
        return Reply.of(pa.concat_tables([self._embed(embedding, part) for part in parts]))

    def _embed(self, embedding: Embedding, requests: Sequence[tuple[int, BatchRequest]]) -> pa.Table:
        rows = [{"place": place, "request": encode(request)} for place, request in requests]
        tasks = min(len(rows), self._spark.sparkContext.defaultParallelism)
        return self._run(
            partial(embed_batches, embedding, tasks),
            rows,
            [request.tokens_total for _, request in requests],
            embedding_stage.REQUEST_SCHEMA,
            embedding_stage.OUTPUT_COLUMNS,
        )

    def _run(
        self, work: Any, rows: Sequence[dict[str, Any]], sizes: Sequence[int], schema: pa.Schema, columns: str
    ) -> pa.Table:
        """`work` over rows of `schema`, one task a core at most; in halves where the answers are too much for one job."""
        parts = spread(rows, sizes, self._spark.sparkContext.defaultParallelism)
        batches = [pa.RecordBatch.from_pylist(list(part), schema) for part in parts]
        frame = self._spark.createDataFrame(pa.Table.from_batches(batches, schema))
        try:
            return frame.mapInArrow(work, columns).toArrow()
        except PySparkException as error:
            if _TOO_MUCH not in str(error) or len(rows) == 1:
                raise failure_of(error) from error
        half = len(rows) // 2
        halves = ((rows[:half], sizes[:half]), (rows[half:], sizes[half:]))
        return pa.concat_tables([self._run(work, *each, schema, columns) for each in halves])


def _sized_parts(
    rows: Sequence[dict[str, Any]], sizes: Sequence[int]
) -> Iterator[tuple[list[dict[str, Any]], list[int]]]:
    for part in parts_of(list(zip(rows, sizes, strict=True)), sizes, RESULT_BYTES_MAX):
        yield [row for row, _ in part], [size for _, size in part]


def _text_bytes(row: Mapping[str, Any], shares: Sequence[Share], cell_bytes: int) -> int:
    """How much text a run of cells may have, as far as is known: what nobody has looked into may be packed."""
    pending = shares[row["document"]].pending
    left = remaining_bytes(pending)
    expected = left if pending.text_bytes is not None else max(_TEXT_BYTES_MIN, left * _PACKED_TIMES)
    cells: int = row["cells"]
    return min(cells * cell_bytes, expected)


def _vector_bytes(embedding: Embedding, model: str) -> int:
    return 4 * embedding.profile_of(model).dimensions


def failure_of(error: PySparkException) -> PenstockError:
    """A task's own error, which is the last line of what it printed that names one; else one that says what ended."""
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line.removeprefix(_ERRORS) for line in lines if line.startswith(_ERRORS)]
    kind, _, why = named[-1].partition(": ") if named else ("", "", next(iter(lines), ""))
    made: type[PenstockError] = getattr(errors, kind, PenstockError)
    return made("the indexing query ended", why, "nothing is lost: run it again once the cause is gone")


def portions(
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
            "apart": is_apart(pending),
        }
