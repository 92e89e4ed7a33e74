"""PDF documents: the text of each page, and what is filled into its forms.

A page that cannot be read costs a warning, not the document; pictures of text are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.documents.parsers.formats import Format, ParsedDocument
from penstock.documents.parsers.headings import PAGE_MARK, joined_blocks
from penstock.documents.parsers.office.hyphens import mended
from penstock.errors import InvalidInput, Unsupported

__all__ = ["parse_pdf"]

_FIELDS_MAX: Final = 10_000
_FIELD_BYTES_MAX: Final = 1 << 20


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
    # Before the first page is loaded; a document without forms has none.
    document.init_forms()
    pages, warnings = [], []
    for number in range(len(document)):
        try:
            page = document[number]
            pages.append(joined_blocks((_page_text(page), "\n".join(_form_values(page)))))
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


def _form_values(page: Any) -> Iterator[str]:
    """What is filled into the fields of a page, which is no part of its text."""
    import pypdfium2.raw as pdfium

    if page.formenv is None:
        return
    seen: set[str] = set()
    for place in range(min(pdfium.FPDFPage_GetAnnotCount(page), _FIELDS_MAX)):
        field = pdfium.FPDFPage_GetAnnot(page, place)
        if not field:
            continue
        try:
            if pdfium.FPDFAnnot_GetFormFieldType(page.formenv, field) not in _written_fields(pdfium):
                continue
            value = _form_value(pdfium, page.formenv, field)
        finally:
            pdfium.FPDFPage_CloseAnnot(field)
        # A field may be shown more than once.
        if value and value not in seen:
            seen.add(value)
            yield value


def _written_fields(pdfium: Any) -> tuple[int, ...]:
    """The kinds that hold words: a box that is ticked says `Yes` or `1`."""
    return pdfium.FPDF_FORMFIELD_TEXTFIELD, pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX


def _form_value(pdfium: Any, forms: Any, field: Any) -> str:
    size = pdfium.FPDFAnnot_GetFormFieldValue(forms, field, None, 0)
    if not 2 < size <= _FIELD_BYTES_MAX:
        return ""
    buffer = (pdfium.FPDF_WCHAR * (size // 2))()
    pdfium.FPDFAnnot_GetFormFieldValue(forms, field, buffer, size)
    text = bytes(buffer).decode("utf-16-le", "replace").rstrip("\0")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace(PAGE_MARK, " ").strip()
