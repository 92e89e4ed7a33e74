"""OpenDocument texts (ODT) and presentations (ODP): headings, paragraphs, lists, tables, notes and comments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import PAGE_MARK, heading, joined_blocks, with_title
from penstock.documents.parsers.office.packages import Package, local_name
from penstock.errors import InvalidInput, Unsupported

__all__ = ["check_readable", "parse_odt"]

_OFFICE: Final = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TEXT: Final = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
# What is no text of the document: tracked deletions, forms, indexes that repeat its headings.
_SKIPPED: Final = frozenset(
    ("tracked-changes", "forms", "sequence-decls", "bookmark", "note-citation", "creator", "date")
)
_MANIFEST: Final = "META-INF/manifest.xml"
_LEVEL: Final = f"{_TEXT}outline-level"
# A cell may claim to be repeated a million times; blanks are written out up to this.
_REPEATS_MAX: Final = 100


def parse_odt(data: bytes, limits: ParserLimits, found: Format = Format.ODT) -> ParsedDocument:
    package = Package(data, limits)
    check_readable(package)
    root = package.xml("content.xml")
    body = root.find(f"{_OFFICE}body") if root is not None else None
    if body is None:
        raise InvalidInput("an OpenDocument file cannot be opened", "it has no body", "save it again")
    title = _title(package)
    text = with_title(joined_blocks(_blocks(body)), title)
    return ParsedDocument(text.encode("utf-8", "replace"), found, title)


def check_readable(package: Package) -> None:
    """`Unsupported` for a document of any kind whose parts are encrypted."""
    if b"encryption-data" in (package.read(_MANIFEST) or b""):
        raise Unsupported("an encrypted document cannot be read", "it asks for a password", "upload it without")


def _title(package: Package) -> str | None:
    root = package.xml("meta.xml")
    for element in root.iter("{*}title") if root is not None else ():
        if (element.text or "").strip():
            return str(element.text).strip()
    return None


def _blocks(parent: Any) -> Iterator[str]:
    for element in parent:
        kind = local_name(element)
        if kind == "h":
            level = element.get(_LEVEL) or "1"
            yield heading("".join(_words(element, [])), int(level) if level.isdecimal() else 1)
        elif kind == "p":
            yield from _paragraph(element)
        elif kind == "page":
            yield PAGE_MARK
            yield from _blocks(element)
        elif kind == "list-item":
            yield "- " + "\n".join(_blocks(element))
        elif kind == "list":
            yield "\n".join(_blocks(element))
        elif kind == "table":
            yield "\n".join(_rows(element))
        elif kind and kind not in _SKIPPED:
            yield from _blocks(element)


def _paragraph(element: Any) -> Iterator[str]:
    """Its text, then what hangs on it: frames, notes, comments."""
    apart: list[Any] = []
    text = "".join(_words(element, apart))
    if text.strip():
        yield text
    for part in apart:
        yield from _blocks(part)


def _words(element: Any, apart: list[Any]) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        kind = local_name(child)
        if kind == "s":
            count = child.get(f"{_TEXT}c") or "1"
            yield " " * min(int(count), _REPEATS_MAX) if count.isdecimal() else " "
        elif kind in ("tab", "line-break"):
            yield "\t" if kind == "tab" else "\n"
        elif kind in ("frame", "note", "annotation", "custom-shape"):
            apart.append(child)
        elif kind and kind not in _SKIPPED:
            yield from _words(child, apart)
        yield child.tail or ""


def _rows(table: Any) -> Iterator[str]:
    for row in table.iter(f"{_TABLE}table-row"):
        if next(row.iterancestors(f"{_TABLE}table")) is not table:
            continue
        # A covered cell is a merged one's place: it has no text of its own.
        cells = (cell for cell in row if local_name(cell) == "table-cell")
        line = " | ".join(" ".join(" ".join(_blocks(cell)).split()) for cell in cells)
        if line.strip(" |"):
            yield line
