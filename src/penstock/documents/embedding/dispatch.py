"""From a batch to its vectors: cached ones for nothing, the others paced, repeated, split and paid for.

"Later" is repeated with growing pauses and jitter, and never sooner than the provider asked. "Refused" splits the texts
in halves until the one text that is not accepted stands alone; it becomes a dead letter, and all others get their
vectors. A text over the model's limit is a dead letter without being sent: nothing is ever cut off. Each request's
idempotency key holds the digest of the texts in it, so that one key always means one content.

Before texts are blamed for a refusal, the provider is asked for a word that every model takes. One that refuses that too
is misconfigured: it counts as away, and no text is lost to it. So is one that answers it with zeros, or with numbers
that no store compares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents.contracts import BatchInput, BatchRequest
from penstock.documents.embedding.cache import EmbeddingCache, MemoryCache
from penstock.documents.embedding.pace import Pace
from penstock.documents.embedding.provider import (
    MAGNITUDE_MAX,
    Answer,
    EmbeddingProvider,
    Later,
    Refused,
    Vectors,
    checked,
    is_comparable,
)
from penstock.documents.identity import content_key
from penstock.documents.tokens import EstimatedTokens, TokenCounter
from penstock.errors import Corrupt, InvalidInput, NotFound, PenstockError, PermissionDenied, Unavailable
from penstock.ids import SYSTEM_ENTROPY, Entropy

__all__ = ["DispatchPolicy", "Dispatcher", "Embedded", "FailedChunk"]


@dataclass(frozen=True, slots=True)
class DispatchPolicy:
    """How embedding requests are retried: eight attempts, with pauses of up to 0.5, 1, 2 … 30 seconds, take about
    two minutes.
    """

    # Attempts to embed one batch before it is given up.
    attempts_max: int = 8
    # First pause between requests, in seconds, with jitter.
    pause_seconds: float = 0.5
    # Longest pause between requests, in seconds.
    pause_seconds_max: float = 30.0
    # Longest pause that a provider may ask for, in seconds. A provider that asks for more counts as down, and the
    # batch goes back to the queue.
    asked_seconds_max: float = 300.0
    # Requests in progress at once from one task.
    requests_at_once: int = 4

    def __post_init__(self) -> None:
        if self.attempts_max < 1:
            raise InvalidInput(f"attempts_max={self.attempts_max} is not possible", "a batch is sent at least once")
        if self.requests_at_once < 1:
            raise InvalidInput(f"requests_at_once={self.requests_at_once} is not possible", "one is sent at least")


@dataclass(frozen=True, slots=True)
class FailedChunk:
    """A chunk that the model does not take, and why."""

    doc_id: str
    chunk_id: str
    seq: int
    reason: str


@dataclass(slots=True)
class Embedded:
    """What became of a batch: a vector or a dead letter for every chunk, and what it cost."""

    batch_id: str
    vectors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    dead_letters: list[FailedChunk] = field(default_factory=list)
    requests: int = 0
    retries: int = 0
    cached: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    # The last answer of a provider that stayed away: then the batch is to be sent again, whole.
    away: Later | None = None
    # Why it is away, when no pause will heal that.
    failure: PenstockError | None = None
    # Refusals that are still believed to be the texts' fault.
    trusted: int = 0


@dataclass(frozen=True, slots=True)
class _Text:
    key: str
    text: str
    tokens: int


# Half of a half …: a request has at most a few thousand texts, and a split ends at one.
_PLACE_SEPARATOR: Final = "#"
# What every model takes: whoever refuses it refuses everything.
PROBE: Final = "water"
# Refusals in a row that are laid to the texts before the provider is asked again what it thinks of the probe.
_REFUSALS_TRUSTED: Final = 8
# What no other text of the batch would heal: a wrong key, an unknown model, an answer that is none.
_MISCONFIGURED: Final = (PermissionDenied, NotFound, InvalidInput, Corrupt)


class Dispatcher:
    """Embeds batches with one provider. Batches may run at the same time; they share the pace and the cache."""

    def __init__(
        self,
        provider: EmbeddingProvider,
        *,
        cache: EmbeddingCache | None = None,
        pace: Pace | None = None,
        retry: DispatchPolicy | None = None,
        counter: TokenCounter | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        self._provider = provider
        self._profile = provider.profile
        self._cache = cache or MemoryCache()
        self._pace = pace or Pace(clock=clock)
        self._retry = retry or DispatchPolicy()
        self._counter = counter or EstimatedTokens()
        self._clock = clock
        self._entropy = entropy

    async def embed(self, request: BatchRequest) -> Embedded:
        """Vectors for every chunk that has one; `Unavailable` when the provider stays away, with nothing lost."""
        result = await self.attempt(request)
        if result.failure is not None:
            raise result.failure
        if result.away is not None:
            raise Unavailable(
                f"model {self._profile.name} did not embed batch {result.batch_id}",
                result.away.reason,
                "the batch stays in the queue and is tried again",
            )
        return result

    async def attempt(self, request: BatchRequest) -> Embedded:
        """The same without an error: a provider that stayed away is told in the result, with the pause it asked for."""
        result = Embedded(request.batch_id)
        try:
            await self._attempt(request, result)
        except _MISCONFIGURED as error:
            result.away, result.failure = Later(str(error)), error
        return result

    async def _attempt(self, request: BatchRequest, result: Embedded) -> None:
        keys = [content_key(item.text, request.model) for item in request.inputs]
        known = await self._cache.get(list(dict.fromkeys(keys)))
        result.cached = sum(key in known for key in keys)
        refused: dict[str, str] = {}
        wanted = {key: item for key, item in zip(keys, request.inputs, strict=True) if key not in known}
        place = request.batch_id.rpartition(":")[0]
        for number, part in enumerate(self._parts(wanted, refused)):
            # A batch that its model takes only in parts has a place for each: one place always means one content.
            known |= await self._embed(part, f"{place}/{number}" if number else place, result, refused)
            if result.away is not None:
                return
        for key, item in zip(keys, request.inputs, strict=True):
            if key in known:
                result.vectors[item.chunk_id] = known[key]
            else:
                result.dead_letters.append(FailedChunk(item.doc_id, item.chunk_id, item.seq, refused[key]))

    def _parts(self, wanted: dict[str, BatchInput], refused: dict[str, str]) -> list[list[_Text]]:
        """Requests within the model's limits, in order; texts that fit in none are refused here."""
        profile = self._profile
        parts: list[list[_Text]] = [[]]
        tokens = size = 0
        for key, item in wanted.items():
            entry = self._text(key, item)
            if fault := self._fault(entry):
                refused[key] = fault
                continue
            length = len(entry.text.encode("utf-8", "surrogatepass"))
            full = (
                len(parts[-1]) >= profile.items_per_request
                or tokens + entry.tokens > profile.tokens_per_request
                or (profile.bytes_per_request is not None and size + length > profile.bytes_per_request)
            )
            if full and parts[-1]:
                parts.append([])
                tokens = size = 0
            parts[-1].append(entry)
            tokens, size = tokens + entry.tokens, size + length
        return [part for part in parts if part]

    def _text(self, key: str, item: BatchInput) -> _Text:
        """With the count that its chunk was made by: another way of counting would refuse what was cut to fit."""
        counted = item.token_count if item.token_count is not None else self._counter.count(item.text)
        return _Text(key, item.text, counted)

    def _fault(self, entry: _Text) -> str:
        if not entry.text.strip():
            return "it is empty"
        limit = self._profile.tokens_per_input
        if entry.tokens > limit:
            return f"it has {entry.tokens} tokens, over the model's {limit}"
        return ""

    async def _embed(
        self, texts: list[_Text], place: str, result: Embedded, refused: dict[str, str]
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Vectors of `texts`, split around what the provider refuses."""
        answer = await self._ask(texts, place, result)
        if isinstance(answer, Later):
            result.away = answer
            return {}
        if isinstance(answer, Vectors):
            if not is_comparable(answer.rows):
                # Texts of words that a model does not know; or a model that is not there.
                result.away = await self._probed(place, result)
                if result.away is not None:
                    return {}
            found = {entry.key: row for entry, row in zip(texts, answer.rows, strict=True)}
            result.trusted = _REFUSALS_TRUSTED
            # Kept before the batch is done: what was paid for survives a fault in another half.
            await self._cache.put(found)
            return found
        if not await self._is_trusted(place, result):
            return {}
        if len(texts) == 1:
            refused[texts[0].key] = answer.reason
            return {}
        middle = len(texts) // 2
        left = await self._embed(texts[:middle], place, result, refused)
        if result.away is not None:
            return {}
        return left | await self._embed(texts[middle:], place, result, refused)

    async def _is_trusted(self, place: str, result: Embedded) -> bool:
        """Whether a refusal is the texts' fault; a provider that refuses everything is away, and no text is lost."""
        if not result.trusted:
            result.away = await self._probed(place, result)
            if result.away is not None:
                return False
            result.trusted = _REFUSALS_TRUSTED
        result.trusted -= 1
        return True

    async def probe(self, place: str) -> Later | None:
        """None when the provider takes a word that every model takes; else why it does not."""
        result = Embedded(place)
        try:
            return await self._probed(place, result)
        except _MISCONFIGURED as error:
            return Later(str(error))

    async def _probed(self, place: str, result: Embedded) -> Later | None:
        probe = _Text(content_key(PROBE, self._profile.name), PROBE, self._counter.count(PROBE))
        answer = await self._ask([probe], f"{place}/probe", result)
        if isinstance(answer, Refused):
            raise InvalidInput(
                f"the endpoint of model {self._profile.name} rejects every text",
                f"it also refuses {PROBE!r}, with {answer.reason}",
                "check the model's name and what the endpoint asks for",
            )
        if isinstance(answer, Vectors) and not is_comparable(answer.rows):
            told = f"numbers beyond {MAGNITUDE_MAX:g}" if answer.rows.any() else "zeros"
            raise InvalidInput(
                f"the endpoint of model {self._profile.name} answers {told} for every text",
                f"also for {PROBE!r}",
                "check the model's name, and that the endpoint has loaded it",
            )
        return answer if isinstance(answer, Later) else None

    async def _ask(self, texts: list[_Text], place: str, result: Embedded) -> Answer:
        """One request, repeated while the answer is "later"; the last such answer when that goes on for too long."""
        key = f"{place}{_PLACE_SEPARATOR}{_digest(texts)}"
        tokens = sum(entry.tokens for entry in texts)
        for attempt in range(self._retry.attempts_max):
            await self._pace.admit(tokens)
            result.requests += 1
            answer = await self._provider.embed([entry.text for entry in texts], idempotency_key=key)
            if isinstance(answer, Vectors):
                answer = checked(answer, len(texts), self._profile.name)
                used = answer.tokens if answer.tokens is not None else tokens
                result.tokens += used
                result.cost_usd += self._profile.cost_usd(used)
                return answer
            if isinstance(answer, Refused):
                return answer
            asked = answer.after_seconds or 0.0
            if asked > self._retry.asked_seconds_max:
                return Later(f"it asks for a pause of {asked:g} s: {answer.reason}", asked)
            if attempt + 1 == self._retry.attempts_max:
                return Later(f"{self._retry.attempts_max} tries, the last: {answer.reason}", answer.after_seconds)
            result.retries += 1
            await self._pause(asked, attempt)
        raise AssertionError("attempts_max is at least one")

    async def _pause(self, asked: float, attempt: int) -> None:
        retry = self._retry
        bound = min(retry.pause_seconds_max, retry.pause_seconds * 2**attempt)
        await self._clock.sleep(asked + self._entropy.uniform(0, bound))


def _digest(texts: Sequence[_Text]) -> str:
    return hashlib.sha256("\n".join(entry.key for entry in texts).encode("ascii")).hexdigest()
