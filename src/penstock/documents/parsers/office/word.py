"""Word documents: body, tables, text boxes, notes, comments, headers and footers, each once.

Read from the parts themselves and not through a library of objects: those leave out content controls, tracked
insertions and text boxes, and repeat merged cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import heading, with_title
from penstock.documents.parsers.office.packages import Package, local_name
from penstock.errors import InvalidInput

__all__ = ["parse_docx"]

_W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DOCUMENT: Final = "word/document.xml"
# Word's own styles, whose names in files are English whatever language a person sees.
_HEADING_STYLE: Final = re.compile(r"(?:title|heading (\d))", re.IGNORECASE)
# Deleted text, instructions of fields, and the second form of what stands in a `Choice` already.
_SKIPPED: Final = frozenset(("del", "moveFrom", "instrText", "Fallback", "pPr", "rPr", "delText"))
_BREAKS: Final = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
# What surrounds the body, in the order in which it is appended, and under which heading.
_AROUND: Final = (("footnotes", "Footnotes"), ("endnotes", "Endnotes"), ("comments", "Comments"))
_MARGINS: Final = (("header", "Headers"), ("footer", "Footers"))


def parse_docx(data: bytes, limits: ParserLimits) -> ParsedDocument:
    package = Package(data, limits)
    root = package.xml(_DOCUMENT)
    body = root.find(f"{_W}body") if root is not None else None
    if body is None:
        raise InvalidInput("a Word document cannot be opened", "it has no body", "save it again")
    levels = _heading_levels(package)
    blocks = list(_blocks(body, levels))
    related = sorted(set(package.related(_DOCUMENT).values()))
    for kind, words in _AROUND:
        notes = [text for found, part in related if found == kind for text in _notes(package, part, levels)]
        blocks += [heading(words, 1), *notes] if notes else []
    for kind, _ in _MARGINS:
        texts = (
            "\n".join(_blocks(root, levels))
            for found, part in related
            if found == kind and (root := package.xml(part)) is not None
        )
        blocks += [text for text in dict.fromkeys(texts) if text.strip()]
    title = _title(package)
    text = with_title("\n\n".join(block for block in blocks if block.strip()), title)
    return ParsedDocument(text.encode("utf-8", "replace"), Format.DOCX, title)


def _heading_levels(package: Package) -> dict[str, int]:
    """The level of each style that is a heading, by the id that paragraphs name it with."""
    root = package.xml("word/styles.xml")
    levels: dict[str, int] = {}
    for style in root.iter(f"{_W}style") if root is not None else ():
        name = style.find(f"{_W}name")
        found = _HEADING_STYLE.fullmatch(name.get(f"{_W}val") or "") if name is not None else None
        if found is not None:
            levels[style.get(f"{_W}styleId") or ""] = int(found.group(1) or 1)
    return levels


def _title(package: Package) -> str | None:
    root = package.xml("docProps/core.xml")
    for element in root if root is not None else ():
        if local_name(element) == "title" and (element.text or "").strip():
            return str(element.text).strip()
    return None


def _notes(package: Package, part: str, levels: dict[str, int]) -> Iterator[str]:
    root = package.xml(part)
    for note in root if root is not None else ():
        # Separators of footnotes are notes of a type of their own.
        if note.get(f"{_W}type") in (None, "normal"):
            text = "\n".join(_blocks(note, levels)).strip()
            author = note.get(f"{_W}author")
            if text:
                yield f"{author}: {text}" if author else text


def _blocks(parent: Any, levels: dict[str, int]) -> Iterator[str]:
    """Paragraphs and tables in order; containers such as content controls are looked through."""
    for element in parent:
        kind = local_name(element)
        if kind == "p":
            yield from _paragraph(element, levels)
        elif kind == "tbl":
            yield "\n".join(_rows(element, levels))
        elif kind not in _SKIPPED:
            yield from _blocks(element, levels)


def _paragraph(element: Any, levels: dict[str, int]) -> Iterator[str]:
    """The text of a paragraph, as a heading where its style says so; then the text boxes that hang on it."""
    boxes: list[Any] = []
    text = "".join(_runs(element, boxes))
    style = element.find(f"{_W}pPr/{_W}pStyle")
    level = levels.get(style.get(f"{_W}val") or "") if style is not None else None
    listed = element.find(f"{_W}pPr/{_W}numPr") is not None and level is None
    if text.strip():
        yield heading(text, level) if level else ("- " if listed else "") + text
    for box in boxes:
        yield from _blocks(box, levels)


def _runs(element: Any, boxes: list[Any]) -> Iterator[str]:
    for child in element:
        kind = local_name(child)
        if kind == "t":
            yield child.text or ""
        elif kind in _BREAKS:
            yield _BREAKS[kind]
        elif kind == "txbxContent":
            boxes.append(child)
        elif kind not in _SKIPPED:
            yield from _runs(child, boxes)


def _rows(table: Any, levels: dict[str, int]) -> Iterator[str]:
    """A line a row. A cell that goes on from the row above is left out: its text stands there."""
    for row in table.iter(f"{_W}tr"):
        if next(row.iterancestors(f"{_W}tbl")) is not table:
            continue  # of a table inside a cell, which is read with that cell
        cells = []
        for cell in row.iter(f"{_W}tc"):
            if next(cell.iterancestors(f"{_W}tr")) is not row:
                continue
            merged = cell.find(f"{_W}tcPr/{_W}vMerge")
            if merged is None or merged.get(f"{_W}val") == "restart":
                cells.append(" ".join(" ".join(_blocks(cell, levels)).split()))
        if any(cells):
            yield " | ".join(cells)
