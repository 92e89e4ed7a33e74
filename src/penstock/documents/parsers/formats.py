"""What a document is, told from its bytes; its name and its declared type only decide where bytes cannot.

Plain text is read by ranges and never parsed; everything else is parsed once, whole, into canonical text: UTF-8 with
line feeds, to which the byte ranges of its chunks refer.
"""

from __future__ import annotations

import io
import re
import zipfile
from enum import StrEnum
from typing import Final

import msgspec

from penstock.errors import AtCapacity, InvalidInput, Unsupported

__all__ = ["Format", "ParsedDocument", "ParserLimits", "sniff"]

# Enough for a preamble of comments before the first tag, and for `%PDF-`, which may come late.
SNIFF_BYTES: Final = 4096
_HTML: Final = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body|title|meta|table|div|p|h1|article)\b",
    re.IGNORECASE | re.DOTALL,
)
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_KNOWN: Final = {
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"\x7fELF": "a program",
    b"\xd0\xcf\x11\xe0": "an old or encrypted Office document",
    b"{\\rtf": "a rich text document",
}
_MARKDOWN_NAMES: Final = (".md", ".markdown", ".mdown", ".mkd")


class Format(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    PDF = "pdf"
    DOCX = "docx"


class ParserLimits(msgspec.Struct, frozen=True):
    """What one document may cost. A document over a limit is quarantined; the next one is parsed."""

    memory_bytes: int = 1 << 30
    cpu_seconds: int = 60
    wall_seconds: float = 120.0
    # Parsers need the whole document, several times over.
    document_bytes: int = 256 << 20
    text_bytes: int = 256 << 20
    # Real pages stay under a few hundred; a tree walker needs a frame a level.
    depth: int = 2_000
    archive_bytes: int = 512 << 20
    archive_entries: int = 10_000


class ParsedDocument(msgspec.Struct, frozen=True):
    """Canonical text, and what went wrong on the way to it without spoiling the rest."""

    text: bytes
    format: Format
    title: str | None = None
    warnings: tuple[str, ...] = ()


def sniff(data: bytes, *, name: str = "", content_type: str | None = None) -> Format:
    """The format of a document from its first bytes (all of them for an archive)."""
    head = data[:SNIFF_BYTES]
    if b"%PDF-" in head[:1024]:
        return Format.PDF
    if head.startswith(b"PK\x03\x04"):
        return _archive(data)
    for magic, what in _KNOWN.items():
        if head.startswith(magic):
            raise Unsupported(f"{what} cannot be indexed", "there is no parser for it")
    if head.startswith(_UTF16):
        return Format.TEXT
    if b"\0" in head:
        raise Unsupported("a binary file cannot be indexed", "it holds zero bytes, which text does not")
    if _HTML.match(head.removeprefix(b"\xef\xbb\xbf")):
        return Format.HTML
    return _text_format(name, content_type)


def _text_format(name: str, content_type: str | None) -> Format:
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml") or name.lower().endswith((".html", ".htm", ".xhtml")):
        return Format.HTML
    if kind == "text/markdown" or name.lower().endswith(_MARKDOWN_NAMES):
        return Format.MARKDOWN
    return Format.TEXT


def _archive(data: bytes) -> Format:
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InvalidInput("a zip archive cannot be opened", str(error), "upload it again") from error
    if "word/document.xml" in names:
        return Format.DOCX
    raise Unsupported("a zip archive cannot be indexed", "it is no Word document", "upload the files in it one by one")


def check_archive(data: bytes, limits: ParserLimits) -> None:
    """Refuse an archive that would unpack to too much, before anything is unpacked."""
    entries = zipfile.ZipFile(io.BytesIO(data)).infolist()
    unpacked = sum(entry.file_size for entry in entries)
    if len(entries) > limits.archive_entries or unpacked > limits.archive_bytes:
        raise AtCapacity(
            f"an archive of {len(data)} bytes would unpack to {unpacked} in {len(entries)} files",
            f"the limits are {limits.archive_bytes} bytes and {limits.archive_entries} files",
            "it looks like a zip bomb; raise the limits if it is not",
        )


def check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise AtCapacity(f"{what} has {size} bytes", f"the limit is {limit}", "split it, or raise the limit")
