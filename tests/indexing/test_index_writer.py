"""What the index writer leaves in the store, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.documents import ObjectState
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.indexing.job.writer import IndexWriter
from penstock.indexing.registry.entries import VECTOR_PATH, DocumentEntry, Schedule, registry_name
from penstock.indexing.stages.embedding import Embedding
from penstock.vector import CollectionName

NAME = CollectionName("acme", "manual", EMBEDDED_MODEL)
ENTRY = DocumentEntry(
    object_key="o", bucket="b", key="k", state=ObjectState(at=datetime(2026, 1, 1, tzinfo=UTC)), current="v"
)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[IndexWriter]:
    made = IndexWriter(f"file://{tmp_path}", VECTOR_PATH, {}, Embedding())
    yield made
    made.close()


def test_a_collection_that_no_longer_answers_is_dropped_and_its_batch_ids_never_begin_again(
    writer: IndexWriter,
) -> None:
    vectors = writer._vectors(NAME)
    row = pa.table({"id": ["c"], "vector": [[1.0] * vectors.spec.dimensions]})
    writer._door.run(vectors.upsert(row, document="o", version="v", durable=True))
    writer.write_entries([(NAME, ENTRY)])
    writer.write_schedule(NAME, Schedule(position=7))
    for _ in range(2):
        writer.remove_collection(NAME)
        left = writer._door.run(writer._door.store.collections())
        assert NAME not in left
        assert registry_name(NAME) in left
        assert writer.all_entries(NAME) == {}
        assert writer.schedule() == Schedule(position=7)
    assert writer.known_vectors(NAME, ["text"]).num_rows == 0
