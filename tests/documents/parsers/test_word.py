"""Of a Word document every text is read, once: what libraries of objects leave out, and what they repeat."""

from __future__ import annotations

import io

import docx
import pytest
from tests.documents.parsers.made import W, paragraph, word, zipped

from penstock.documents.parsers import ParserLimits
from penstock.documents.parsers.office.word import parse_docx
from penstock.errors import InvalidInput


def text_of(data: bytes) -> str:
    return parse_docx(data, ParserLimits()).text.decode()


def test_headers_footers_notes_and_comments_follow_the_body():
    data = word(
        paragraph("Otters swim."),
        header=f"<w:hdr {W}>{paragraph('River report')}</w:hdr>",
        footer=f"<w:ftr {W}>{paragraph('Confidential')}</w:ftr>",
        footnotes=(
            f'<w:footnotes {W}><w:footnote w:type="separator">{paragraph("----")}</w:footnote>'
            f"<w:footnote>{paragraph('Seen in May.')}</w:footnote></w:footnotes>"
        ),
        comments=f'<w:comments {W}><w:comment w:author="Ann">{paragraph("Which river?")}</w:comment></w:comments>',
    )
    blocks = text_of(data).split("\n\n")
    assert blocks == [
        "Otters swim.", "# Footnotes", "Seen in May.", "# Comments", "Ann: Which river?", "River report", "Confidential",
    ]  # fmt: skip


def test_a_merged_cell_is_read_once_and_a_table_in_a_cell_with_it():
    made = docx.Document()
    table = made.add_table(3, 2)
    table.cell(0, 0).merge(table.cell(1, 0)).text = "tall"
    table.cell(2, 0).merge(table.cell(2, 1)).text = "wide"
    table.cell(0, 1).text = "right"
    inner = table.cell(1, 1).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "inner", "pair"
    written = io.BytesIO()
    made.save(written)
    assert text_of(written.getvalue()) == "tall | right\ninner | pair\nwide"


def test_tracked_insertions_content_controls_and_text_boxes_are_text_and_deletions_are_not():
    inserted = "<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>"
    control = f"<w:sdt><w:sdtContent>{paragraph('chosen')}</w:sdtContent></w:sdt>"
    box = f"<w:txbxContent>{paragraph('boxed')}</w:txbxContent>"
    compatible = (
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback></mc:AlternateContent>"
    )
    drawn = f"<w:p><w:r><w:t>around</w:t>{compatible}</w:r></w:p>"
    assert text_of(word(inserted + control + drawn)) == "new\n\nchosen\n\naround\n\nboxed"


def test_a_heading_is_known_by_its_style_in_whatever_language_word_speaks():
    style = '<w:pPr><w:pStyle w:val="berschrift2"/></w:pPr>'
    listed = "<w:pPr><w:numPr/></w:pPr>"
    body = paragraph("Habitat", style) + paragraph("Rivers", listed)
    assert text_of(word(body)) == "## Habitat\n\n- Rivers"


def test_breaks_and_tabs_stay():
    assert text_of(word("<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r></w:p>")) == "a\tb\nc"


@pytest.mark.parametrize("document", ["", "<x/>", "<w:document", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'])
def test_a_document_without_a_body_is_refused_by_name(document):
    with pytest.raises(InvalidInput, match=r"body|is not XML"):
        parse_docx(zipped({"word/document.xml": document}), ParserLimits())


def test_an_entity_is_never_expanded():
    bomb = f'<!DOCTYPE a [<!ENTITY b "{"x" * 1000}"><!ENTITY c "{"&b;" * 1000}">]>'
    document = f"{bomb}<w:document {W}><w:body>{paragraph('&c;')}</w:body></w:document>"
    with pytest.raises(InvalidInput, match="amplification"):
        text_of(zipped({"word/document.xml": document}))
    secret = '<!DOCTYPE a [<!ENTITY c SYSTEM "file:///etc/passwd">]>'
    document = f"{secret}<w:document {W}><w:body>{paragraph('before &c; after')}</w:body></w:document>"
    assert "root" not in text_of(zipped({"word/document.xml": document}))
