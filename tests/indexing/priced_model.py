"""A model with a price, asked over HTTP: what the tests of budgets and of shared vectors count by."""

from __future__ import annotations

from penstock.documents.embedding import DispatchPolicy, ModelProfile
from penstock.indexing.stages.embedding import Embedding
from penstock.testing.servers.embedding_server import AskFate, EmbeddingServer

MODEL = "tested-model"
PROFILE = ModelProfile(
    name=MODEL,
    tokens_per_request=100_000,
    items_per_request=64,
    tokens_per_input=4_000,
    dimensions=32,
    usd_per_million_tokens=10.0,
)
POLICY = DispatchPolicy(attempts_max=2, pause_seconds=0.02, pause_seconds_max=0.1)


def asked(server: EmbeddingServer) -> Embedding:
    return Embedding(server.url, profile=PROFILE, policy=POLICY)


def sent_texts(server: EmbeddingServer) -> int:
    """Texts that the server was sent and answered for."""
    return sum(ask.texts for ask in server.asks if ask.fate is AskFate.ANSWERED)
