"""Embeds batches on executors: one row a request in, one row a chunk out, with its vector or the reason it has none.

The embedded model is the default and needs nothing; with a URL, any OpenAI-compatible endpoint serves. A provider that
stays away is no error here: its requests are told to the driver, which decides when to send them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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
    Later,
    ModelProfile,
    NoCache,
    OpenAiProvider,
    Pace,
    RateLimit,
    StaticProvider,
    profile_of,
)
from penstock.documents.embedding.remote import REQUEST_SECONDS_MAX
from penstock.errors import InvalidInput
from penstock.pipelines.workers import settle_worker

__all__ = ["OUTPUT_COLUMNS", "REQUEST_SCHEMA", "UNKNOWN_TEXT", "Embedding", "Endpoint", "embed_batches"]

# The reason of a chunk whose vector has no direction: the model took it, and knows no word of it.
UNKNOWN_TEXT: Final = "the model knows nothing in it"

_REQUEST: Final[list[pa.Field[Any]]] = [
    # Among the requests of the round: what is answered is told apart by it.
    pa.field("place", pa.int64()),
    pa.field("request", pa.binary()),
]
REQUEST_SCHEMA: Final = pa.schema(_REQUEST)
OUTPUT_COLUMNS: Final = (
    "request long, chunk_id string, vector array<float>, cost_usd double, reason string, retries long, "
    "after_seconds double"
)
_OUTPUT: Final[list[pa.Field[Any]]] = [
    pa.field("request", pa.int64()),
    pa.field("chunk_id", pa.string()),
    pa.field("vector", pa.list_(pa.float32())),
    pa.field("cost_usd", pa.float64()),
    pa.field("reason", pa.string()),
    # Of rows without a chunk: how a request went, and with a reason, that it must be sent again.
    pa.field("retries", pa.int64()),
    pa.field("after_seconds", pa.float64()),
]
_OUTPUT_SCHEMA: Final = pa.schema(_OUTPUT)
# Tries of a request while others wait for the round it is of: some seconds, and not minutes.
_BRISK_ATTEMPTS_MAX: Final = 3
# For a word, from a model that did not answer before.
_TRIAL_SECONDS_MAX: Final = 10.0
# What a store compares at most. Its own bound, said again: a worker that does not import it starts twice as fast.
MAGNITUDE_MAX: Final = 1e15
# Requests under way at once from one task; the provider's own limits are the dispatcher's to keep.
_REQUESTS_AT_ONCE: Final = 4


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked; the key is for this address alone, and left out of what is printed."""

    url: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Embedding:
    """Who embeds. Pickles with the task; the key is left out of what is printed."""

    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    profile: ModelProfile | None = None
    policy: DispatchPolicy = field(default_factory=DispatchPolicy)
    # For one answer; a request that takes longer is asked again.
    timeout_seconds: float = REQUEST_SECONDS_MAX
    # For models that are asked elsewhere than at `url`.
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    # Of models that have none here, or another one.
    profiles: Mapping[str, ModelProfile] = field(default_factory=dict)
    # What all tasks together may ask for.
    rate: RateLimit = field(default_factory=RateLimit)
    # By address, for endpoints that an index remembers and those that are given without one.
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Models that did not answer before: they are asked for a word first.
    trials: frozenset[str] = frozenset()

    def endpoint_of(self, model: str) -> Endpoint | None:
        """Where a model is asked; None when the embedded one answers."""
        own = Endpoint(self.url, self.api_key) if self.url is not None else None
        found = self.endpoints.get(model, own)
        return replace(found, api_key=self._key_of(found.url)) if found and found.api_key is None else found

    def brisk(self, trials: frozenset[str]) -> Embedding:
        """With little patience, for a round in which the documents of other endpoints wait."""
        attempts = min(self.policy.attempts_max, _BRISK_ATTEMPTS_MAX)
        return replace(self, policy=replace(self.policy, attempts_max=attempts), trials=trials)

    def _key_of(self, url: str) -> str | None:
        keys = {_address(known): key for known, key in self.keys.items()}
        return keys.get(_address(url))

    def knowing(self, urls: Mapping[str, str], profiles: Mapping[str, ModelProfile] | None = None) -> Embedding:
        """With addresses and profiles of further models. A key goes nowhere but to the address it was given for."""
        given = {endpoint.url: endpoint.api_key for endpoint in self.endpoints.values() if endpoint.api_key}
        known = {model: Endpoint(url) for model, url in urls.items()} if self.url is None else {}
        described = {**(profiles or {}), **self.profiles}
        return replace(self, endpoints={**known, **self.endpoints}, profiles=described, keys={**self.keys, **given})

    def profile_of(self, model: str) -> ModelProfile:
        """The limits of a model that can be asked; `InvalidInput` for any other."""
        if self.endpoint_of(model) is None and model != EMBEDDED_MODEL:
            raise InvalidInput(
                f"model {model!r} cannot be asked", "it has no endpoint", f"give its URL, or use {EMBEDDED_MODEL}"
            )
        return self.profile or self.profiles.get(model) or profile_of(model)

    def chunking_of(self, model: str, wanted: ChunkingConfig) -> ChunkingConfig:
        """`wanted`, made smaller where the model takes less: a text is never cut off."""
        return self.profile_of(model).chunking(wanted)

    def provider(self, model: str, *, timeout_seconds: float | None = None) -> EmbeddingProvider:
        asked = self.endpoint_of(model)
        if asked is None:
            return StaticProvider()
        timeout = min(self.timeout_seconds, timeout_seconds or self.timeout_seconds)
        return OpenAiProvider(asked.url, self.profile_of(model), api_key=asked.api_key, timeout=timeout)


def embed_batches(embedding: Embedding, tasks: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`, as one of `tasks`: rows of `REQUEST_SCHEMA` in, rows of `OUTPUT_COLUMNS` out."""
    settle_worker("embed")
    for batch in batches:
        requests = {row["place"]: decode(row["request"], BatchRequest) for row in batch.to_pylist()}
        yield from asyncio.run(_embed_all(embedding, tasks, requests))


async def _embed_all(embedding: Embedding, tasks: int, requests: dict[int, BatchRequest]) -> list[pa.RecordBatch]:
    gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)
    # Not full: what was saved up before this round is the driver's to give.
    pace = Pace(embedding.rate.shared(tasks), full=False)
    models = sorted({request.model for request in requests.values()})
    providers = {model: embedding.provider(model) for model in models}
    # No cache between batches: which of them finds the other's text would be a matter of timing, and with it what is sent.
    dispatchers = {
        model: Dispatcher(provider, cache=NoCache(), pace=pace, retry=embedding.policy)
        for model, provider in providers.items()
    }

    away = {model: await _tried(embedding, model) for model in models if model in embedding.trials}

    async def embed(place: int, request: BatchRequest) -> pa.RecordBatch:
        if found := away.get(request.model):
            return _rows(place, request, Embedded(request.batch_id, away=found))
        async with gate:
            embedded = await dispatchers[request.model].attempt(request)
        return _rows(place, request, _checked(embedded, providers[request.model].profile))

    try:
        return await asyncio.gather(*(embed(place, request) for place, request in requests.items()))
    finally:
        for provider in providers.values():
            await provider.close()


async def _tried(embedding: Embedding, model: str) -> Later | None:
    """What a model answers that did not answer before, asked for a word: None when it is there again."""
    provider = embedding.provider(model, timeout_seconds=_TRIAL_SECONDS_MAX)
    try:
        return await Dispatcher(provider, cache=NoCache(), retry=DispatchPolicy(attempts_max=1)).probe(f"{model}/trial")
    finally:
        await provider.close()


def _address(url: str) -> str:
    return url.rstrip("/")


def _checked(embedded: Embedded, profile: ModelProfile) -> Embedded:
    """A provider whose vectors have another length than its profile says is misconfigured: no store would take them."""
    lengths = {len(vector) for vector in embedded.vectors.values()} - {profile.dimensions}
    if lengths and embedded.away is None:
        told = f"vectors of {lengths.pop()} numbers, where the profile of {profile.name} says {profile.dimensions}"
        embedded.away = Later(f"the endpoint answers with {told}")
    return embedded


def _rows(place: int, request: BatchRequest, embedded: Embedded) -> pa.RecordBatch:
    """One row a chunk, and a last one for the request; of a request that must be sent again, only that."""
    away = embedded.away
    told = {
        "request": place,
        "retries": embedded.retries,
        "reason": away and away.reason,
        "after_seconds": away and away.after_seconds,
    }
    rows = [] if away else _chunk_rows(place, request, embedded)
    return pa.RecordBatch.from_pylist([*rows, told], _OUTPUT_SCHEMA)


def _chunk_rows(place: int, request: BatchRequest, embedded: Embedded) -> list[dict[str, Any]]:
    """A batch's cost is shared out evenly: providers bill requests, reports are of documents."""
    reasons = {letter.chunk_id: letter.reason for letter in embedded.dead_letters}
    for name, vector in embedded.vectors.items():
        if np.abs(vector).max(initial=0) > MAGNITUDE_MAX:
            reasons[name] = f"the model answered a number beyond {MAGNITUDE_MAX:g}"
        elif not np.any(vector):
            # Nothing in it that the model knows: it has no direction to compare.
            reasons[name] = UNKNOWN_TEXT
    share = embedded.cost_usd / len(request.inputs)
    return [
        {
            "request": place,
            "chunk_id": item.chunk_id,
            "vector": None if item.chunk_id in reasons else embedded.vectors[item.chunk_id],
            "cost_usd": share,
            "reason": reasons.get(item.chunk_id),
        }
        for item in request.inputs
    ]
