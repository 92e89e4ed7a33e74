"""Embeds batches on executors: one row a request in, one row a chunk out, with its vector or the reason it has none.

The embedded model is the default and needs nothing; with a URL, any OpenAI-compatible endpoint serves. A provider that
stays away is raised: the micro-batch fails, nothing is lost, and its replay sends the same batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.documents import BatchRequest, ChunkingConfig, decode
from penstock.documents.embedding import (
    EMBEDDED_MODEL,
    Dispatcher,
    DispatchPolicy,
    Embedded,
    EmbeddingProvider,
    ModelProfile,
    OpenAiProvider,
    StaticProvider,
    profile_of,
)
from penstock.errors import InvalidInput

__all__ = ["OUTPUT_COLUMNS", "REQUEST_SCHEMA", "Embedding", "embed_batches"]

REQUEST_SCHEMA: Final = pa.schema({"request": pa.binary()})
OUTPUT_COLUMNS: Final = "doc_id string, chunk_id string, vector array<float>, cost_usd double, reason string"
_OUTPUT: Final[list[pa.Field[Any]]] = [
    pa.field("doc_id", pa.string()),
    pa.field("chunk_id", pa.string()),
    pa.field("vector", pa.list_(pa.float32())),
    pa.field("cost_usd", pa.float64()),
    pa.field("reason", pa.string()),
]
_OUTPUT_SCHEMA: Final = pa.schema(_OUTPUT)
# Requests under way at once from one task; the provider's own limits are the dispatcher's to keep.
_REQUESTS_AT_ONCE: Final = 4


@dataclass(frozen=True)
class Embedding:
    """Who embeds. Pickles with the task; the key is left out of what is printed."""

    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    profile: ModelProfile | None = None
    policy: DispatchPolicy = field(default_factory=DispatchPolicy)

    def profile_of(self, model: str) -> ModelProfile:
        """The limits of a model that can be asked; `InvalidInput` for any other."""
        if self.url is None and model != EMBEDDED_MODEL:
            raise InvalidInput(
                f"model {model!r} cannot be asked", "it has no endpoint", f"give its URL, or use {EMBEDDED_MODEL}"
            )
        return self.profile or profile_of(model)

    def chunking_of(self, model: str, wanted: ChunkingConfig) -> ChunkingConfig:
        """`wanted`, made smaller where the model takes less: a text is never cut off."""
        return self.profile_of(model).chunking(wanted)

    def provider(self, model: str) -> EmbeddingProvider:
        if self.url is None:
            return StaticProvider()
        return OpenAiProvider(self.url, self.profile_of(model), api_key=self.api_key)


def embed_batches(embedding: Embedding, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows of `REQUEST_SCHEMA` in, rows of `OUTPUT_COLUMNS` out."""
    for batch in batches:
        requests = [decode(row["request"], BatchRequest) for row in batch.to_pylist()]
        yield from asyncio.run(_embed_all(embedding, requests))


async def _embed_all(embedding: Embedding, requests: list[BatchRequest]) -> list[pa.RecordBatch]:
    gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)
    models = sorted({request.model for request in requests})
    providers = {model: embedding.provider(model) for model in models}
    dispatchers = {model: Dispatcher(provider, retry=embedding.policy) for model, provider in providers.items()}

    async def embed(request: BatchRequest) -> pa.RecordBatch:
        async with gate:
            return _rows(request, await dispatchers[request.model].embed(request))

    try:
        return await asyncio.gather(*map(embed, requests))
    finally:
        for provider in providers.values():
            await provider.close()


def _rows(request: BatchRequest, embedded: Embedded) -> pa.RecordBatch:
    """A batch's cost is shared out evenly: providers bill requests, reports are of documents."""
    share = embedded.cost_usd / max(1, len(request.inputs))
    reasons = {letter.chunk_id: letter.reason for letter in embedded.dead_letters}
    rows = []
    for item in request.inputs:
        vector = embedded.vectors.get(item.chunk_id)
        if vector is not None and not np.any(vector):
            # Nothing in it that the model knows: it has no direction to compare.
            vector, reasons[item.chunk_id] = None, "the model knows nothing in it"
        rows.append(
            {
                "doc_id": item.doc_id,
                "chunk_id": item.chunk_id,
                "vector": vector,
                "cost_usd": share,
                "reason": reasons.get(item.chunk_id),
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=_OUTPUT_SCHEMA)
