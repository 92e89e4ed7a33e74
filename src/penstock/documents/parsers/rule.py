"""Which parsers these are: the same bytes give the same canonical text only while this says the same."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

from penstock.documents.parsers.formats import ParserOptions

__all__ = ["parser_fingerprint"]

# Changes with every change of our own part in parsing that changes some document's text.
_RULE: Final = 8
_LIBRARIES: Final = (
    "charset-normalizer",
    "lxml",
    "mistune",
    "pypdfium2",
    "python-calamine",
    "selectolax",
    "striprtf",
    "tree-sitter",
)


@cache
def parser_fingerprint(options: ParserOptions | None = None) -> str:
    """Sixteen hexadecimal digits for our rule, the releases of the libraries that parse, and the options."""
    parts = [str(_RULE), *(f"{name}={_release(name)}" for name in _LIBRARIES)]
    if options not in (None, ParserOptions()):
        parts.append(msgspec.json.encode(options).decode())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _release(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
