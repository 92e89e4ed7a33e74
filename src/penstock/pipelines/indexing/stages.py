"""The two stages of a round on Spark's executors.

Spark makes one task of every record batch it is given, so the work is spread here, by its size, over as many batches
as there are cores; a small round is one task, and costs no more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.documents import BatchRequest
from penstock.errors import PenstockError
from penstock.indexing import (
    ANSWER_SCHEMA,
    PIECE_SCHEMA,
    REQUEST_SCHEMA,
    DocumentReading,
    Embedding,
    EmbeddingReply,
    Reading,
    ReadRequest,
    decode_requests,
    embed_requests,
    encode_requests,
    gathered,
    given_up,
    pack_pieces,
    parts_of,
    pieces_of,
    read_documents,
    runs,
    spread,
)
from penstock.observability import SILENT, Observer
from penstock.pipelines.indexing.figures import Batches, counted, counting, with_figures
from penstock.pipelines.spark.failures import failure_of as _failure_of
from penstock.pipelines.spark.workers import settle_worker

__all__ = ["SparkStages", "failure_of"]

_Task: TypeAlias = Callable[[Observer, Batches], Batches]
_Asked: TypeAlias = Sequence[tuple[int, msgspec.Struct]]

# What one job of Spark is expected to answer at most: its driver takes a gigabyte by default, and fails with more.
RESULT_BYTES_MAX: Final = 256 << 20
# Of a document that is not parsed yet, when its object is smaller; and how many times the object it may be else.
_TEXT_BYTES_MIN: Final = 64 << 10
_PACKED_TIMES: Final = 8
# How Spark says that the answers were more all the same.
_TOO_MUCH: Final = "spark.driver.maxResultSize"


class SparkStages:
    """The `Stages` on executors. Called on the driver, from any thread; one call at a time."""

    def __init__(
        self, spark: SparkSession, reading: Reading, embedding: Embedding, *, observer: Observer = SILENT
    ) -> None:
        self._spark, self._observer = spark, observer
        self._reading = reading
        self._embedding = embedding
        self._running = self._given_up = False

    @property
    def answers_beside(self) -> bool:
        # With one slot the second job would keep the first one waiting.
        return int(self._spark.sparkContext.defaultParallelism) > 1

    def read(self, asked: Sequence[ReadRequest]) -> list[DocumentReading]:
        with self._call():
            return self._read(asked)

    def _read(self, asked: Sequence[ReadRequest]) -> list[DocumentReading]:
        tasks = self._spark.sparkContext.defaultParallelism
        split = [(place, run) for place, request in enumerate(asked) for run in runs(request, tasks)]
        sizes = [_text_bytes(run, self._reading.chunking.cell_bytes) for _, run in split]
        work = partial(_read_task, self._reading)
        tables = [self._run(work, *part, PIECE_SCHEMA) for part in _sized_parts(split, sizes)]
        return gathered((piece for table in tables for piece in pieces_of(table)), asked)

    def embed(
        self, requests: Mapping[int, BatchRequest], *, brisk: bool = False, trials: frozenset[str] = frozenset()
    ) -> EmbeddingReply:
        embedding = self._embedding.brisk(trials) if brisk else self._embedding
        sizes = [len(one.inputs) * _vector_bytes(embedding, one) for one in requests.values()]
        parts = parts_of(list(requests.items()), sizes, RESULT_BYTES_MAX)
        with self._call():
            tables = [self._embed(embedding, part) for part in parts]
        return EmbeddingReply.of(pa.concat_tables([ANSWER_SCHEMA.empty_table(), *tables]))

    def cancel(self) -> None:
        self._given_up = self._running
        self._spark.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """The session is its opener's."""

    @contextmanager
    def _call(self) -> Iterator[None]:
        """What Spark raises, as one of the project's own errors."""
        self._running, self._given_up = True, False
        try:
            yield
        except (PySparkException, Py4JError) as error:
            raise (given_up() if self._given_up else failure_of(error)) from error
        finally:
            self._running = False

    def _embed(self, embedding: Embedding, requests: Sequence[tuple[int, BatchRequest]]) -> pa.Table:
        tasks = min(len(requests), self._spark.sparkContext.defaultParallelism)
        sizes = [request.tokens_total for _, request in requests]
        return self._run(partial(_embed_task, embedding, tasks), requests, sizes, ANSWER_SCHEMA)

    def _run(self, work: _Task, asked: _Asked, sizes: Sequence[int], answer: pa.Schema) -> pa.Table:
        """`work` over requests, one task a core at most; in halves where the answers are too much for one job."""
        parts = spread(asked, sizes, self._spark.sparkContext.defaultParallelism)
        batches = [encode_requests(part) for part in parts]
        frame = self._spark.createDataFrame(pa.Table.from_batches(batches, REQUEST_SCHEMA))
        try:
            if self._observer is SILENT:
                return frame.mapInArrow(partial(work, SILENT), from_arrow_schema(answer)).toArrow()
            schema = from_arrow_schema(with_figures(answer))
            return counted(frame.mapInArrow(partial(counting, work, answer), schema).toArrow(), self._observer)
        except PySparkException as error:
            if _TOO_MUCH not in str(error) or len(asked) == 1:
                raise
        half = len(asked) // 2
        halves = ((asked[:half], sizes[:half]), (asked[half:], sizes[half:]))
        return pa.concat_tables([self._run(work, *each, answer) for each in halves])


def _read_task(reading: Reading, observer: Observer, batches: Batches) -> Batches:
    settle_worker("read")
    asked = [request for batch in batches for request in decode_requests(batch, ReadRequest)]
    yield from pack_pieces(read_documents(reading, asked, observer=observer))


def _embed_task(embedding: Embedding, tasks: int, observer: Observer, batches: Batches) -> Batches:
    settle_worker("embed")
    for batch in batches:
        requests = dict(decode_requests(batch, BatchRequest))
        yield from asyncio.run(embed_requests(embedding, tasks, requests, observer=observer)).to_batches()


def _sized_parts(asked: _Asked, sizes: Sequence[int]) -> Iterator[tuple[_Asked, list[int]]]:
    for part in parts_of(list(zip(asked, sizes, strict=True)), sizes, RESULT_BYTES_MAX):
        yield [request for request, _ in part], [size for _, size in part]


def _text_bytes(request: ReadRequest, cell_bytes: int) -> int:
    """How much text a run of cells may have, as far as is known: what nobody has looked into may be packed."""
    left = request.bytes_left
    expected = left if request.text_bytes is not None else max(_TEXT_BYTES_MIN, left * _PACKED_TIMES)
    return min(request.cells * cell_bytes, expected)


def _vector_bytes(embedding: Embedding, request: BatchRequest) -> int:
    return 4 * embedding.profile_of(request.model, (request.tenant_id, request.index_id)).dimensions


def failure_of(error: Exception) -> PenstockError:
    return _failure_of(error, "the indexing query ended")
