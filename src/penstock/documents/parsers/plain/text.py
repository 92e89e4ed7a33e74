"""Plain text.

Text in UTF-8 passes as it is, a few bad bytes included: the chunker replaces and counts those. Every other encoding is
turned into UTF-8.
"""

from __future__ import annotations

from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.formats import Format, ParsedDocument

__all__ = ["parse_text"]


def parse_text(data: bytes, content_type: str = "") -> ParsedDocument:
    read = decoded(data, declared_charset(content_type))
    if read.encoding == "utf-8":
        return ParsedDocument(data.removeprefix(b"\xef\xbb\xbf"), Format.TEXT, encoding=read.encoding)
    return ParsedDocument(read.text.encode("utf-8", "replace"), Format.TEXT, None, read.warnings, read.encoding)
