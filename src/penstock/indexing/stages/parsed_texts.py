"""Canonical texts that are too large for one round, kept in the store while their documents are read.

The task that parsed a document writes its text as `parsed/{docId}-{parsers}`, and later rounds read it by ranges like
any other text; the driver removes it (`penstock.indexing.job.parsed_texts`).
"""

from __future__ import annotations

from typing import Final

from penstock.documents.parsers import ParserOptions, parser_fingerprint

__all__ = ["PARSED_PREFIX", "parsed_key"]

PARSED_PREFIX: Final = "parsed/"


def parsed_key(document: str, options: ParserOptions) -> str:
    """Where the text of a document lies, as the parsers that are installed here make it with these options."""
    return f"{PARSED_PREFIX}{document}-{parser_fingerprint(options)}"
