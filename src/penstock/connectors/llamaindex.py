"""An index in LlamaIndex: a retriever of passages, and a reader of the texts of whole documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.readers.base import BaseReader
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import Document, NodeWithScore, QueryBundle, TextNode

from penstock.connectors.asking import IndexAccess, passage_id, passage_metadata, waited_for

__all__ = ["PenstockNodeRetriever", "PenstockReader"]


class PenstockNodeRetriever(BaseRetriever):  # type: ignore[misc] # the framework is an extra, and may be absent here
    """Passages as nodes with their scores, best first: `PenstockNodeRetriever(IndexAccess("handbook.store"))`."""

    def __init__(self, access: IndexAccess, **options: Any) -> None:
        super().__init__(**options)
        self._access = access

    def _retrieve(self, query_bundle: QueryBundle) -> list[Any]:
        return [_node(passage) for passage in waited_for(self._access.passages(query_bundle.query_str))]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[Any]:
        return [_node(passage) for passage in await self._access.passages(query_bundle.query_str)]


class PenstockReader(BaseReader):  # type: ignore[misc] # the framework is an extra, and may be absent here
    """The texts of documents, as they were indexed: of some keys, or all that the filter of the access selects."""

    def __init__(self, access: IndexAccess) -> None:
        self._access = access

    def load_data(self, keys: Sequence[str] | None = None) -> list[Any]:
        found = waited_for(self._access.documents(keys))
        return [
            Document(
                text=each["text"],
                doc_id=f"{each['bucket']}/{each['key']}",
                metadata={"bucket": each["bucket"], "key": each["key"]},
            )
            for each in found
        ]


def _node(passage: dict[str, Any]) -> Any:
    metadata = passage_metadata(passage)
    # Positions say nothing to a model, and neither do scores to an embedding.
    hidden = [name for name in ("highlights", "start", "end", "seq", "score") if name in metadata]
    node = TextNode(
        id_=passage_id(passage),
        text=passage["text"],
        metadata=metadata,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=hidden,
    )
    return NodeWithScore(node=node, score=passage["score"])
