"""PowerPoint presentations: the slides in their order, each under its title, with tables and speaker notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import PAGE_MARK, heading, joined_blocks
from penstock.documents.parsers.office.packages import Package, local_name
from penstock.errors import InvalidInput

__all__ = ["parse_pptx"]

_A: Final = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P: Final = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_PRESENTATION: Final = "ppt/presentation.xml"
_TITLES: Final = frozenset(("title", "ctrTitle"))
# Placeholders that repeat on every slide.
_FURNITURE: Final = frozenset(("dt", "ftr", "sldNum", "hdr", "sldImg"))


def parse_pptx(data: bytes, limits: ParserLimits) -> ParsedDocument:
    package = Package(data, limits)
    root = package.xml(_PRESENTATION)
    if root is None:
        raise InvalidInput("a presentation cannot be opened", "it has no list of slides", "save it again")
    related = package.related(_PRESENTATION)
    order = [related.get(each.get(f"{_R}id") or "", ("", ""))[1] for each in root.iter(f"{_P}sldId")]
    blocks: list[str] = []
    title = None
    for number, part in enumerate(order, 1):
        slide = package.xml(part)
        blocks.append(PAGE_MARK)
        if slide is None:
            continue
        name, texts = _slide(slide)
        title = title or name
        texts += _notes(package, part)
        if name or texts:
            blocks += [heading(name or f"Slide {number}", 2), *texts]
    text = joined_blocks(blocks)
    return ParsedDocument(text.encode("utf-8", "replace"), Format.PPTX, title)


def _slide(slide: Any) -> tuple[str | None, list[str]]:
    """The title of a slide, and its other texts."""
    title, texts = None, []
    for shape in slide.iter(f"{_P}sp", f"{_A}tbl"):
        if local_name(shape) == "tbl":
            rows = (_row(row) for row in shape.iter(f"{_A}tr"))
            if table := "\n".join(row for row in rows if row.strip(" |")):
                texts.append(table)
            continue
        kind = _placeholder(shape)
        if kind in _FURNITURE:
            continue
        lines = list(_lines(shape))
        if kind in _TITLES and title is None:
            title = " ".join(lines) or None
        elif lines:
            texts.append("\n".join(lines))
    return title, texts


def _placeholder(shape: Any) -> str:
    found = next(shape.iter(f"{_P}ph"), None)
    return str(found.get("type") or "body") if found is not None else ""


def _notes(package: Package, part: str) -> list[str]:
    names = [name for kind, name in package.related(part).values() if kind == "notesSlide"]
    root = package.xml(names[0]) if names else None
    return _slide(root)[1] if root is not None else []


def _row(row: Any) -> str:
    # A cell that another one covers is empty, and says so.
    covered = ("1", "true")
    cells = (
        cell
        for cell in row
        if local_name(cell) == "tc" and cell.get("hMerge") not in covered and cell.get("vMerge") not in covered
    )
    return " | ".join(" ".join(_lines(cell)) for cell in cells)


def _lines(element: Any) -> Iterator[str]:
    for paragraph in element.iter(f"{_A}p"):
        pieces = (each.text or "" if local_name(each) == "t" else "\n" for each in paragraph.iter(f"{_A}t", f"{_A}br"))
        if line := "".join(pieces).strip():
            yield line
