"""The port to rerankers: models that read a question and a passage together, and an endpoint behind it.

A reranker judges some tens of passages that a search has found. The endpoint has the shape that Jina, Cohere, Voyage and
vLLM share: `POST {url}` with `model`, `query` and `documents`, answered by `results` with `index` and
`relevance_score`. Answers are those of embedding models: scores, "later" or "refused"; a wrong key is raised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents.embedding.http_answers import answer_of_status, client_for, posted
from penstock.documents.embedding.provider import Later, Refused
from penstock.errors import Corrupt, InvalidInput
from penstock.undecodable import UNDECODABLE

if TYPE_CHECKING:
    import httpx

__all__ = ["RemoteReranker", "Reranker", "Scores"]

# People wait for it.
RERANK_SECONDS_MAX: Final = 20.0
_OK: Final = 200
# A thousand passages, each with its score; some endpoints send the passages back.
_ANSWER_BYTES_MAX: Final = 16 << 20


class Scores(msgspec.Struct, frozen=True):
    """How well each passage answers the question, in the order of the passages; more is better."""

    values: tuple[float, ...]


class Reranker(Protocol):
    """Judges passages by a question."""

    async def rerank(self, question: str, passages: Sequence[str]) -> Scores | Later | Refused: ...

    async def close(self) -> None: ...


class _Judged(msgspec.Struct):
    index: int
    relevance_score: float


class _Results(msgspec.Struct):
    results: list[_Judged]


class RemoteReranker:
    """A reranking endpoint over HTTP. One instance serves any number of questions; close it at the end."""

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        api_key: str | None = None,
        timeout: float = RERANK_SECONDS_MAX,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput(
                f"not the address of a reranking endpoint: {url[:120]!r}", "it must begin with http(s)://"
            )
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        what = "the reranking endpoint cannot be asked"
        self._client = client_for(what, url, headers=headers, timeout=timeout, transport=transport)
        self._url, self._timeout = url, timeout
        self._model, self._api_key = model, api_key
        self._clock = clock

    async def rerank(self, question: str, passages: Sequence[str]) -> Scores | Later | Refused:
        if not passages:
            return Scores(())
        body = {"query": question, "documents": list(passages), "top_n": len(passages), "return_documents": False}
        named = {"model": self._model, **body} if self._model else body
        response = await posted(
            self._client,
            self._url,
            msgspec.json.encode(named),
            seconds=self._timeout,
            bytes_max=_ANSWER_BYTES_MAX,
        )
        if isinstance(response, Later):
            return response
        if response.status == _OK:
            return _scores(response.content, len(passages))
        what = "the reranking endpoint refuses the question"
        return answer_of_status(response, what, self._clock, secret=self._api_key, texts=[question, *passages])

    async def close(self) -> None:
        await self._client.aclose()


def _scores(content: bytes, count: int) -> Scores:
    try:
        judged = msgspec.json.decode(content, type=_Results).results
    except UNDECODABLE as error:
        raise Corrupt("the reranking endpoint did not answer with a ranking", str(error)) from error
    found = {each.index: each.relevance_score for each in judged}
    if len(judged) != count or sorted(found) != list(range(count)) or not all(map(math.isfinite, found.values())):
        raise Corrupt("the reranking endpoint scored other passages", f"{len(judged)} scores for {count} passages")
    return Scores(tuple(found[place] for place in range(count)))
