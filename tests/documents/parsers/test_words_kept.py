"""Whatever a document is written in, its words come out: a shipped page in every format, counted in and out."""

from __future__ import annotations

import json
import re
from collections import Counter
from email.message import EmailMessage
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from tests.documents.parsers import made

from penstock.documents.parsers import Sandbox

PAGE = Path(__file__).parents[3] / "docs" / "rooms" / "documents.md"
# Words of the page in paragraphs, without what formats may take for marks of their own.
PARAGRAPHS = [
    " ".join(re.findall(r"\w+", block)) for block in PAGE.read_text(encoding="utf-8").split("\n\n") if block.strip()
]


def wrapped(opening: str, closing: str) -> str:
    return "".join(f"{opening}{escape(text)}{closing}" for text in PARAGRAPHS)


def mail() -> bytes:
    written = EmailMessage()
    written["Subject"] = "words"
    written.set_content("\n\n".join(PARAGRAPHS))
    return bytes(written)


def rich_text() -> bytes:
    def coded(text: str) -> str:
        return "".join(sign if sign.isascii() else f"\\u{ord(sign)}?" for sign in text)

    return ("{\\rtf1\\ansi\\uc1 " + "\\par ".join(map(coded, PARAGRAPHS)) + "}").encode("ascii")


def rows() -> str:
    return "".join(
        f'<row r="{place}">{made.text_cell(f"A{place}", text)}</row>' for place, text in enumerate(PARAGRAPHS, 1)
    )


DOCUMENTS = {
    "a.txt": "\n\n".join(PARAGRAPHS).encode(),
    "a.md": "\n\n".join(PARAGRAPHS).encode(),
    "a.html": f"<html><body>{wrapped('<p>', '</p>')}</body></html>".encode(),
    "a.docx": made.word("".join(made.paragraph(escape(text)) for text in PARAGRAPHS)),
    "a.odt": made.open_document(wrapped("<text:p>", "</text:p>")),
    "a.epub": made.book({"one.xhtml": wrapped("<p>", "</p>")}),
    "a.pptx": made.presentation(*(made.shape(escape(text)) for text in PARAGRAPHS)),
    "a.xlsx": made.workbook(rows()),
    "a.csv": "\n".join(PARAGRAPHS).encode(),
    "a.json": json.dumps(PARAGRAPHS).encode(),
    "a.eml": mail(),
    "a.rtf": rich_text(),
}


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.casefold()))


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as opened:
        yield opened


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_format_loses_a_word(sandbox, name):
    found = words(sandbox.parse(DOCUMENTS[name], tenant="t", name=name).text.decode())
    expected = words("\n".join(PARAGRAPHS))
    assert expected.total() > 1_000
    assert not expected - found
