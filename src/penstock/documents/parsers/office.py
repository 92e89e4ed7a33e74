"""PDF and Word documents. A page that cannot be read costs a warning, not the document."""

from __future__ import annotations

import io
import re
from typing import Any, Final

from penstock.documents.parsers.archives import check_archive
from penstock.documents.parsers.formats import Format, ParsedDocument, ParserLimits
from penstock.documents.parsers.headings import heading, with_title
from penstock.documents.parsers.hyphens import mended
from penstock.errors import InvalidInput, Unsupported

__all__ = ["parse_docx", "parse_pdf"]

# Word's own styles, whose names in files are English whatever language a person sees.
_HEADING_STYLE: Final = re.compile(r"(?:Title|[Hh]eading (\d))")


def parse_pdf(data: bytes) -> ParsedDocument:
    import pypdfium2  # type: ignore[import-untyped]

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "assword" in str(error):
            raise Unsupported(
                "an encrypted PDF cannot be read", "it asks for a password", "upload it without"
            ) from error
        raise InvalidInput("a PDF cannot be opened", str(error), "upload it again, or repair it") from error
    pages, warnings = [], []
    for number in range(len(document)):
        try:
            pages.append(_page_text(document[number]))
        except pypdfium2.PdfiumError as error:
            warnings.append(f"page {number + 1} could not be read: {error}")
    text = mended("\n\n".join(page for page in pages if page))
    if not text and pages:
        warnings.append("the pages hold no text: they may be pictures of it")
    title = (document.get_metadata_dict().get("Title") or "").strip() or None
    return ParsedDocument(text.encode("utf-8", "replace"), Format.PDF, title, tuple(warnings))


def _page_text(page: Any) -> str:
    raw: str = page.get_textpage().get_text_bounded()
    # PDFium ends lines with CRLF.
    return raw.replace("\r\n", "\n").strip(" \t\r\n")


def parse_docx(data: bytes, limits: ParserLimits) -> ParsedDocument:
    import docx
    from docx.opc.exceptions import PackageNotFoundError
    from docx.table import Table

    check_archive(data, limits)
    try:
        document = docx.Document(io.BytesIO(data))
    except (PackageNotFoundError, KeyError, ValueError) as error:
        raise InvalidInput("a Word document cannot be opened", str(error), "save it again") from error
    blocks = [
        "\n".join(" | ".join(cell.text for cell in row.cells) for row in block.rows)
        if isinstance(block, Table)
        else _paragraph(block)
        for block in document.iter_inner_content()
    ]
    text = with_title("\n\n".join(block for block in blocks if block.strip()), document.core_properties.title)
    title = document.core_properties.title or None
    return ParsedDocument(text.encode("utf-8", "replace"), Format.DOCX, title)


def _paragraph(paragraph: Any) -> str:
    """Its text; as a heading where its style says so."""
    style = (paragraph.style.name or "") if paragraph.style is not None else ""
    found = _HEADING_STYLE.fullmatch(style)
    if found is None:
        text: str = paragraph.text
        return text
    return heading(paragraph.text, int(found.group(1) or 1))
