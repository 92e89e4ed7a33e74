"""PDF documents. A page that cannot be read costs a warning, not the document; pictures of text are refused by name."""

from __future__ import annotations

from typing import Any

from penstock.documents.parsers.formats import Format, ParsedDocument
from penstock.documents.parsers.headings import PAGE_MARK, joined_blocks
from penstock.documents.parsers.office.hyphens import mended
from penstock.errors import InvalidInput, Unsupported

__all__ = ["parse_pdf"]


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
            pages.append("")
            warnings.append(f"page {number + 1} could not be read: {error}")
    text = mended(joined_blocks(block for page in pages for block in (PAGE_MARK, page)))
    if not text and any(_has_pictures(document[number]) for number in range(len(document))):
        raise Unsupported(
            "a PDF of pictures cannot be indexed",
            f"its {len(document)} pages hold no text",
            "images of text need character recognition first: upload what it gives",
        )
    if not text and pages:
        warnings.append("the pages hold no text")
    title = (document.get_metadata_dict().get("Title") or "").strip() or None
    return ParsedDocument(text.encode("utf-8", "replace"), Format.PDF, title, tuple(warnings))


def _has_pictures(page: Any) -> bool:
    import pypdfium2.raw as pdfium  # type: ignore[import-untyped]

    return any(True for _ in page.get_objects(filter=(pdfium.FPDF_PAGEOBJ_IMAGE,), max_depth=3))


def _page_text(page: Any) -> str:
    raw: str = page.get_textpage().get_text_bounded()
    # PDFium ends lines with CRLF.
    return raw.replace("\r\n", "\n").replace(PAGE_MARK, " ").strip(" \t\r\n")
