"""Penstock's indexes in frameworks for language models: a retriever for LangChain, a retriever and a reader for LlamaIndex.

Each framework is an extra (`penstock[langchain]`, `penstock[llamaindex]`) and is imported when a name of its is first
asked for. All of them read beside whoever writes the index, and change nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.asking import IndexAccess

if TYPE_CHECKING:
    from penstock.connectors.langchain import PenstockRetriever
    from penstock.connectors.llamaindex import PenstockNodeRetriever, PenstockReader

__all__ = ["IndexAccess", "PenstockNodeRetriever", "PenstockReader", "PenstockRetriever"]

_HOMES: Final = {
    "PenstockRetriever": "langchain",
    "PenstockNodeRetriever": "llamaindex",
    "PenstockReader": "llamaindex",
}


def __getattr__(name: str) -> Any:
    """A framework is imported with the first name that needs it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
