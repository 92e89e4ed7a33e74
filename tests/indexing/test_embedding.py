"""The embedding stage, called as an executor calls it: a vector or a reason for every chunk."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.documents import BatchInput, BatchRequest, ChunkingConfig
from penstock.documents.embedding import EMBEDDED_MODEL, MAGNITUDE_MAX, DispatchPolicy, ModelProfile, StaticProvider
from penstock.errors import InvalidInput
from penstock.indexing.stages import embedding
from penstock.indexing.stages.embedding import Embedding, Endpoint, OwnModel, embed_requests
from penstock.testing.servers.embedding_server import EmbeddingServer, ProviderFaults
from penstock.vector.format import metric


def request(counter: int, *texts: str) -> BatchRequest:
    inputs = [BatchInput(doc_id="0" * 64, chunk_id=text, seq=seq, text=text) for seq, text in enumerate(texts)]
    return BatchRequest(
        batch_id=f"acme:handbook:{EMBEDDED_MODEL}:{counter}:0",
        tenant_id="acme",
        index_id="handbook",
        model=EMBEDDED_MODEL,
        inputs=tuple(inputs),
        tokens_total=1,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def embedded(embedding: Embedding, requests: dict[int, BatchRequest], tasks: int = 1) -> list[dict[str, Any]]:
    return asyncio.run(embed_requests(embedding, tasks, requests)).to_pylist()


def test_every_chunk_of_every_batch_gets_its_vector_or_a_reason() -> None:
    rows = embedded(Embedding(), dict(zip((3, 4), [request(0, "otters", "rivers"), request(1, "   ")], strict=True)))
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

        rows = embedded(remote, dict(enumerate([request(number, f"text {number}") for number in range(12)])), tasks=2)
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
        (ProviderFaults(refusing=True), 8, "rejects every text"),
        (ProviderFaults(), 9, "vectors of 9 numbers, where the profile of m says 8"),
    ],
)
def test_a_misconfigured_provider_is_told_as_away_with_what_is_wrong(
    faults: ProviderFaults, dimensions: int, reason: str
) -> None:
    profile = ModelProfile(name="m", tokens_per_request=100, items_per_request=8, tokens_per_input=50, dimensions=8)
    with EmbeddingServer(dimensions=dimensions, faults=faults) as server:
        remote = Embedding(server.url, profile=profile)
        (row,) = embedded(remote, {0: request(0, "otters", "rivers")})
    assert (row["request"], row["chunk_id"]) == (0, None)
    assert reason in row["reason"]


def test_an_address_that_nothing_can_be_sent_to_holds_back_its_own_requests_alone() -> None:
    broken = Endpoint("http://models.example:port/v1")
    own = {("acme", "handbook", EMBEDDED_MODEL): OwnModel(broken)}
    here = msgspec.structs.replace(request(1, "rivers"), index_id="another")
    rows = embedded(Embedding(own=own), {0: request(0, "otters"), 1: here})
    (away,) = [row for row in rows if row["request"] == 0]
    assert "cannot be asked" in away["reason"]
    assert [row["chunk_id"] for row in rows if row["request"] == 1 and row["vector"]] == ["rivers"]


def test_a_number_that_no_store_compares_is_the_fault_of_its_chunk_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "MAGNITUDE_MAX", 0.0)
    first, _ = embedded(Embedding(), {0: request(0, "otters")})
    assert (first["vector"], first["reason"]) == (None, "the model answered a number beyond 0")


def test_the_bound_of_a_number_is_the_stores_own() -> None:
    assert MAGNITUDE_MAX == metric.MAGNITUDE_MAX
