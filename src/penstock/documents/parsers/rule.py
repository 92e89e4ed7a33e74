"""Which parsers these are: the same bytes give the same canonical text only while this says the same."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

__all__ = ["parser_fingerprint"]

# Changes with every change of our own part in parsing that changes some document's text.
_RULE: Final = 3
_LIBRARIES: Final = ("selectolax", "pypdfium2", "python-docx", "mistune", "charset-normalizer")


@cache
def parser_fingerprint() -> str:
    """Sixteen hexadecimal digits for our rule and the releases of the libraries that parse."""
    parts = [str(_RULE), *(f"{name}={_release(name)}" for name in _LIBRARIES)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _release(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
