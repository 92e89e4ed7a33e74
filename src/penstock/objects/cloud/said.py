"""What the writer of an object said of it: the user metadata of S3, Azure and Google, as names and texts."""

from __future__ import annotations

from collections.abc import Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import Final

__all__ = ["said_of"]

# The client tells these beside what the writer said.
_HEADERS: Final = frozenset(
    {"cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "storage-class"}
)
# S3 tells what is not ASCII in the form of a mail header.
_ENCODED: Final = "=?"


def said_of(attributes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Names in lower case, as services that keep headers do, in order."""
    said = ((name.lower(), value) for name, value in attributes.items())
    return tuple(sorted((name, _text(value)) for name, value in said if name not in _HEADERS))


def _text(value: str) -> str:
    if _ENCODED not in value:
        return value
    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, UnicodeError, ValueError):
        # Whatever it is, it is no header: as it came.
        return value
