"""The indexing job beside an embedding provider over HTTP: what is sent to it, and what it costs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from penstock.documents import ChunkingConfig
from penstock.documents.embedding import DispatchPolicy, ModelProfile
from penstock.pipelines.embedding import Embedding
from penstock.testing.embedding_server import EmbeddingServer
from penstock.testing.shelf import Shelf
from penstock.vector import CollectionName

pytestmark = pytest.mark.integration

MODEL = "tested-model"
PROFILE = ModelProfile(
    name=MODEL,
    tokens_per_request=100_000,
    items_per_request=64,
    tokens_per_input=4_000,
    dimensions=32,
    usd_per_million_tokens=10.0,
)
POLICY = DispatchPolicy(attempts_max=3, pause_seconds=0.02, pause_seconds_max=0.1)


@pytest.fixture
def remote(shelf: Shelf) -> Shelf:
    """A shelf whose documents are embedded by the tested model."""
    return replace(shelf, name=CollectionName("acme", "handbook", MODEL))


def asked(server: EmbeddingServer) -> Embedding:
    return Embedding(server.url, profile=PROFILE, policy=POLICY)


def essay(seed: int, size: int) -> str:
    """Paragraphs of words without repetition, as long as that."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("aeioubcdfgklmnprst", k=chance.randint(2, 9))) for _ in range(4000)]
    paragraphs: list[str] = []
    length = 0
    while length < size:
        paragraph = " ".join(chance.choices(words, k=chance.randint(30, 120))).capitalize() + "."
        paragraphs.append(paragraph)
        length += len(paragraph) + 2
    return "\n\n".join(paragraphs)


def test_after_an_insertion_in_the_middle_of_a_large_text_only_what_changed_is_sent_and_paid_for(remote: Shelf) -> None:
    text = essay(1, 3_000_000)
    with EmbeddingServer(dimensions=PROFILE.dimensions) as server:
        config = {"embedding": asked(server), "chunking": ChunkingConfig()}
        first = remote.run(remote.write("book.txt", text), **config)
        sent = sum(ask.texts for ask in server.asks)
        assert (first.chunks, first.reused) == (sent, 0)

        middle = text.index("\n\n", len(text) // 2)
        changed = text[:middle] + "\n\n" + essay(2, 5_000) + text[middle:]
        # Another job with another checkpoint, as another process would be.
        second = remote.run(remote.write("book.txt", changed), checkpoint="another", **config)
        sent_again = sum(ask.texts for ask in server.asks) - sent
    assert second.chunks == len(remote.chunks()) == second.reused + sent_again
    assert 0 < sent_again <= 0.05 * second.chunks
    assert 0 < second.cost_usd < 0.06 * first.cost_usd
    report = remote.entries()["book.txt"].report
    assert report is not None
    assert (report.reused, report.chunks) == (second.reused, second.chunks)
