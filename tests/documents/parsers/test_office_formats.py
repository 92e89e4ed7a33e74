"""PowerPoint, OpenDocument and EPUB: what a reader would read, in the order in which it would be read."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from tests.documents.parsers.made import book, open_document, presentation, shape, zipped

from penstock.documents.parsers import Format, ParserLimits, Sandbox
from penstock.documents.parsers.office.books import parse_epub
from penstock.documents.parsers.office.opendocument import parse_odt
from penstock.documents.parsers.office.slides import parse_pptx
from penstock.documents.parsers.office.tables import parse_workbook
from penstock.errors import AtCapacity, InvalidInput, Unsupported

LIMITS = ParserLimits()


def test_slides_come_in_their_order_under_their_titles_with_tables_and_notes():
    cells = "".join(f"<a:tc><a:txBody><a:p><a:r><a:t>{word}</a:t></a:r></a:p></a:txBody></a:tc>" for word in ("a", "b"))
    table = f"<p:graphicFrame><a:tbl><a:tr>{cells}</a:tr></a:tbl></p:graphicFrame>"
    first = shape("Otters", "ctrTitle") + shape("7", "sldNum") + shape("They swim.\nThey dive.")
    parsed = parse_pptx(presentation(first, shape("No title here") + table, notes="Say hello."), LIMITS)
    assert parsed.title == "Otters"
    assert (
        parsed.text.decode()
        == "\f\n\n## Otters\n\nThey swim.\nThey dive.\n\nSay hello.\n\n\f\n\n## Slide 2\n\nNo title here\n\na | b"
    )


def test_an_opendocument_text_keeps_headings_lists_tables_notes_and_blanks():
    content = (
        '<text:h text:outline-level="2">Habitat</text:h>'
        '<text:p>Clear<text:s text:c="2"/>water<text:tab/>only<text:note><text:note-citation>1</text:note-citation>'
        "<text:note-body><text:p>In May.</text:p></text:note-body></text:note>.</text:p>"
        "<text:list><text:list-item><text:p>Fish</text:p></text:list-item>"
        "<text:list-item><text:p>Crabs</text:p></text:list-item></text:list>"
        "<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>"
        "<table:covered-table-cell/><table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table>"
    )
    parsed = parse_odt(open_document(content), LIMITS)
    assert parsed.title == "On Rivers"
    assert parsed.text.decode() == "## Habitat\n\nClear  water\tonly.\n\nIn May.\n\n- Fish\n- Crabs\n\na | b"


def test_an_encrypted_opendocument_says_so():
    data = zipped({"mimetype": "x", "content.xml": b"\x00", "META-INF/manifest.xml": "<m><encryption-data/></m>"})
    with pytest.raises(Unsupported, match="encrypted"):
        parse_odt(data, LIMITS)
    with pytest.raises(Unsupported, match="encrypted"):
        parse_workbook(data, LIMITS, Format.ODS)


def test_a_book_is_read_in_the_order_of_its_spine_and_a_missing_page_is_told():
    pages = {"b.xhtml": "<html><body><h1>Two</h1><p>End.</p></body></html>", "a.xhtml": "<p>One</p>"}
    parsed = parse_epub(book(pages, order=("a.xhtml", "b.xhtml")), LIMITS)
    assert (parsed.title, parsed.text.decode()) == ("The Otter", "One\n\n# Two\n\nEnd.")
    torn = book({"a.xhtml": "<p>One</p>", "b.xhtml": "<p>Two</p>"}).replace(b"OEBPS/b.xhtml", b"OEBPS/x.xhtml")
    assert parse_epub(torn, LIMITS).warnings == ("page 'OEBPS/b.xhtml' is not in the book",)


def test_a_locked_book_is_refused_and_one_with_locked_fonts_is_not():
    pages = {"a.xhtml": "<p>One</p>"}
    with pytest.raises(Unsupported, match="locked"):
        parse_epub(book(pages, locked=("a.xhtml",)), LIMITS)
    assert parse_epub(book(pages, locked=("font.otf",)), LIMITS).text == b"# The Otter\n\nOne"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (presentation(shape("x")), Format.PPTX),
        (open_document("<text:p>x</text:p>"), Format.ODT),
        (open_document("<text:p>x</text:p>", "presentation"), Format.ODP),
        (book({"a": "<p>x</p>"}), Format.EPUB),
    ],
)
def test_the_sandbox_tells_formats_by_what_is_in_them(data, found, sandbox):
    assert sandbox.parse(data, tenant="t", name="whatever.bin").format is found


@pytest.mark.parametrize("parse", [parse_pptx, parse_odt, parse_epub])
def test_an_archive_without_its_parts_is_refused_by_name(parse):
    with pytest.raises(InvalidInput, match="cannot be opened"):
        parse(zipped({"other": "x"}), LIMITS)


def test_what_unpacks_to_more_than_it_declares_is_stopped():
    """The size in the directory is a claim: here it says 10 bytes, and a megabyte of zeros follows."""
    data = zipped({"content.xml": b"0" * 1_000_000, "mimetype": "x"})
    place = data.index(b"PK\x01\x02")
    lied = data[: place + 24] + struct.pack("<L", 10) + data[place + 28 :]
    with pytest.raises((AtCapacity, InvalidInput)):
        parse_odt(lied, ParserLimits(archive_bytes=100_000))


def test_every_byte_of_a_document_flipped_gives_a_document_or_one_of_our_errors(sandbox):
    whole = open_document("<text:p>Otters swim in rivers.</text:p>")
    for place in range(0, len(whole), 7):
        torn = whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :]
        # Any other error ends the test.
        with suppress(AtCapacity, InvalidInput, Unsupported):
            assert sandbox.parse(torn, tenant="t", name="a.odt").format in (Format.ODT, Format.TEXT)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as opened:
        yield opened
