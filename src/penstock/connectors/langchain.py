"""A LangChain retriever over an index: `langchain_retriever(IndexAccess("handbook.store")).invoke("who approves travel")`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.connectors.index_access import IndexAccess, missing_framework, passage_id, passage_metadata, waited_for

if TYPE_CHECKING:
    from langchain_core.retrievers import BaseRetriever

__all__ = ["langchain_retriever"]


def langchain_retriever(access: IndexAccess, **options: Any) -> BaseRetriever:
    """Passages as documents, best first; their metadata holds score, key, title, headings, page, language and more.

    `options` are those of LangChain's `BaseRetriever`, such as `tags`. `Unavailable` without the extra `langchain`.
    """
    try:
        made = _retriever_class()
    except ModuleNotFoundError as error:
        raise missing_framework("LangChain", "langchain") from error
    return made(access=access, **options)


@cache
def _retriever_class() -> Any:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    def document(passage: dict[str, Any]) -> Document:
        return Document(page_content=passage["text"], metadata=passage_metadata(passage), id=passage_id(passage))

    class PenstockRetriever(BaseRetriever):  # type: ignore[misc] # the framework may be absent here
        access: IndexAccess

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [document(passage) for passage in waited_for(self.access.passages(query))]

        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [document(passage) for passage in await self.access.passages(query)]

    # Its annotation is a text here, whose names are those of this module.
    PenstockRetriever.model_rebuild(_types_namespace={"IndexAccess": IndexAccess})
    return PenstockRetriever
