"""Penstock's indexes in frameworks for language models: a retriever for LangChain, a retriever and a reader for LlamaIndex.

Each framework is an extra (`penstock[langchain]`, `penstock[llamaindex]`), and is imported when something of it is first
made. All of them only read, and work while another process writes the index.
"""

from penstock.connectors.index_access import IndexAccess
from penstock.connectors.langchain import langchain_retriever
from penstock.connectors.llamaindex import llamaindex_reader, llamaindex_retriever

__all__ = ["IndexAccess", "langchain_retriever", "llamaindex_reader", "llamaindex_retriever"]
