"""The stages on Spark: parts for every core, and errors that keep their names."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from penstock.documents import ChunkingConfig, Progress, UploadNotification
from penstock.documents.embedding import Later
from penstock.errors import PenstockError, PermissionDenied
from penstock.pipelines.backlog import Share
from penstock.pipelines.planning import plan_events
from penstock.pipelines.stages import Reply, failure_of, portions
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
    rows = list(portions(0, share(cells, reached=4_100, text_bytes=90_000), CELL, ChunkingConfig(), tasks))
    assert [(row["first_cell"], row["cells"]) for row in rows] == expected
    assert {row["next_byte_start"] for row in rows} == {4_100}


def test_a_document_that_nobody_has_looked_into_is_read_by_one_task() -> None:
    (row,) = portions(0, share(8), CELL, ChunkingConfig(), 4)
    assert (row["first_cell"], row["cells"], row["text_bytes"]) == (0, 8, None)


def test_a_reply_tells_what_is_to_be_sent_again() -> None:
    rows = [
        {"request": 0, "chunk_id": "c", "reason": None, "retries": None, "after_seconds": None},
        {"request": 0, "chunk_id": None, "reason": None, "retries": 1, "after_seconds": None},
        {"request": 1, "chunk_id": None, "reason": "busy", "retries": 2, "after_seconds": 0.5},
    ]
    reply = Reply.of(pa.Table.from_pylist(rows))
    assert (reply.away, reply.retries) == ({1: Later("busy", 0.5)}, 3)


def test_an_error_of_a_task_keeps_its_name_and_any_other_says_what_ended() -> None:
    named = failure_of(PySparkException("A task failed\n  penstock.errors.PermissionDenied: no key (give one)\n\n"))
    assert isinstance(named, PermissionDenied)
    assert "no key (give one)" in str(named)
    other = failure_of(PySparkException("the cluster is gone"))
    assert type(other) is PenstockError
    assert "the cluster is gone" in str(other)
