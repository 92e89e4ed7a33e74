"""A vector is taken over where the text is the same to the last character, and nowhere else."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.indexing.rounds import reuse
from penstock.indexing.rounds.reuse import DIGEST, known_vectors, named_vectors, text_digest
from penstock.vector import VectorStore


def rows(*texts: str, digests: bool = True) -> pa.Table:
    """Rows whose vectors tell them apart."""
    vectors = np.eye(8, dtype=np.float32)[: len(texts)]
    attributes = [{"seq": place} | ({DIGEST: text_digest(text)} if digests else {}) for place, text in enumerate(texts)]
    return pa.table(
        {
            "id": [f"{text}/{place}" for place, text in enumerate(texts)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8),
            "text": list(texts),
            "attributes": pa.array(attributes),
        }
    )


def looked_up(table: pa.Table, *texts: str, hidden: bool = False) -> dict[str, list[float]]:
    async def work() -> pa.Table:
        async with await VectorStore.open("memory://", "vectors") as store:
            collection = await store.collection("acme", "handbook", "m", dimensions=8)
            version: dict[str, Any] = {"document": "d", "version": "1"} if hidden else {}
            await collection.upsert(table, durable=True, **version)
            return await known_vectors(collection, texts)

    found = asyncio.run(work())
    return dict(zip(found["text"].to_pylist(), found["vector"].to_pylist(), strict=True))


def test_texts_that_are_there_bring_their_vectors_and_others_nothing() -> None:
    found = looked_up(rows("otters", "rivers", "mills"), "rivers", "bridges", "otters")
    assert set(found) == {"otters", "rivers"}
    assert found["rivers"] == np.eye(8)[1].tolist()


def test_a_text_with_many_rows_is_found_once_and_a_digest_alone_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(looked_up(rows("otters", "otters", "otters"), "otters")) == ["otters"]
    monkeypatch.setattr(reuse, "text_digest", lambda _: 7)
    table = rows("otters", "rivers").set_column(3, "attributes", pa.array([{DIGEST: 7}, {DIGEST: 7}]))
    assert looked_up(table, "rivers", "mills") == {"rivers": np.eye(8)[1].tolist()}


def test_what_is_hidden_or_older_than_digests_is_not_taken_over() -> None:
    assert looked_up(rows("otters"), "otters", hidden=True) == {}
    assert looked_up(rows("otters", digests=False), "otters") == {}


def test_every_chunk_of_a_known_text_gets_its_vector() -> None:
    known = pa.table({"text": ["otters"], "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32()))})
    found = named_vectors(known, {"c:0-6": "otters", "c:6-12": "rivers", "c:12-18": "otters"})
    assert found["chunk_id"].to_pylist() == ["c:0-6", "c:12-18"]
    assert found["vector"].to_pylist() == [[1.0, 2.0], [1.0, 2.0]]
