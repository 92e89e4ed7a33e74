"""EPUB books: the pages of the spine in their order, each read as the web page that it is."""

from __future__ import annotations

import posixpath
from typing import Any, Final
from urllib.parse import unquote

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import with_title
from penstock.documents.parsers.office.packages import Package
from penstock.documents.parsers.web.markup import parse_html
from penstock.errors import InvalidInput, Unsupported

__all__ = ["parse_epub"]

_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"


def parse_epub(data: bytes, limits: ParserLimits) -> ParsedDocument:
    package = Package(data, limits)
    place = _package_document(package)
    root = package.xml(place)
    if root is None:
        raise InvalidInput("a book cannot be opened", f"{place[:120]!r} is not in it", "upload it again")
    parts = _spine(root, posixpath.dirname(place))
    locked = _encrypted(package).intersection(parts)
    if locked:
        raise Unsupported(
            "an encrypted book cannot be read", f"{len(locked)} of its pages are locked", "upload it without"
        )
    title = next((str(each.text).strip() for each in root.iter("{*}title") if (each.text or "").strip()), None)
    pages, warnings = [], []
    for part in parts:
        page = package.read(part)
        if page is None:
            warnings.append(f"page {part[:120]!r} is not in the book")
            continue
        parsed = parse_html(page, limits)
        pages.append(parsed.text.decode("utf-8", "replace"))
        warnings += [f"{part[:120]}: {warning}" for warning in parsed.warnings]
    text = with_title("\n\n".join(page for page in pages if page.strip()), title)
    return ParsedDocument(text.encode("utf-8", "replace"), Format.EPUB, title, tuple(warnings))


def _package_document(package: Package) -> str:
    root = package.xml(_CONTAINER)
    for each in root.iter("{*}rootfile") if root is not None else ():
        if each.get("full-path"):
            return str(each.get("full-path"))
    raise InvalidInput("a book cannot be opened", "its container names no content", "upload it again")


def _spine(root: Any, folder: str) -> list[str]:
    """The names of the pages in the order of reading, each once."""
    hrefs = {each.get("id"): each.get("href") or "" for each in root.iter("{*}item")}
    named = (hrefs.get(each.get("idref"), "") for each in root.iter("{*}itemref"))
    return list(dict.fromkeys(posixpath.normpath(posixpath.join(folder, unquote(href))) for href in named if href))


def _encrypted(package: Package) -> set[str]:
    """Fonts may be, and mostly are the only ones."""
    root = package.xml(_ENCRYPTION)
    return {unquote(each.get("URI") or "") for each in root.iter("{*}CipherReference")} if root is not None else set()
