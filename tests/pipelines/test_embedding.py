"""The embedding stage, called as an executor calls it: a vector or a reason for every chunk."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from penstock.documents import BatchInput, BatchRequest, ChunkingConfig, encode
from penstock.documents.embedding import EMBEDDED_MODEL, DispatchPolicy, ModelProfile, StaticProvider
from penstock.errors import InvalidInput
from penstock.pipelines import embedding
from penstock.pipelines.embedding import REQUEST_SCHEMA, Embedding, embed_batches
from penstock.testing.embedding_server import EmbeddingServer, ProviderFaults
from penstock.vector import metric


def request(counter: int, *texts: str) -> bytes:
    inputs = [BatchInput(doc_id="0" * 64, chunk_id=text, seq=seq, text=text) for seq, text in enumerate(texts)]
    return encode(
        BatchRequest(
            batch_id=f"acme:handbook:{EMBEDDED_MODEL}:{counter}:0",
            tenant_id="acme",
            index_id="handbook",
            model=EMBEDDED_MODEL,
            inputs=tuple(inputs),
            tokens_total=1,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
    )


def test_every_chunk_of_every_batch_gets_its_vector_or_a_reason() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        requests = [request(0, "otters", "rivers"), request(1, "   ")]
        yield pa.record_batch([pa.array([3, 4]), pa.array(requests)], schema=REQUEST_SCHEMA)

    rows = [row for batch in embed_batches(Embedding(), 1, batches()) for row in batch.to_pylist()]
    assert [(row["request"], row["chunk_id"]) for row in rows] == [
        (3, "otters"),
        (3, "rivers"),
        (3, None),
        (4, "   "),
        (4, None),
    ]
    expected = StaticProvider().embed_now(["otters", "rivers"]).rows
    assert np.allclose([row["vector"] for row in rows[:2]], expected)
    assert (rows[3]["vector"], rows[3]["reason"]) == (None, "it is empty")
    # How the requests went: nothing was repeated, and nothing is to be sent again.
    assert [(row["retries"], row["reason"]) for row in rows if row["chunk_id"] is None] == [(0, None), (0, None)]


def test_a_model_without_an_endpoint_is_refused_and_one_with_small_inputs_gets_small_chunks() -> None:
    with pytest.raises(InvalidInput, match="no endpoint"):
        Embedding().profile_of("voyage-3.5")
    remote = Embedding("http://127.0.0.1:9")
    assert remote.chunking_of("embed-english-v3.0", ChunkingConfig()).max_tokens <= 512
    assert "secret" not in repr(Embedding("http://127.0.0.1:9", "secret"))


def test_a_provider_that_stays_away_is_told_with_its_request_and_the_others_are_answered() -> None:
    with EmbeddingServer(dimensions=8, faults=ProviderFaults(busy=0.5, in_a_row_max=100, seed=3)) as server:
        profile = ModelProfile(name="m", tokens_per_request=100, items_per_request=8, tokens_per_input=50, dimensions=8)
        remote = Embedding(server.url, profile=profile, policy=DispatchPolicy(attempts_max=1))

        def batches() -> Iterator[pa.RecordBatch]:
            requests = [request(number, f"text {number}") for number in range(12)]
            yield pa.record_batch([pa.array(range(12)), pa.array(requests)], schema=REQUEST_SCHEMA)

        rows = [row for batch in embed_batches(remote, 2, batches()) for row in batch.to_pylist()]
    away = {row["request"] for row in rows if row["chunk_id"] is None and row["reason"]}
    answered = {row["request"] for row in rows if row["chunk_id"] is not None}
    assert away
    assert answered
    assert away | answered == set(range(12))
    assert not away & answered
    assert {row["after_seconds"] for row in rows if row["request"] in away} == {0.05}


@pytest.mark.parametrize(
    ("faults", "dimensions", "reason"),
    [
        (ProviderFaults(refusing=True), 8, "refuses every text"),
        (ProviderFaults(), 9, "vectors of 9 numbers, where the profile of m says 8"),
    ],
)
def test_a_misconfigured_provider_is_told_as_away_with_what_is_wrong(
    faults: ProviderFaults, dimensions: int, reason: str
) -> None:
    profile = ModelProfile(name="m", tokens_per_request=100, items_per_request=8, tokens_per_input=50, dimensions=8)
    with EmbeddingServer(dimensions=dimensions, faults=faults) as server:
        remote = Embedding(server.url, profile=profile)
        batch = pa.record_batch([pa.array([0]), pa.array([request(0, "otters", "rivers")])], schema=REQUEST_SCHEMA)
        (row,) = [row for out in embed_batches(remote, 1, iter([batch])) for row in out.to_pylist()]
    assert (row["request"], row["chunk_id"]) == (0, None)
    assert reason in row["reason"]


def test_a_number_that_no_store_compares_is_the_fault_of_its_chunk_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "MAGNITUDE_MAX", 0.0)
    batch = pa.record_batch([pa.array([0]), pa.array([request(0, "otters")])], schema=REQUEST_SCHEMA)
    first, _ = [row for out in embed_batches(Embedding(), 1, iter([batch])) for row in out.to_pylist()]
    assert (first["vector"], first["reason"]) == (None, "the model answered a number beyond 0")


def test_the_bound_of_a_number_is_the_stores_own() -> None:
    assert embedding.MAGNITUDE_MAX == metric.MAGNITUDE_MAX
