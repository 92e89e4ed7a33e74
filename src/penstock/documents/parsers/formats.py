"""The formats of documents, what parsing one may cost, how it is done where there is a choice, and what comes of it.

Plain text in UTF-8 is read by ranges and never parsed; everything else is parsed once, whole, into canonical text:
UTF-8 with line feeds, to which the byte ranges of its chunks refer.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from penstock.errors import AtCapacity

__all__ = [
    "PAGED",
    "TEXTUAL",
    "Format",
    "OverBudget",
    "ParsedDocument",
    "ParserLimits",
    "ParserOptions",
    "UnstructuredCode",
    "check_size",
]


class Format(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    PDF = "pdf"
    DOCX = "docx"
    PPTX = "pptx"
    XLSX = "xlsx"
    ODT = "odt"
    ODP = "odp"
    ODS = "ods"
    EPUB = "epub"
    RTF = "rtf"
    CSV = "csv"
    JSON = "json"
    JSON_LINES = "jsonl"
    EMAIL = "email"
    CODE = "code"
    # Text with headings in the way of its own language: reStructuredText, AsciiDoc, Org, LaTeX.
    MARKED_UP = "marked up"
    NOTEBOOK = "notebook"
    # Of a parser that somebody has added: `Request.plugin` names it.
    PLUGIN = "plugin"
    # An archive that nobody has looked into yet: only a parser's process does.
    ZIP = "zip"
    # One compressed file: what it is, too.
    GZIP = "gzip"


# Formats that are text whatever else they are: one that is too large to be parsed is read by ranges, as it stands.
TEXTUAL: Final = frozenset(
    (Format.TEXT, Format.CSV, Format.JSON, Format.JSON_LINES, Format.EMAIL, Format.CODE, Format.MARKED_UP)
)


# Formats whose texts say where a page, a slide or a sheet begins; in all others a form feed is a blank.
PAGED: Final = frozenset((Format.PDF, Format.PPTX, Format.XLSX, Format.ODS, Format.ODP, Format.PLUGIN))


class ParserLimits(msgspec.Struct, frozen=True):
    """What one document may cost. A document over a limit is quarantined, and the next one is parsed."""

    # Memory of the parser process, in bytes.
    memory_bytes: int = 1 << 30
    # Processor time for one document, in seconds. The hard limit of its process is twice that.
    cpu_seconds: int = 60
    # Elapsed time for one document, in seconds.
    wall_seconds: float = 120.0
    # Processor time for one document while others share its round, in seconds. A document that needs more is
    # parsed separately, and the others do not wait for it.
    round_cpu_seconds: int = 5
    # Maximum size of a document, in bytes. Parsers need several times as much memory.
    document_bytes: int = 256 << 20
    # Maximum text of a document, in bytes.
    text_bytes: int = 256 << 20
    # Maximum nesting of a page. Real pages stay below a few hundred, and parsing takes quadratic time in the
    # depth.
    depth: int = 2_000
    # Maximum unpacked size of an archive, in bytes.
    archive_bytes: int = 512 << 20
    # Maximum entries of an archive.
    archive_entries: int = 10_000


class ParserOptions(msgspec.Struct, frozen=True):
    """How documents are parsed where there is a choice. A change acts on documents that are parsed from then on."""

    # Fields of JSON documents to read, as dotted paths (`author.name`). Empty reads all of them.
    json_fields: tuple[str, ...] = ()
    # Parsers of your own, as `module:Class`, in addition to those of installed packages (entry point
    # `penstock.parsers`).
    plugins: tuple[str, ...] = ()


class ParsedDocument(msgspec.Struct, frozen=True):
    """Canonical text, and what went wrong on the way to it without spoiling the rest."""

    text: bytes
    format: Format
    title: str | None = None
    warnings: tuple[str, ...] = ()
    # The one that the text was decoded from, where there was a choice.
    encoding: str | None = None


class OverBudget(AtCapacity):
    """A document needs more than it was given for now. It may be parsed apart, with all that a document may take."""


class UnstructuredCode(AtCapacity):
    """The definitions in a piece of code cannot be found in the time for it. It can still be read as it stands."""


def check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise AtCapacity(f"{what} has {size} bytes", f"the limit is {limit}", "split it, or raise the limit")
