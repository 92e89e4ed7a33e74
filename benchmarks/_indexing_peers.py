"""LlamaIndex's IngestionPipeline and LangChain's index(), each as its manual shows it, on the work of `indexing.py`.

Both split with the splitter of their own, count tokens with the same tokenizer as Penstock, keep a record of what they
have seen, and write their stores to files at the end of a run; a run begins by loading them. Neither syncs a file, and
neither keeps anything of a run that is killed. Both run in one process: LangChain has no workers, and those of
LlamaIndex take longer to start than they save at this size.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from _indexing_work import OVERLAP, TARGET, Figures, change, documents, processor_seconds, vector_of

__all__ = ["PEERS", "measure_peer"]


class Peer(Protocol):
    def run(self, folder: Path) -> int:
        """Load what was kept, index the folder's documents, keep it all; how many chunks it holds."""
        ...


def measure_peer(name: str, folder: Path, place: Path) -> Figures:
    """Raises ImportError where the peer is not installed."""
    start = PEERS[name]
    warm_up(start, folder, place)
    peer = start(place / "kept")
    before = processor_seconds()
    first, chunks = timed(lambda: peer.run(folder))
    spent = processor_seconds() - before
    again, _ = timed(lambda: peer.run(folder))
    megabytes = sum(path.stat().st_size for path in documents(folder)) / 1e6
    change(folder)
    changed, _ = timed(lambda: peer.run(folder))
    return Figures(len(documents(folder)), chunks, megabytes, first, again, changed, spent)


def warm_up(start: Callable[[Path], Peer], folder: Path, place: Path) -> None:
    """Vocabularies and sentence models load once a process; that is not what is measured."""
    few = place / "few"
    few.mkdir(parents=True)
    (few / "one.txt").write_text(documents(folder)[0].read_text()[:20_000])
    start(place / "warm").run(few)


def timed(work: Callable[[], int]) -> tuple[float, int]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def encode(text: str) -> list[int]:
    return tokenizer().encode_ordinary(text)


def count(text: str) -> int:
    return len(tokenizer().encode_flat(text)) // 4


def tokenizer() -> Any:
    import splintr

    global _tokenizer
    _tokenizer = _tokenizer or splintr.Tokenizer.from_pretrained("cl100k_base")
    return _tokenizer


_tokenizer: Any = None


# LlamaIndex --------------------------------------------------------------------------------------


class LlamaIndex:
    """Upserts by a docstore, into the simple vector store."""

    def __init__(self, place: Path) -> None:
        from llama_index.core.node_parser import SentenceSplitter

        self._place = place
        splitter = SentenceSplitter(chunk_size=TARGET, chunk_overlap=OVERLAP, tokenizer=encode)
        self._transformations = [splitter, llama_embedding()]

    def run(self, folder: Path) -> int:
        from llama_index.core import Document
        from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline

        docstore, vectors = self._kept()
        pipeline = IngestionPipeline(
            transformations=self._transformations,
            docstore=docstore,
            vector_store=vectors,
            docstore_strategy=DocstoreStrategy.UPSERTS,
            # The docstore knows what is unchanged; a second copy of every chunk would only cost.
            disable_cache=True,
        )
        pages = [Document(text=path.read_text(), id_=path.name) for path in documents(folder)]
        pipeline.run(documents=pages)
        docstore.persist(str(self._place / "docstore.json"))
        vectors.persist(str(self._place / "vectors.json"))
        return len(vectors.data.embedding_dict)

    def _kept(self) -> tuple[Any, Any]:
        from llama_index.core.storage.docstore import SimpleDocumentStore
        from llama_index.core.vector_stores import SimpleVectorStore

        if not (self._place / "vectors.json").exists():
            return SimpleDocumentStore(), SimpleVectorStore()
        return (
            SimpleDocumentStore.from_persist_path(str(self._place / "docstore.json")),
            SimpleVectorStore.from_persist_path(str(self._place / "vectors.json")),
        )


def llama_embedding() -> Any:
    from llama_index.core.embeddings import BaseEmbedding

    class HashEmbedding(BaseEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            return vector_of(text).tolist()

        def _get_query_embedding(self, query: str) -> list[float]:
            return vector_of(query).tolist()

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return vector_of(query).tolist()

    return HashEmbedding(embed_batch_size=128)


# LangChain ---------------------------------------------------------------------------------------


class LangChain:
    """index() with incremental cleanup, a record manager in SQLite, and the in-memory vector store."""

    def __init__(self, place: Path) -> None:
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        self._place = place
        self._splitter = RecursiveCharacterTextSplitter(chunk_size=TARGET, chunk_overlap=OVERLAP, length_function=count)

    def run(self, folder: Path) -> int:
        from langchain_classic.indexes import SQLRecordManager
        from langchain_core.documents import Document
        from langchain_core.indexing import index

        self._place.mkdir(parents=True, exist_ok=True)
        records = SQLRecordManager("documents", db_url=f"sqlite:///{self._place}/records.sqlite")
        records.create_schema()
        store = self._kept()
        pages = [Document(page_content=path.read_text(), metadata={"source": path.name}) for path in documents(folder)]
        chunks = self._splitter.split_documents(pages)
        index(chunks, records, store, cleanup="incremental", source_id_key="source", key_encoder="sha256")
        store.dump(str(self._place / "vectors.json"))
        return len(store.store)

    def _kept(self) -> Any:
        from langchain_core.embeddings import Embeddings
        from langchain_core.vectorstores import InMemoryVectorStore

        class HashEmbeddings(Embeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return [vector_of(text).tolist() for text in texts]

            def embed_query(self, text: str) -> list[float]:
                return vector_of(text).tolist()

        path = self._place / "vectors.json"
        if not path.exists():
            return InMemoryVectorStore(HashEmbeddings())
        return InMemoryVectorStore.load(str(path), HashEmbeddings())


PEERS: dict[str, Callable[[Path], Peer]] = {"llamaindex": LlamaIndex, "langchain": LangChain}
