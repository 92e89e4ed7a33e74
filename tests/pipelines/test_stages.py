"""The stages on Spark: parts for every core, and errors that keep their names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from penstock.documents import BatchInput, BatchRequest, ChunkingConfig, Progress, UploadNotification
from penstock.documents.embedding import Later, ModelProfile
from penstock.errors import PenstockError, PermissionDenied
from penstock.indexing.planning.backlog import Share
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.port import EmbeddingReply
from penstock.indexing.stages.reading import Reading
from penstock.indexing.stages.readings import runs
from penstock.indexing.stages.wire import ANSWER_SCHEMA, REQUEST_SCHEMA
from penstock.pipelines.indexing.stages import SparkStages, failure_of
from penstock.vector import CollectionName

CELL = 1000
NAME = CollectionName("acme", "handbook", "m")


def share(cells: int, *, reached: int = 0, text_bytes: int | None = None) -> Share:
    upload = UploadNotification(
        tenant_id="acme",
        index_id="handbook",
        bucket="b",
        key="note.txt",
        etag="e",
        size_bytes=90_000,
        model="m",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    (entry,) = plan_events({}, [upload], "rule").entries.values()
    assert entry.pending is not None
    known = msgspec.structs.replace(entry.pending, progress=Progress(3, reached), text_bytes=text_bytes)
    return Share(NAME, msgspec.structs.replace(entry, pending=known), cells)


@pytest.mark.parametrize(
    ("cells", "tasks", "expected"),
    [(8, 2, [(4, 4), (8, 4)]), (8, 3, [(4, 3), (7, 3), (10, 2)]), (1, 4, [(4, 1)]), (5, 1, [(4, 5)])],
)
def test_a_text_that_is_known_is_read_in_runs_of_cells_one_a_task(
    cells: int, tasks: int, expected: list[tuple[int, int]]
) -> None:
    asked = share(cells, reached=4_100, text_bytes=90_000).request(CELL, ChunkingConfig())
    found = list(runs(asked, tasks))
    assert [(run.first_cell, run.cells) for run in found] == expected
    assert {run.progress.next_byte_start for run in found} == {4_100}


def test_a_document_that_nobody_has_looked_into_is_read_by_one_task() -> None:
    (run,) = runs(share(8).request(CELL, ChunkingConfig()), 4)
    assert (run.first_cell, run.cells, run.text_bytes) == (0, 8, None)


def test_a_reply_tells_what_is_to_be_sent_again() -> None:
    rows = [
        {"request": 0, "chunk_id": "c", "reason": None, "retries": None, "after_seconds": None},
        {"request": 0, "chunk_id": None, "reason": None, "retries": 1, "after_seconds": None},
        {"request": 1, "chunk_id": None, "reason": "busy", "retries": 2, "after_seconds": 0.5},
    ]
    reply = EmbeddingReply.of(pa.Table.from_pylist(rows))  # type: ignore[arg-type]
    assert (reply.away, reply.retries) == ({1: Later("busy", 0.5)}, 3)


def test_an_error_of_a_task_keeps_its_name_and_any_other_says_what_ended() -> None:
    named = failure_of(PySparkException("A task failed\n  penstock.errors.PermissionDenied: no key (give one)\n\n"))
    assert isinstance(named, PermissionDenied)
    assert "no key (give one)" in str(named)
    other = failure_of(PySparkException("the cluster is gone"))
    assert type(other) is PenstockError
    assert "the cluster is gone" in str(other)


class SmallDriver:
    """A session that answers rows as they are, and refuses to answer more than two at once as Spark does."""

    sparkContext = SimpleNamespace(defaultParallelism=2)

    def __init__(self) -> None:
        self.jobs: list[int] = []

    def createDataFrame(self, table: pa.Table) -> Any:
        self.jobs.append(table.num_rows)

        def to_arrow() -> pa.Table:
            if table.num_rows > 2:
                raise PySparkException("Total size of serialized results is bigger than spark.driver.maxResultSize")
            return table

        return SimpleNamespace(mapInArrow=lambda work, columns: SimpleNamespace(toArrow=to_arrow))


def test_answers_that_are_too_much_for_the_driver_are_had_in_halves() -> None:
    """The same round fails in the same way for ever."""
    driver: Any = SmallDriver()
    stages = SparkStages(driver, Reading(), Embedding())
    asked = [(place, share(1).request(CELL, ChunkingConfig())) for place in range(7)]

    def work(_observer: Any, batches: Any) -> Any:
        return batches

    found = stages._run(work, asked, [1] * 7, REQUEST_SCHEMA)
    assert sorted(found["place"].to_pylist()) == list(range(7))
    assert max(driver.jobs[1:]) <= 4


def test_a_round_of_many_vectors_is_several_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answered(_: SparkStages, work: Any, rows: Sequence[Any], *how: Any) -> pa.Table:
        asked.append(len(rows))
        return ANSWER_SCHEMA.empty_table()

    monkeypatch.setattr(SparkStages, "_run", answered)
    driver: Any = SmallDriver()
    profile = ModelProfile(
        name="m", tokens_per_request=10_000, items_per_request=64, tokens_per_input=400, dimensions=16_384
    )
    stages = SparkStages(driver, Reading(), Embedding("http://127.0.0.1:9", profile=profile))
    inputs = tuple(BatchInput(doc_id="0" * 64, chunk_id=f"c{n}", seq=n, text="words") for n in range(64))
    request = BatchRequest(
        batch_id="a:h:m:0:0",
        tenant_id="a",
        index_id="h",
        model="m",
        inputs=inputs,
        tokens_total=64,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    stages.embed(dict.fromkeys(range(200), request))
    # Four mebibytes a request.
    assert asked == [64, 64, 64, 8]
