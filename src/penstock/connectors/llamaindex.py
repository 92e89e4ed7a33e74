"""An index in LlamaIndex: a retriever of passages, and a reader of the texts of whole documents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.index_access import IndexAccess, missing_framework, passage_id, passage_metadata, waited_for

if TYPE_CHECKING:
    from llama_index.core.readers.base import BaseReader
    from llama_index.core.retrievers import BaseRetriever

__all__ = ["llamaindex_reader", "llamaindex_retriever"]

# Positions say nothing to a model, and neither do scores to an embedding.
_HIDDEN: Final = ("highlights", "start", "end", "seq", "score")


def llamaindex_retriever(access: IndexAccess, **options: Any) -> BaseRetriever:
    """Passages as nodes with their scores, best first. `Unavailable` without the extra `llamaindex`.

    `options` are those of LlamaIndex's `BaseRetriever`, such as `callback_manager`.
    """
    return _classes()[0](access, **options)


def llamaindex_reader(access: IndexAccess) -> BaseReader:
    """The texts of documents as they were indexed: `load_data(keys)`, or all that the filter of the access selects.

    `Unavailable` without the extra `llamaindex`.
    """
    return _classes()[1](access)


def _classes() -> tuple[Any, Any]:
    try:
        return _made_classes()
    except ModuleNotFoundError as error:
        raise missing_framework("LlamaIndex", "llamaindex") from error


@cache
def _made_classes() -> tuple[Any, Any]:
    from llama_index.core.readers.base import BaseReader
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import Document, NodeWithScore, TextNode

    def node(passage: dict[str, Any]) -> NodeWithScore:
        metadata = passage_metadata(passage)
        hidden = [name for name in _HIDDEN if name in metadata]
        made = TextNode(
            id_=passage_id(passage),
            text=passage["text"],
            metadata=metadata,
            excluded_llm_metadata_keys=hidden,
            excluded_embed_metadata_keys=hidden,
        )
        return NodeWithScore(node=made, score=passage["score"])

    class PenstockNodeRetriever(BaseRetriever):  # type: ignore[misc] # the framework may be absent here
        def __init__(self, access: IndexAccess, **options: Any) -> None:
            super().__init__(**options)
            self._access = access

        def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
            return [node(passage) for passage in waited_for(self._access.passages(query_bundle.query_str))]

        async def _aretrieve(self, query_bundle: Any) -> list[NodeWithScore]:
            return [node(passage) for passage in await self._access.passages(query_bundle.query_str)]

    class PenstockReader(BaseReader):  # type: ignore[misc] # the same
        def __init__(self, access: IndexAccess) -> None:
            self._access = access

        def load_data(self, keys: Sequence[str] | None = None) -> list[Document]:
            found = waited_for(self._access.documents(keys))
            return [
                Document(
                    text=each["text"],
                    doc_id=f"{each['bucket']}/{each['key']}",
                    metadata={"bucket": each["bucket"], "key": each["key"]},
                )
                for each in found
            ]

    return PenstockNodeRetriever, PenstockReader
