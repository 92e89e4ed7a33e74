"""A LangChain retriever over an index: `PenstockRetriever(store="handbook.store").invoke("who approves travel")`."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from penstock.connectors.asking import IndexAccess, passage_id, passage_metadata, waited_for

__all__ = ["PenstockRetriever"]


class PenstockRetriever(BaseRetriever):  # type: ignore[misc] # the framework is an extra, and may be absent here
    """Passages as documents, best first; their metadata holds score, key, title, headings, page, language and more."""

    store: str
    index: str = "default"
    tenant: str = "default"
    count: int = 5
    mode: str = "hybrid"
    filter: str | None = None
    min_score: float | None = None
    per_document: int | None = None
    context: int = 0

    @property
    def _access(self) -> IndexAccess:
        return IndexAccess(
            store=self.store,
            index=self.index,
            tenant=self.tenant,
            count=self.count,
            mode=self.mode,
            filter=self.filter,
            min_score=self.min_score,
            per_document=self.per_document,
            context=self.context,
        )

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Any]:
        return [_document(passage) for passage in waited_for(self._access.passages(query))]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Any]:
        return [_document(passage) for passage in await self._access.passages(query)]


def _document(passage: dict[str, Any]) -> Any:
    return Document(page_content=passage["text"], metadata=passage_metadata(passage), id=passage_id(passage))
