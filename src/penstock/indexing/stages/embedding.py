"""Embeds batches: what one task of the embedding stage does. One row a chunk, with its vector or why it has none.

The embedded model is the default and needs nothing; with a URL, any OpenAI-compatible endpoint serves. A provider that
stays away is no error here: its requests are told to the driver, which decides when to send them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.clock import SYSTEM_CLOCK
from penstock.documents import BatchRequest, ChunkingConfig, vo_key
from penstock.documents.embedding import (
    LOCAL_MODELS,
    MAGNITUDE_MAX,
    REQUEST_SECONDS_MAX,
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
    ShortenedProvider,
    local_provider,
    profile_of,
)
from penstock.errors import InvalidInput
from penstock.indexing.stages.wire import ANSWER_SCHEMA
from penstock.observability import SILENT, Observer, names

__all__ = ["UNKNOWN_TEXT", "Embedding", "Endpoint", "IndexKey", "ModelAccess", "OwnModel", "embed_requests"]

# A tenant and its index; None asks for what holds in the whole store.
IndexKey: TypeAlias = tuple[str, str] | None

# The reason of a chunk whose vector has no direction: the model took it, and knows no word of it.
UNKNOWN_TEXT: Final = "the model knows nothing in it"

# Tries of a request while others wait for the round it is of: some seconds, and not minutes.
_BRISK_ATTEMPTS_MAX: Final = 3
# For a word, from a model that did not answer before.
_TRIAL_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True)
class Endpoint:
    """The endpoint of a model. Its key is sent only to this address, and never printed."""

    url: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class OwnModel:
    """A model's settings that belong to one index: its endpoint and its profile. None uses those of the store."""

    endpoint: Endpoint | None = None
    profile: ModelProfile | None = None


@dataclass(frozen=True)
class ModelAccess:
    """How a model is asked; two indexes with the same one share a provider."""

    model: str
    endpoint: Endpoint | None
    profile: ModelProfile

    @property
    def source(self) -> str:
        return _source(self.model, self.endpoint)

    def provider(self, timeout_seconds: float) -> EmbeddingProvider:
        found = self._whole(timeout_seconds)
        return found if self.profile.model_dimensions is None else ShortenedProvider(found, self.profile)

    def _whole(self, timeout_seconds: float) -> EmbeddingProvider:
        if self.endpoint is None:
            return local_provider(self.model)
        return OpenAiProvider(self.endpoint.url, self.profile, api_key=self.endpoint.api_key, timeout=timeout_seconds)


@dataclass(frozen=True)
class Embedding:
    """The embedding provider of a job. Pickles with the task; the key is left out of what is printed."""

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
    # Of single indexes, by tenant, index and model: two with one model may ask it at two addresses.
    own: Mapping[tuple[str, str, str], OwnModel] = field(default_factory=dict)
    # Sources that did not answer before: they are asked for a word first.
    trials: frozenset[str] = frozenset()

    def endpoint_of(self, model: str, index: IndexKey = None) -> Endpoint | None:
        """Where an index asks a model; None when it runs in this process."""
        everywhere = Endpoint(self.url, self.api_key) if self.url is not None else None
        found = self._own(model, index).endpoint or self.endpoints.get(model, everywhere)
        return replace(found, api_key=self._key_of(found.url)) if found and found.api_key is None else found

    def source_of(self, model: str, index: IndexKey = None) -> str:
        """What answers or fails as one: a model at an address."""
        return _source(model, self.endpoint_of(model, index))

    def described(self, model: str, index: IndexKey = None) -> ModelProfile | None:
        """What was said of a model, for an index or for the whole store."""
        return self._own(model, index).profile or self.profiles.get(model)

    def brisk(self, trials: frozenset[str]) -> Embedding:
        """With little patience, for a round in which the documents of other endpoints wait."""
        attempts = min(self.policy.attempts_max, _BRISK_ATTEMPTS_MAX)
        return replace(self, policy=replace(self.policy, attempts_max=attempts), trials=trials)

    def _key_of(self, url: str) -> str | None:
        keys = {_address(known): key for known, key in self.keys.items()}
        return keys.get(_address(url))

    def knowing(self, remembered: Mapping[tuple[str, str, str], OwnModel]) -> Embedding:
        """With what indexes remember, where nothing else is given. A key goes nowhere but to the address it is for."""
        endpoints = [*self.endpoints.values(), *(own.endpoint for own in self.own.values() if own.endpoint)]
        given = {endpoint.url: endpoint.api_key for endpoint in endpoints if endpoint.api_key}
        known = {key: self._beside(key, own) for key, own in remembered.items()}
        return replace(self, own={**self.own, **known}, keys={**self.keys, **given})

    def _beside(self, key: tuple[str, str, str], remembered: OwnModel) -> OwnModel:
        given, model = self.own.get(key, _NOTHING_OWN), key[2]
        is_asked = self.url is not None or model in self.endpoints
        is_described = self.profile is not None or model in self.profiles
        return OwnModel(
            given.endpoint or (None if is_asked else remembered.endpoint),
            given.profile or (None if is_described else remembered.profile),
        )

    def _own(self, model: str, index: IndexKey) -> OwnModel:
        return _NOTHING_OWN if index is None else self.own.get((*index, model), _NOTHING_OWN)

    def profile_of(self, model: str, index: IndexKey = None) -> ModelProfile:
        """The limits of a model that an index can ask; `InvalidInput` for any other."""
        if self.endpoint_of(model, index) is None and model not in LOCAL_MODELS:
            raise InvalidInput(
                f"model {model!r} cannot be asked",
                "it has no endpoint",
                f"give its URL, or use one of {', '.join(sorted(LOCAL_MODELS))}",
            )
        return self._own(model, index).profile or self.profile or self.profiles.get(model) or profile_of(model)

    def chunking_of(self, model: str, wanted: ChunkingConfig, index: IndexKey = None) -> ChunkingConfig:
        """`wanted`, made smaller where the model takes less: a text is never cut off."""
        return self.profile_of(model, index).chunking(wanted)

    def provider(self, model: str, index: IndexKey = None) -> EmbeddingProvider:
        return self.access_of(model, index).provider(self.timeout_seconds)

    def access_of(self, model: str, index: IndexKey) -> ModelAccess:
        return ModelAccess(model, self.endpoint_of(model, index), self.profile_of(model, index))


_NOTHING_OWN: Final = OwnModel()


async def embed_requests(
    embedding: Embedding, tasks: int, requests: Mapping[int, BatchRequest], *, observer: Observer = SILENT
) -> pa.Table:
    """As one of `tasks` that share the rate limit: rows of `wire.ANSWER_SCHEMA`, for requests told apart by number."""
    return pa.Table.from_batches(await _embed_all(embedding, tasks, requests, observer), ANSWER_SCHEMA)


async def _embed_all(
    embedding: Embedding, tasks: int, requests: Mapping[int, BatchRequest], observer: Observer
) -> list[pa.RecordBatch]:
    gate = asyncio.Semaphore(embedding.policy.requests_at_once)
    # Not full: what was saved up before this round is the driver's to give.
    pace = Pace(embedding.rate.shared(tasks), full=False)
    asked = {place: _access(embedding, request) for place, request in requests.items()}
    providers: dict[ModelAccess, EmbeddingProvider] = {}
    away: dict[ModelAccess, Later | None] = {}
    for access in dict.fromkeys(asked.values()):
        try:
            providers[access] = access.provider(embedding.timeout_seconds)
        except InvalidInput as error:
            # Of this endpoint alone; others are asked as ever.
            away[access] = Later(str(error))
    # No cache between batches: which of them finds the other's text would be a matter of timing, and with it what is sent.
    dispatchers = {
        access: Dispatcher(provider, cache=NoCache(), pace=pace, retry=embedding.policy)
        for access, provider in providers.items()
    }
    away |= {access: await _tried(embedding, access) for access in providers if access.source in embedding.trials}

    async def embed(place: int, request: BatchRequest) -> pa.RecordBatch:
        access = asked[place]
        if found := away.get(access):
            return _rows(place, request, Embedded(request.batch_id, away=found))
        async with gate:
            began_ms, began = SYSTEM_CLOCK.now_ms(), SYSTEM_CLOCK.monotonic()
            embedded = await dispatchers[access].attempt(request)
            ended_ms = began_ms + (SYSTEM_CLOCK.monotonic() - began) * 1000
        _tell(request, embedded, began_ms, ended_ms, observer)
        return _rows(place, request, _checked(embedded, providers[access].profile))

    try:
        return await asyncio.gather(*(embed(place, request) for place, request in requests.items()))
    finally:
        for provider in providers.values():
            await provider.close()


def _tell(request: BatchRequest, embedded: Embedded, began_ms: float, ended_ms: float, observer: Observer) -> None:
    observer.past_span(
        names.INDEXING_EMBED,
        began_ms,
        ended_ms,
        links=request.traceparents,
        batchId=request.batch_id,
        key=vo_key(request.tenant_id, request.index_id, request.model),
        items=len(request.inputs),
        tokens=request.tokens_total,
        retries=embedded.retries,
        answered=embedded.away is None,
    )


def _access(embedding: Embedding, request: BatchRequest) -> ModelAccess:
    return embedding.access_of(request.model, (request.tenant_id, request.index_id))


async def _tried(embedding: Embedding, access: ModelAccess) -> Later | None:
    """What a model answers that did not answer before, asked for a word: None when it is there again."""
    provider = access.provider(min(embedding.timeout_seconds, _TRIAL_SECONDS_MAX))
    probe = Dispatcher(provider, cache=NoCache(), retry=DispatchPolicy(attempts_max=1))
    try:
        return await probe.probe(f"{access.model}/trial")
    finally:
        await provider.close()


def _source(model: str, endpoint: Endpoint | None) -> str:
    return model if endpoint is None else f"{model} at {_address(endpoint.url)}"


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
    items = () if away else request.inputs
    reasons = _reasons(embedded)
    # A batch's cost is shared out evenly: providers bill requests, reports are of documents.
    share = embedded.cost_usd / len(request.inputs)
    names = [item.chunk_id for item in items]
    missing = [None] * len(items)
    columns: dict[str, list[Any]] = {
        "request": [place] * (len(items) + 1),
        "chunk_id": [*names, None],
        "vector": [*(None if name in reasons else embedded.vectors[name] for name in names), None],
        "cost_usd": [*([share] * len(items)), None],
        "reason": [*map(reasons.get, names), away and away.reason],
        "retries": [*missing, embedded.retries],
        "after_seconds": [*missing, away and away.after_seconds],
    }
    return pa.RecordBatch.from_pydict(columns, ANSWER_SCHEMA)


def _reasons(embedded: Embedded) -> dict[str, str]:
    """Why chunks have no vector, by their ids."""
    reasons = {letter.chunk_id: letter.reason for letter in embedded.dead_letters}
    for name, vector in embedded.vectors.items():
        if np.abs(vector).max(initial=0) > MAGNITUDE_MAX:
            reasons[name] = f"the model answered a number beyond {MAGNITUDE_MAX:g}"
        elif not np.any(vector):
            # Nothing in it that the model knows: it has no direction to compare.
            reasons[name] = UNKNOWN_TEXT
    return reasons
