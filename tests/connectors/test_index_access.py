"""An index is asked by frameworks, whether they have a loop or not."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from penstock.connectors import (
    IndexAccess,
    langchain,
    langchain_retriever,
    llamaindex,
    llamaindex_reader,
    llamaindex_retriever,
)
from penstock.connectors.index_access import passage_id, passage_metadata, waited_for
from penstock.errors import InvalidInput, NotFound, Unavailable
from penstock.testing.shelf import IndexShelf

# Frameworks are extras that are not in the lock: `pip install 'penstock[langchain,llamaindex]'` runs their tests.
LANGCHAIN = "LangChain is not installed: pip install 'penstock[langchain]'"
LLAMAINDEX = "LlamaIndex is not installed: pip install 'penstock[llamaindex]'"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    shelf = IndexShelf.holding(
        tmp_path_factory.mktemp("connectors"),
        {
            "otters.md": "# Otters\n\nThe otter is an animal that lives in the rivers and eats fish.",
            "otters.md.meta.json": '{"team": "zoo"}',
            "bread.txt": "The loaf is baked in a hot oven.",
        },
    )
    return str(shelf.folder / "store")


def access(store: str, **options: Any) -> IndexAccess:
    return IndexAccess(store, "handbook", "acme", **options)


def test_passages_and_documents_are_read_with_or_without_a_loop(store: str) -> None:
    asked = access(store, count=1)
    (passage,) = waited_for(asked.passages("hot oven"))
    assert (passage["key"], passage_id(passage).endswith("bread.txt#0")) == ("bread.txt", True)
    assert set(passage_metadata(passage)) >= {"score", "bucket", "key", "highlights", "language"}

    async def inside() -> Any:
        return waited_for(asked.passages("hot oven")), await asked.passages("hot oven")

    assert asyncio.run(inside()) == ([passage], [passage])
    assert [each["key"] for each in waited_for(asked.documents())] == ["bread.txt", "otters.md"]
    (only,) = waited_for(access(store, filter="meta.team = 'zoo'").documents())
    assert only["text"].endswith("eats fish.")


def test_what_is_refused_is_raised_to_whoever_asked(store: str) -> None:
    async def inside() -> None:
        waited_for(access(store, filter="meta.teem = 1").passages("otter"))

    with pytest.raises(InvalidInput, match="teem"):
        asyncio.run(inside())
    with pytest.raises(NotFound):
        waited_for(access(store).documents(["absent.txt"]))
    with pytest.raises(NotFound, match="there is no store"):
        waited_for(access(f"{store}-mistyped").documents())


def test_a_framework_that_is_not_installed_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("langchain_core", "llama_index"):
        # As if it could not be found, installed or not.
        for loaded in [name for name in sys.modules if name.partition(".")[0] == module]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, module, None)
    langchain._retriever_class.cache_clear()
    llamaindex._made_classes.cache_clear()
    for make, extra in (
        (langchain_retriever, "langchain"),
        (llamaindex_retriever, "llamaindex"),
        (llamaindex_reader, "llamaindex"),
    ):
        with pytest.raises(Unavailable) as caught:
            make(IndexAccess("store"))
        assert caught.value.remedy == f"pip install 'penstock[{extra}]'"


def test_langchain_retrieves_documents(store: str) -> None:
    pytest.importorskip("langchain_core", reason=LANGCHAIN)
    retriever = langchain_retriever(access(store, count=1, filter="language = 'en'"), tags=["handbook"])
    (found,) = retriever.invoke("which animal eats fish")
    assert found.page_content.endswith("eats fish.")
    assert (found.metadata["key"], found.metadata["title"]) == ("otters.md", "Otters")
    assert found.metadata["metadata"] == {"team": "zoo"}
    assert asyncio.run(retriever.ainvoke("which animal eats fish")) == [found]
    chain = retriever | (lambda documents: [document.id for document in documents])
    assert chain.invoke("hot oven")[0].endswith("#0")


def test_llamaindex_retrieves_nodes_and_reads_documents(store: str) -> None:
    pytest.importorskip("llama_index.core", reason=LLAMAINDEX)
    retriever = llamaindex_retriever(access(store, count=2))
    best, _ = retriever.retrieve("which animal eats fish")
    assert best.node.get_content().endswith("eats fish.")
    assert best.score is not None
    assert best.node.metadata["headings"] == "Otters"
    assert "highlights" not in best.node.get_content(metadata_mode="llm")
    assert (
        next(node.node.node_id for node in asyncio.run(retriever.aretrieve("which animal eats fish")))
        == best.node.node_id
    )
    documents = llamaindex_reader(access(store)).load_data()
    assert [document.metadata["key"] for document in documents] == ["bread.txt", "otters.md"]
    (one,) = llamaindex_reader(access(store)).load_data(["bread.txt"])
    assert one.text == "The loaf is baked in a hot oven."
