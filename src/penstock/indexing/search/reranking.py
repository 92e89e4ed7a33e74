"""The first passages of an answer in the order of a reranker, off unless somebody names one.

Always the same number of passages is judged, however few are asked for, so that asking for more makes an answer longer
and changes nothing else; those behind them follow in their own order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import Unavailable

if TYPE_CHECKING:
    from penstock.documents.embedding import Reranker

__all__ = ["RERANKED", "RerankEndpoint", "rerank_at", "reranked"]

# More passages cost more, and the right one is hardly ever farther behind.
RERANKED: Final = 50


@dataclass(frozen=True, slots=True)
class RerankEndpoint:
    """Where passages are judged, by which model, and with which key."""

    url: str
    model: str = ""
    key: str | None = field(default=None, repr=False)

    def open(self) -> Reranker:
        # Most questions are not reranked, and load no client of HTTP.
        from penstock.documents.embedding import RemoteReranker

        return RemoteReranker(self.url, self.model, api_key=self.key)


async def rerank_at(endpoint: RerankEndpoint, hits: Sequence[dict[str, Any]], question: str) -> list[dict[str, Any]]:
    """The hits as an endpoint orders them."""
    reranker = endpoint.open()
    try:
        return await reranked(hits, question, reranker)
    finally:
        await reranker.close()


async def reranked(hits: Sequence[dict[str, Any]], question: str, reranker: Reranker) -> list[dict[str, Any]]:
    """The hits, the first of them by the reranker's scores; of equals, the one that was before."""
    from penstock.documents.embedding import Scores

    judged, behind = hits[:RERANKED], hits[RERANKED:]
    answer = await reranker.rerank(question, [_read_together(hit) for hit in judged])
    if not isinstance(answer, Scores):
        raise Unavailable("the reranking endpoint did not answer", answer.reason, "try again, or omit --rerank")
    order = sorted(range(len(judged)), key=lambda place: -answer.values[place])
    return [*({**judged[place], "rerank_score": answer.values[place]} for place in order), *behind]


def _read_together(hit: dict[str, Any]) -> str:
    """A passage below its title and headings."""
    return f"{hit['section']}\n\n{hit['text']}" if hit["section"] else hit["text"]
